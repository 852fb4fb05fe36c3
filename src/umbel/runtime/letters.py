"""Dead letters of rows that user functions in pipelines rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from umbel.catalog.catalog import RAW_LIMIT, DeadLetter
from umbel.graph.graph import Graph, GraphNode
from umbel.runtime.dead_letters import FUNCTION, REASON
from umbel.runtime.guard import Rejected, WorkerGuard

PIPELINE = -1
"""The ordinal of the source of dead letters that come from a pipeline."""


@dataclass(slots=True)
class Letters:
    """The rows rejected by guards, and their counts.

    Args:
        rejected: the rows, as far as they are described.
        counts: all of them, by the operator's id.
    """

    rejected: list[Rejected] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, guard: WorkerGuard) -> Self:
        """Return the rejected rows of a guard."""
        return cls(guard.rejected, guard.counts)

    def add(self, other: Letters) -> None:
        """Add the rejected rows of another guard."""
        self.rejected += other.rejected
        self.counts.update(other.counts)

    def counted(self, graph: Graph) -> Mapping[tuple[str, str], int]:
        """Return the number of rejected rows, by dataset and counter name."""
        found = Counter[tuple[str, str]]()
        for operator, count in self.counts.items():
            for dataset in datasets_of(graph, operator):
                found[dataset, "dead"] += count
                found[dataset, f"{REASON}{FUNCTION}"] += count
        return found

    def written(self, graph: Graph) -> list[DeadLetter]:
        """Return the dead letters."""
        datasets = {operator: datasets_of(graph, operator) for operator in self.counts}
        return [_letter(each, dataset) for each in self.rejected for dataset in datasets[each.operator]]

    def __bool__(self) -> bool:
        return bool(self.counts)


def _letter(row: Rejected, dataset: str) -> DeadLetter:
    position = f"{row.title}: {row.where}"
    return DeadLetter(dataset, PIPELINE, position, row.reason, row.raw[:RAW_LIMIT], len(row.raw))


def datasets_of(graph: Graph, operator: str) -> list[str]:
    """Return the datasets whose pipelines share an operator."""
    nodes = [node for node in graph.nodes if node.operator.id == operator]
    names = {node.number: name for name, node in graph.outputs.items()}
    return sorted({name for node in nodes for name in _nearest(node, names)})


def _nearest(node: GraphNode, names: Mapping[int, str]) -> Iterable[Any]:
    if node.number in names:
        return [names[node.number]]
    return {name for reader, _ in node.readers for name in _nearest(reader, names)}
