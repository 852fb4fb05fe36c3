"""The graph of a deployment: every operator of every pipeline once, connected through the datasets and cut into stages.

Stage 0 reads and runs what is row-wise. A keyed operator starts at the stage after its inputs, because these must first be
exchanged by key; row-wise operators after it ride along in its stage. A graph of depth D runs as D + 1 stages.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from umbel.errors import InvalidValue
from umbel.operators.fingerprint import fingerprint
from umbel.operators.index import Index, Mode
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Keyed, Operator, RowWise
from umbel.plan.definitions import DatasetDefinition


@dataclass(eq=False, slots=True)
class Node:
    """An operator in its place.

    Args:
        operator: what it computes.
        parents: where its changes come from.
        owner: the id under which its state is kept; equal definitions over equal inputs share it.
        stage: the stage it runs in.
        number: its place in the graph.
        dataset: the dataset whose changes these are, if any.
        aliases: the owner of the timeline behind each dataset leaf it reads by its id.
    """

    operator: Operator
    parents: tuple[Node, ...]
    owner: str
    stage: int
    number: int
    dataset: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    readers: list[tuple[Node, int]] = field(default_factory=list)
    is_logged: bool = False

    @property
    def is_keyed(self) -> bool:
        """Whether its rows are exchanged by key before it runs."""
        return isinstance(self.operator, Keyed)

    @property
    def log(self) -> str:
        """The name of its change log."""
        return f"{self.dataset}-{self.owner}" if self.dataset else self.owner


class Graph:
    """The nodes of a set of datasets, parents first.

    Args:
        datasets: definitions, in any order; the inputs of each pipeline must be among them.
    """

    def __init__(self, datasets: Iterable[DatasetDefinition]) -> None:
        self.datasets = {each.name: each for each in datasets}
        self.nodes: list[Node] = []
        self.entries: dict[str, Node] = {}
        self.outputs: dict[str, Node] = {}
        self._known: dict[tuple[str, tuple[int, ...]], Node] = {}
        joined = {name for each in self.datasets.values() for name in _joined(each.output)}
        for each in self.datasets.values():
            self._place(each, joined, ())
        self._mark_logged()

    @property
    def depth(self) -> int:
        """The number of the last stage."""
        return max((node.stage for node in self.nodes), default=0)

    def stage(self, number: int, only: Container[str] | None = None) -> list[Node]:
        """Return the keyed nodes of a stage, parents first; only those with these owners, if any are given."""
        found = [node for node in self.nodes if node.is_keyed and node.stage == number]
        return [node for node in found if only is None or node.owner in only]

    def terminal(self, dataset: str) -> Node | None:
        """Return the aggregate that answers for a dataset at read time, if it has one."""
        node = self.outputs[dataset]
        return node if node.operator.is_terminal else None

    def upstream(self, dataset: str) -> set[str]:
        """Return the datasets a dataset is computed from, itself included."""
        return {dataset}.union(*(self.upstream(name) for name in _inputs(self.datasets[dataset].output)))

    def _place(self, dataset: DatasetDefinition, joined: set[str], above: tuple[str, ...]) -> Node:
        if dataset.name in self.outputs:
            return self.outputs[dataset.name]
        if dataset.name in above:
            raise InvalidValue(f"datasets depend on each other in a cycle: {' -> '.join((*above, dataset.name))}")
        for name in _inputs(dataset.output):
            self._place(self.datasets[name], joined, (*above, dataset.name))
        node = self._entry(dataset) if dataset.output is None else self._derived(dataset, dataset.output, joined)
        self.outputs[dataset.name] = node
        return node

    def _entry(self, dataset: DatasetDefinition) -> Node:
        leaf = Leaf(dataset=dataset.name, version=dataset.version, columns=dataset.schema, appends=True)
        entry = self._add(leaf, (), fingerprint(dataset.fingerprint), None)
        self.entries[dataset.name] = entry
        if not dataset.schema.is_keyed:
            entry.dataset = dataset.name
            return entry
        index = Index(parents=(leaf,), dataset=dataset.name, mode=Mode(dataset.ingestion))
        return self._add(index, (entry,), None, dataset.name)

    def _derived(self, dataset: DatasetDefinition, output: Operator, joined: set[str]) -> Node:
        node = self._connect(output)
        indexed = dataset.online or dataset.offline or dataset.name in joined
        if dataset.schema.is_keyed and indexed and not output.is_terminal:
            return self._add(
                Index(parents=(output,), dataset=dataset.name, mode=Mode.CHANGES), (node,), None, dataset.name
            )
        if node.dataset is None:
            node.dataset = dataset.name
        return node

    def _connect(self, operator: Operator) -> Node:
        if isinstance(operator, Leaf):
            return self.outputs[operator.dataset]
        parents = tuple(self._connect(parent) for parent in operator.parents)
        leaves = {parent.id: node.owner for parent, node in zip(operator.parents, parents, strict=True)}
        return self._add(operator, parents, None, None, leaves)

    def _add(
        self,
        operator: Operator,
        parents: tuple[Node, ...],
        owner: str | None,
        dataset: str | None,
        aliases: Mapping[str, str] | None = None,
    ) -> Node:
        key = (operator.id, tuple(parent.number for parent in parents))
        if key in self._known and owner is None:
            return self._known[key]
        own = owner or fingerprint(operator.id, tuple(parent.owner for parent in parents))
        stage = max((parent.stage for parent in parents), default=0) + isinstance(operator, Keyed)
        node = Node(operator, parents, own, stage, len(self.nodes), dataset, aliases or {})
        self.nodes.append(node)
        self._known[key] = node
        for place, parent in enumerate(parents):
            parent.readers.append((node, place))
        return node

    def _mark_logged(self) -> None:
        """Log what history is asked of: datasets, and keyed operators that feed an aggregate within a pipeline."""
        for node in self.outputs.values():
            node.is_logged = not node.operator.is_terminal
        for node in self.nodes:
            if node.operator.is_terminal:
                for source in history_sources(node):
                    source.is_logged = True


def history_sources(node: Node) -> Iterator[Node]:
    """Yield the nearest logged or loggable nodes above a node: from these its input can be computed again."""
    for parent in node.parents:
        if parent.is_keyed or not parent.parents or parent.is_logged:
            yield parent
        else:
            yield from history_sources(parent)


def _leaves(operator: Operator | None) -> Iterator[Leaf]:
    if isinstance(operator, Leaf):
        yield operator
    elif operator is not None:
        for parent in operator.parents:
            yield from _leaves(parent)


def _inputs(operator: Operator | None) -> set[str]:
    return {leaf.dataset for leaf in _leaves(operator)}


def _joined(operator: Operator | None) -> Iterator[str]:
    """Yield the datasets that are the right side of a join."""
    if operator is None:
        return
    if isinstance(operator, AsOfJoin | TableJoin):
        yield from (leaf.dataset for leaf in _leaves(operator.parents[1]))
    for parent in operator.parents:
        yield from _joined(parent)


def row_wise(node: Node) -> bool:
    """Return whether a node looks at one row at a time."""
    return isinstance(node.operator, RowWise)
