"""The execution graph of a deployment: operators connected and cut into stages.

Every operator of every pipeline occurs once; operators are connected through the datasets.

Stage 0 reads sources and runs row-wise operators. A keyed operator runs in the stage after its inputs, because these
must first be exchanged by key, unless they are distributed by that key already and no timers wait for the rows of other shards;
row-wise operators after it run in the same stage. A graph of depth D runs as D + 1 stages.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from umbel.definitions.identities import input_of
from umbel.definitions.records import UPSERT, DatasetDefinition, SourceDefinition
from umbel.functions.fingerprint import fingerprint
from umbel.operators.index import Index, IndexMode
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.leaf import Leaf, leaves
from umbel.operators.operator import Keyed, Operator, Partition
from umbel.operators.reorder import Reorder

MAIN = "main"
"""The branch that always exists."""


@dataclass(eq=False)
class GraphNode:
    """An operator at its position in the graph.

    Args:
        operator: the operator it runs.
        parents: the nodes whose changes it reads.
        state_id: the id under which its state is stored; equal definitions over equal inputs share it.
        stage: the stage it runs in.
        number: its index in the graph.
        dataset: the dataset whose changes these are, if any.
        aliases: the state id of the version history behind each dataset leaf it reads, by leaf id.
    """

    operator: Operator
    parents: tuple[GraphNode, ...]
    state_id: str
    stage: int
    number: int
    dataset: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    readers: list[tuple[GraphNode, int]] = field(default_factory=list)
    is_logged: bool = False

    @cached_property
    def partition(self) -> Partition:
        """The columns that determine the shard of a row of its output, as `Operator.partition`."""
        return self.operator.partition(tuple(parent.partition for parent in self.parents))

    @property
    def is_keyed(self) -> bool:
        """Return True if its input rows are exchanged by key."""
        return isinstance(self.operator, Keyed)

    @property
    def is_timed(self) -> bool:
        """Return True if event time alone changes its results."""
        return isinstance(self.operator, Keyed) and self.operator.is_timed

    @property
    def is_final(self) -> bool:
        """Return True if its results wait for the watermark."""
        return isinstance(self.operator, Keyed) and self.operator.is_final

    @property
    def log(self) -> str:
        """The name of its change log."""
        return f"{self.dataset}-{self.state_id}" if self.dataset else self.state_id


@dataclass(slots=True)
class _Branch:
    """A branch while its datasets are added to the graph.

    Args:
        datasets: the branch's definitions, by name.
        joined: the names of the datasets on the right side of a join.
        names: the name of each in the graph.
    """

    datasets: Mapping[str, DatasetDefinition]
    joined: set[str]
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch's view of a graph.

    Args:
        names: of its datasets in the graph, by their names on the branch.
        outputs: their nodes.
    """

    names: Mapping[str, str]
    outputs: Mapping[str, GraphNode]


@dataclass(frozen=True, slots=True)
class KeyedSource:
    """A source of a dataset, with the key of its position.

    Args:
        dataset: its name in the graph.
        ordinal: its index among the dataset's sources.
        key: the key under which its position is stored; equal definitions have the same key on every branch, at any time.
        definition: as committed.
    """

    dataset: str
    ordinal: int
    key: str
    definition: SourceDefinition


class Graph:
    """The nodes of a set of datasets, parents first.

    Branches share the nodes of equal definitions. A dataset with a definition that differs from those of the branches
    before it is stored under a separate name, `name@digest`; `names` maps branch and name to it.

    Args:
        datasets: definitions, in any order; the inputs of each pipeline must be among them.
        others: the definitions of branches other than main.
        direct: keyed datasets computed by pipelines that are also fed rows directly.
    """

    def __init__(
        self,
        datasets: Iterable[DatasetDefinition],
        others: Mapping[str, Iterable[DatasetDefinition]] | None = None,
        direct: Container[str] = (),
    ) -> None:
        self._direct = direct
        self.datasets: dict[str, DatasetDefinition] = {}
        self.nodes: list[GraphNode] = []
        self.entries: dict[str, GraphNode] = {}
        self.outputs: dict[str, GraphNode] = {}
        self.names: dict[str, Mapping[str, str]] = {}
        self._inputs: dict[str, Sequence[str]] = {}
        self._placed: dict[str, str] = {}
        self._feeds: dict[str, str] = {}
        self._known: dict[tuple[str, tuple[int, ...]], GraphNode] = {}
        for branch, definitions in {MAIN: datasets, **(others or {})}.items():
            self.names[branch] = self._place_all({each.name: each for each in definitions})
        self._mark_logged()

    @property
    def depth(self) -> int:
        """The number of the last stage."""
        return max((node.stage for node in self.nodes), default=0)

    def stage(self, number: int, only: Container[str] | None = None) -> list[GraphNode]:
        """Return the keyed nodes of a stage, parents first.

        With `only`, just the nodes with these state ids.
        """
        found = [node for node in self.nodes if node.is_keyed and node.stage == number]
        return [node for node in found if only is None or node.state_id in only]

    def upstream(self, dataset: str) -> set[str]:
        """Return the datasets a dataset is computed from, including itself."""
        return {dataset}.union(*map(self.upstream, self._inputs[dataset]))

    def history_of(self, fresh: Container[str]) -> list[GraphNode]:
        """Return the nodes whose change logs the fresh nodes must be computed from.

        Fresh nodes are those with a state id in `fresh`; they are not returned.
        """
        return [
            node
            for node in self.nodes
            if node.state_id not in fresh
            and node.is_logged
            and any(leads_to(reader, fresh) for reader, _ in node.readers)
        ]

    def awaiting(self, fresh: Container[str]) -> frozenset[str]:
        """Return the fresh state ids that must be computed from other nodes' history.

        A fresh node awaits history if a parent is not fresh, or awaits history itself.
        """
        found = set[str]()
        for node in self.nodes:
            if node.state_id in fresh and any(
                each.state_id in found or each.state_id not in fresh for each in node.parents
            ):
                found.add(node.state_id)
        return frozenset(found)

    def without(self, state_ids: Container[str]) -> Graph:
        """Return the graph without some nodes and all their readers.

        Its node numbers differ from those of this graph.
        """
        graph = copy(self)
        left: dict[int, GraphNode] = {}
        for node in self.nodes:
            if node.state_id not in state_ids and all(each.number in left for each in node.parents):
                parents = tuple(left[each.number] for each in node.parents)
                left[node.number] = replace(node, parents=parents, number=len(left), readers=[])
        for number, node in left.items():
            readers = [(left[each.number], at) for each, at in self.nodes[number].readers if each.number in left]
            node.readers.extend(readers)
        graph.nodes = list(left.values())
        graph.entries = {name: left[node.number] for name, node in self.entries.items() if node.number in left}
        graph.outputs = {name: left[node.number] for name, node in self.outputs.items() if node.number in left}
        return graph

    def nodes_of(self, branch: str) -> list[GraphNode]:
        """Return the nodes upstream of a branch's datasets."""
        waiting = [self.outputs[name] for name in self.names.get(branch, {}).values()]
        found = set[int]()
        while waiting:
            node = waiting.pop()
            if node.number not in found:
                found.add(node.number)
                waiting.extend(node.parents)
        return [self.nodes[number] for number in sorted(found)]

    def sources_of(self, branch: str) -> list[KeyedSource]:
        """Return the sources that feed the datasets of a branch."""
        state_ids = {node.state_id for node in self.nodes_of(branch) if not node.parents}
        return [each for each in self.sources() if self.entries[each.dataset].state_id in state_ids]

    def branch(self, name: str) -> Branch:
        """Return a branch's view of the graph, empty for an unknown branch."""
        placed = self.names.get(name, {})
        return Branch(placed, {own: self.outputs[shared] for own, shared in placed.items()})

    def sources(self) -> Iterator[KeyedSource]:
        """Yield every source of every dataset."""
        for name, entry in self.entries.items():
            dataset = self.datasets[name]
            for ordinal, source in enumerate(dataset.sources):
                key = f"{dataset.name}@{dataset.version}/{source.position or ordinal}#{entry.state_id}"
                yield KeyedSource(name, ordinal, key, source)

    def _place_all(self, datasets: Mapping[str, DatasetDefinition]) -> Mapping[str, str]:
        branch = _Branch(datasets, {name for each in datasets.values() for name in _joined(each.output)})
        for name in datasets:
            self._position(name, branch)
        return branch.names

    def _position(self, name: str, branch: _Branch) -> str:
        """Add a dataset of a branch unless an equal one exists.

        Return its name in the graph.
        """
        if name in branch.names:
            return branch.names[name]
        dataset = branch.datasets[name]
        inputs = [self._position(each, branch) for each in sorted(_inputs(dataset.output))]
        is_indexed = dataset.online or dataset.offline or name in branch.joined
        identity = fingerprint(
            dataset.fingerprint, dataset.sources, dataset.ingestion, is_indexed, inputs, *_named(dataset)
        )
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

    def _entry(self, known: str, dataset: DatasetDefinition) -> GraphNode:
        appends = not dataset.schema.is_keyed and dataset.ingestion == UPSERT
        leaf = Leaf(dataset=dataset.name, version=dataset.version, columns=dataset.schema, appends=appends)
        state_id, read = fingerprint(dataset.fingerprint, *_named(dataset)), input_of(dataset)
        if self._feeds.setdefault(state_id, read) != read:  # fed by other sources on an earlier branch
            state_id = fingerprint(dataset.fingerprint, read)
        found = next((node for node in self.entries.values() if node.state_id == state_id), None)
        entry = found or self._add(leaf, (), state_id, None)
        if found is None:
            self.entries[known] = entry
        if not dataset.schema.is_keyed:
            entry.dataset = dataset.name
            return entry
        index = Index(parents=(leaf,), dataset=dataset.name, mode=IndexMode(dataset.ingestion))
        return self._add(index, (entry,), None, dataset.name)

    def _derived(self, dataset: DatasetDefinition, output: Operator, branch: _Branch, is_indexed: bool) -> GraphNode:
        node = self._connect(output, branch.names)
        made, declared = output.schema, dataset.schema
        if not output.is_terminal and (made.keys, made.names) != (declared.keys, declared.names):
            # readers of the dataset, its state or its log use the declared schema
            output = Reorder(parents=(output,), columns=declared)
            node = self._add(output, (node,), None, None)
        if dataset.name in self._direct:
            leaf = Leaf(dataset=dataset.name, version=dataset.version, columns=declared)
            entry = self._add(leaf, (), fingerprint("direct", node.state_id, dataset.fingerprint), None)
            self.entries[dataset.name] = entry
            both = Index(parents=(output, leaf), dataset=dataset.name, mode=IndexMode.OVERLAY)
            return self._add(both, (node, entry), None, dataset.name)
        if dataset.schema.is_keyed and is_indexed and not output.is_terminal:
            return self._add(
                Index(parents=(output,), dataset=dataset.name, mode=IndexMode.CHANGES), (node,), None, dataset.name
            )
        if node.dataset is None:
            node.dataset = dataset.name
        return node

    def _connect(self, operator: Operator, names: Mapping[str, str]) -> GraphNode:
        if isinstance(operator, Leaf):
            return self.outputs[names[operator.dataset]]
        parents = tuple(self._connect(parent, names) for parent in operator.parents)
        leaves = {parent.id: node.state_id for parent, node in zip(operator.parents, parents, strict=True)}
        return self._add(operator, parents, None, None, leaves)

    def _add(
        self,
        operator: Operator,
        parents: tuple[GraphNode, ...],
        state_id: str | None,
        dataset: str | None,
        aliases: Mapping[str, str] | None = None,
    ) -> GraphNode:
        key = (operator.id, tuple(parent.number for parent in parents))
        if key in self._known and state_id is None:
            return self._known[key]
        own = state_id or fingerprint(operator.id, tuple(parent.state_id for parent in parents))
        node = GraphNode(operator, parents, own, _stage(operator, parents), len(self.nodes), dataset, aliases or {})
        self.nodes.append(node)
        self._known[key] = node
        for position, parent in enumerate(parents):
            parent.readers.append((node, position))
        return node

    def _mark_logged(self) -> None:
        """Mark the nodes to log: datasets, and the history sources of terminal aggregates."""
        for node in self.outputs.values():
            node.is_logged = not node.operator.is_terminal
        for node in self.nodes:
            if node.operator.is_terminal:
                for source in history_sources(node):
                    source.is_logged = True


def _named(dataset: DatasetDefinition) -> Sequence[str]:
    return [dataset.feed] if dataset.feed else []


def _stage(operator: Operator, parents: tuple[GraphNode, ...]) -> int:
    """Return the stage of an operator.

    It is that of its parents, or the next one if rows must change shards in between, or if its timers fire up to the newest row
    of all shards.
    """
    if not isinstance(operator, Keyed):
        return max((parent.stage for parent in parents), default=0)
    return max(
        parent.stage + (parent.stage == 0 or parent.partition != columns or operator.is_timed)
        for parent, columns in zip(parents, operator.exchange(), strict=True)
    )


def leads_to(node: GraphNode, fresh: Container[str]) -> bool:
    """Return whether a node is fresh, or unlogged and read by fresh ones."""
    through = not node.is_keyed and not node.is_logged
    return node.state_id in fresh or (through and any(leads_to(reader, fresh) for reader, _ in node.readers))


def history_sources(node: GraphNode) -> Iterator[GraphNode]:
    """Yield the nearest logged or loggable nodes above a node.

    The node's input can be recomputed from these.
    """
    for parent in node.parents:
        if parent.is_keyed or not parent.parents or parent.is_logged:
            yield parent
        else:
            yield from history_sources(parent)


def _inputs(operator: Operator | None) -> set[str]:
    return {leaf.dataset for leaf in leaves(operator)}


def _joined(operator: Operator | None) -> Iterator[str]:
    """Yield the datasets on the right side of a join."""
    if operator is None:
        return
    if isinstance(operator, AsOfJoin | TableJoin):
        yield from (leaf.dataset for leaf in leaves(operator.parents[1]))
    for parent in operator.parents:
        yield from _joined(parent)
