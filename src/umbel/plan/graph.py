"""The graph of a deployment: every operator of every pipeline once, connected through the datasets and cut into stages.

Stage 0 reads and runs what is row-wise. A keyed operator starts at the stage after its inputs, because these must first be
exchanged by key; row-wise operators after it ride along in its stage. A graph of depth D runs as D + 1 stages.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from umbel.errors import InvalidValue
from umbel.operators.fingerprint import fingerprint
from umbel.operators.index import Index, Mode
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Keyed, Operator, RowWise
from umbel.plan.definitions import UPSERT, DatasetDefinition, SourceDefinition

MAIN = "main"
"""The branch that always exists."""


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


@dataclass(slots=True)
class _Branch:
    """A branch while its datasets are placed.

    Args:
        datasets: its definitions, by name.
        joined: the names of those that are the right side of a join.
        names: under which name of the graph each is found.
    """

    datasets: Mapping[str, DatasetDefinition]
    joined: set[str]
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """What a branch sees of a graph.

    Args:
        names: of its datasets in the graph, by their names on the branch.
        outputs: their nodes.
    """

    names: Mapping[str, str]
    outputs: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class KeyedSource:
    """A source of a dataset.

    Args:
        dataset: its name in the graph.
        ordinal: its place among the dataset's sources.
        key: under which its position is kept; that of an equal definition is the same on every branch, at any time.
        definition: as committed.
    """

    dataset: str
    ordinal: int
    key: str
    definition: SourceDefinition


class Graph:
    """The nodes of a set of datasets, parents first.

    Branches share the nodes of what they define alike. A dataset that is defined otherwise on another branch than on those
    before it is found under a name of its own, `name@digest`; `names` tells which, by branch and name.

    Args:
        datasets: definitions, in any order; the inputs of each pipeline must be among them.
        others: likewise, of branches other than main.
    """

    def __init__(
        self,
        datasets: Iterable[DatasetDefinition],
        others: Mapping[str, Iterable[DatasetDefinition]] | None = None,
    ) -> None:
        self.datasets: dict[str, DatasetDefinition] = {}
        self.nodes: list[Node] = []
        self.entries: dict[str, Node] = {}
        self.outputs: dict[str, Node] = {}
        self.names: dict[str, Mapping[str, str]] = {}
        self._inputs: dict[str, Sequence[str]] = {}
        self._placed: dict[str, str] = {}
        self._feeds: dict[str, str] = {}
        self._known: dict[tuple[str, tuple[int, ...]], Node] = {}
        for branch, definitions in {MAIN: datasets, **(others or {})}.items():
            self.names[branch] = self._place_all({each.name: each for each in definitions})
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
        return {dataset}.union(*map(self.upstream, self._inputs[dataset]))

    def history_of(self, fresh: Container[str]) -> list[Node]:
        """Return the nodes not among `fresh` owners whose change logs those must be computed from."""
        return [
            node
            for node in self.nodes
            if node.owner not in fresh
            and node.is_logged
            and any(_leads_to(reader, fresh) for reader, _ in node.readers)
        ]

    def branch(self, name: str) -> Branch:
        """Return what a branch sees of it; nothing if there is no such branch."""
        placed = self.names.get(name, {})
        return Branch(placed, {own: self.outputs[shared] for own, shared in placed.items()})

    def sources(self) -> Iterator[KeyedSource]:
        """Yield every source of every dataset."""
        for name, entry in self.entries.items():
            dataset = self.datasets[name]
            for ordinal, source in enumerate(dataset.sources):
                key = f"{dataset.name}@{dataset.version}/{ordinal}#{entry.owner}"
                yield KeyedSource(name, ordinal, key, source)

    def _place_all(self, datasets: Mapping[str, DatasetDefinition]) -> Mapping[str, str]:
        branch = _Branch(datasets, {name for each in datasets.values() for name in _joined(each.output)})
        for name in datasets:
            self._place(name, branch, ())
        return branch.names

    def _place(self, name: str, branch: _Branch, above: tuple[str, ...]) -> str:
        """Place a dataset of a branch, if its like is not there; return its name in the graph."""
        if name in branch.names:
            return branch.names[name]
        if name in above:
            raise InvalidValue(f"datasets depend on each other in a cycle: {' -> '.join((*above, name))}")
        dataset = branch.datasets[name]
        inputs = [self._place(each, branch, (*above, name)) for each in sorted(_inputs(dataset.output))]
        is_indexed = dataset.online or dataset.offline or name in branch.joined
        identity = fingerprint(dataset.fingerprint, dataset.sources, dataset.ingestion, is_indexed, inputs)
        known = self._placed.get(identity)
        if known is None:
            known = name if name not in self.outputs else f"{name}@{identity[:8]}"
            self.datasets[known], self._inputs[known], self._placed[identity] = dataset, inputs, known
            output = dataset.output
            self.outputs[known] = (
                self._entry(known, dataset) if output is None else self._derived(dataset, output, branch, is_indexed)
            )
        branch.names[name] = known
        return known

    def _entry(self, known: str, dataset: DatasetDefinition) -> Node:
        appends = not dataset.schema.is_keyed and dataset.ingestion == UPSERT
        leaf = Leaf(dataset=dataset.name, version=dataset.version, columns=dataset.schema, appends=appends)
        owner, read = fingerprint(dataset.fingerprint), fingerprint(dataset.sources, dataset.ingestion)
        if self._feeds.setdefault(owner, read) != read:  # the like of it is fed otherwise, on a branch before
            owner = fingerprint(dataset.fingerprint, read)
        found = next((node for node in self.entries.values() if node.owner == owner), None)
        entry = found or self._add(leaf, (), owner, None)
        if found is None:
            self.entries[known] = entry
        if not dataset.schema.is_keyed:
            entry.dataset = dataset.name
            return entry
        index = Index(parents=(leaf,), dataset=dataset.name, mode=Mode(dataset.ingestion))
        return self._add(index, (entry,), None, dataset.name)

    def _derived(self, dataset: DatasetDefinition, output: Operator, branch: _Branch, is_indexed: bool) -> Node:
        node = self._connect(output, branch.names)
        if dataset.schema.is_keyed and is_indexed and not output.is_terminal:
            return self._add(
                Index(parents=(output,), dataset=dataset.name, mode=Mode.CHANGES), (node,), None, dataset.name
            )
        if node.dataset is None:
            node.dataset = dataset.name
        return node

    def _connect(self, operator: Operator, names: Mapping[str, str]) -> Node:
        if isinstance(operator, Leaf):
            return self.outputs[names[operator.dataset]]
        parents = tuple(self._connect(parent, names) for parent in operator.parents)
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


def _leads_to(node: Node, fresh: Container[str]) -> bool:
    through = not node.is_keyed and not node.is_logged
    return node.owner in fresh or (through and any(_leads_to(reader, fresh) for reader, _ in node.readers))


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
