"""Event time between batches: watermarks of the sources, frontiers of the windows, and the clocks operators get from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from umbel.operators.operator import Clock, Keyed
from umbel.plan.graph import Graph, Node

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class EventTime:
    """What is known of event time after a batch.

    Args:
        newest: the largest event time taken from each source, by its key.
        frontiers: the largest event time each timed node has read, or the watermark its results have waited for, by the owner
            of its state.
        ended: the keys of the sources that are at their end.
    """

    newest: dict[str, datetime] = field(default_factory=dict)
    frontiers: dict[str, datetime] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()

    @classmethod
    def of(cls, state: Mapping[str, Any], ended: Iterable[str] = ()) -> Self:
        """Return what `state` wrote, when some sources have ended."""
        return cls(_instants(state.get("newest", {})), _instants(state.get("frontiers", {})), frozenset(ended))

    @property
    def state(self) -> dict[str, Any]:
        """Plain data."""
        return {"newest": _plain(self.newest), "frontiers": _plain(self.frontiers)}

    def saw(self, source: str, newest: datetime | None) -> None:
        """Note the largest event time taken from a source."""
        if newest is not None:
            self.newest[source] = max(newest, self.newest.get(source, newest))

    def watermarks(self, graph: Graph) -> dict[str, datetime]:
        """Return the watermark of each source that has had rows: its newest less its disorder."""
        return {
            each.key: self.newest[each.key] - timedelta(microseconds=each.definition.disorder)
            for each in graph.sources()
            if each.key in self.newest
        }

    def clocks(self, graph: Graph) -> dict[int, Clock]:
        """Return the clock of every keyed node."""
        reached = self.watermarks(graph)
        marks: dict[int, datetime | None] = {}
        clocks = {}
        for node in graph.nodes:
            mark = self._watermark(graph, node, reached, marks)
            parents = tuple(marks[parent.number] for parent in node.parents)
            clocks[node.number] = Clock(mark, self.frontiers.get(node.owner), parents, waits=True)
            marks[node.number] = self._passed_on(node, mark)
        return {node.number: clocks[node.number] for node in graph.nodes if node.is_keyed}

    def frontier_numbers(self, graph: Graph) -> dict[int, datetime]:
        """Return the frontiers by node number."""
        return {node.number: self.frontiers[node.owner] for node in graph.nodes if node.owner in self.frontiers}

    def move_frontiers(self, graph: Graph, frontiers: Mapping[int, datetime]) -> None:
        """Take over frontiers by node number."""
        self.frontiers.update({graph.nodes[number].owner: instant for number, instant in frontiers.items()})

    def _passed_on(self, node: Node, mark: datetime | None) -> datetime | None:
        """Return the watermark of what comes out of a node whose inputs have reached `mark`."""
        operator = node.operator
        frontier = self.frontiers.get(node.owner)
        if isinstance(operator, Keyed) and operator.is_timed:  # its results come out only when it has read so far
            mark = None if mark is None or frontier is None else min(mark, frontier)
        return None if mark is None or operator.delay is None else mark - operator.delay * MICROSECOND

    def _watermark(
        self, graph: Graph, node: Node, reached: Mapping[str, datetime], marks: Mapping[int, datetime | None]
    ) -> datetime | None:
        if node.parents:
            return _least(marks[parent.number] for parent in node.parents)
        keys = {each.key for each in graph.sources() if graph.entries[each.dataset] is node}
        if keys and keys <= self.ended:  # all there ever was has been read
            return max((self.newest[key] for key in keys if key in self.newest), default=None)
        return _least(reached.get(key) for key in keys - self.ended)


def is_due(graph: Graph, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether final results may come out with the batch after one, though it has no rows: event time has moved."""
    return before != after and any(isinstance(node.operator, Keyed) and node.operator.is_final for node in graph.nodes)


def _least(instants: Iterable[datetime | None]) -> datetime | None:
    known = list(instants)
    return None if not known or any(instant is None for instant in known) else min(filter(None, known))


def _instants(plain: Mapping[str, int]) -> dict[str, datetime]:
    return {key: EPOCH + value * MICROSECOND for key, value in plain.items()}


def _plain(instants: Mapping[str, datetime]) -> dict[str, int]:
    return {key: (instant - EPOCH) // MICROSECOND for key, instant in instants.items()}
