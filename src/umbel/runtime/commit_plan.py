"""The plan of a commit: its effects, by its own rules, without changing anything.

The size of the history that a backfill would read comes from metadata: the tables of the change logs, the indexes of ingest logs,
listings of files, offsets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from umbel.connectors.splits import SourceSize
from umbel.definitions.differences import dataset_differences, featureset_differences
from umbel.definitions.records import Definitions, operator_signature
from umbel.errors import NotSupported, Transient
from umbel.graph.graph import MAIN, Graph, GraphNode
from umbel.runtime.changelogs import Dues
from umbel.runtime.commit import Proposal, propose
from umbel.runtime.deployment import JOB, RETAINED_FOR, Deployment
from umbel.runtime.maintenance import fed
from umbel.runtime.rates import LOGS, ROW_BYTES, SOURCES, BackfillRate, rate
from umbel.runtime.sources import OpenedSource, open_sources
from umbel.runtime.switching import must_wait
from umbel.runtime.unlogged import unlogged


@dataclass(frozen=True, slots=True)
class PlannedHistory:
    """PlannedHistory that a backfill would read.

    Args:
        inputs: the datasets it is read from.
        rows: of it; None if a source does not tell.
        bytes: of it, as stored; None if a source does not tell.
        seconds: estimated, None if neither rows nor bytes are known.
    """

    inputs: list[str]
    rows: int | None
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PlannedDeletion:
    """Data that is deleted because no branch computes it any more.

    Args:
        rows: of its change logs; its state is deleted as well.
        bytes: of its change logs.
        after: seconds between the first batch without it and the deletion; None if a source has fed it: such rows are retained.
    """

    rows: int
    bytes: int
    after: float | None


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """The effect of a commit on an object.

    Args:
        kind: "dataset", "pipeline" or "featureset"; a pipeline has the name of its dataset.
        name: of the object.
        change: "new", "changed", "unchanged" or "removed".
        details: what differs, as words.
        rebuilt: the history it would be computed from, None if its state is there or there is no history.
        deleted: the data of it that would be deleted, None for none.
    """

    kind: str
    name: str
    change: str
    details: list[str] = field(default_factory=list)
    rebuilt: PlannedHistory | None = None
    deleted: PlannedDeletion | None = None


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The effects of a commit.

    Args:
        branch: the branch.
        revision: its last revision, 0 for none.
        serving: the revision that serves.
        waits: whether the revision before would serve until a backfill has caught up.
        objects: of the branch, before and after.
        history: all that would be read, None for nothing; what several datasets are computed from counts once.
        log_rate: by which the time of reading change logs is estimated.
        source_rate: likewise of sources that are read anew.
        notes: for people.
    """

    branch: str
    revision: int
    serving: int
    waits: bool
    objects: list[PlannedObject]
    history: PlannedHistory | None
    log_rate: BackfillRate
    source_rate: BackfillRate
    notes: list[str]


def plan(
    deployment: Deployment,
    definitions: Definitions,
    *,
    branch: str = MAIN,
    incremental: bool = False,
    backfill: bool = True,
    base: int | None = None,
) -> CommitPlan:
    """Return the effects of a commit; arguments and errors are those of `commit`."""
    found = propose(deployment, definitions, branch=branch, incremental=incremental, backfill=backfill, base=base)
    now = deployment.graph(deployment.catalog.latest())
    rates = rate(deployment.catalog, LOGS), rate(deployment.catalog, SOURCES)
    read = _Histories(deployment, branch, now, found.graph, *rates)
    removed = _Deletions(deployment, branch, now, found.graph)
    objects = [*_datasets(found, read, removed), *_featuresets(found)]
    inputs = [each.rebuilt.inputs for each in objects if each.rebuilt]
    total = read.total() if inputs else None
    serving = deployment.catalog.serving(deployment.catalog.latest()).get(branch, 0)
    waits = must_wait(deployment, found.graph, branch)
    return CommitPlan(branch, found.last, serving, waits, objects, total, *rates, read.notes)


def _datasets(found: Proposal, read: _Histories, removed: _Deletions) -> Iterator[PlannedObject]:
    old, new = found.before.datasets, found.after.datasets
    for name in dict.fromkeys([*new, *old]):
        change = _change(found, name)
        details = dataset_differences(old[name], new[name]) if change == "changed" else []
        yield PlannedObject("dataset", name, change, details, read.of(name), removed.of(name))
        before, after = (each[name].output if name in each else None for each in (old, new))
        if before is None and after is None:
            continue
        if before is None or after is None:
            yield PlannedObject("pipeline", name, "new" if before is None else "removed")
        else:
            is_same = operator_signature(before) == operator_signature(after)
            yield PlannedObject("pipeline", name, "unchanged" if is_same else "changed")


def _featuresets(found: Proposal) -> Iterator[PlannedObject]:
    old, new = found.before.featuresets, found.after.featuresets
    for name in dict.fromkeys([*new, *old]):
        change = _change(found, name)
        details = featureset_differences(old[name], new[name]) if change == "changed" else []
        yield PlannedObject("featureset", name, change, details or (["metadata"] if change == "changed" else []))


def _change(found: Proposal, name: str) -> str:
    return next(each for each in ("new", "changed", "removed", "unchanged") if name in found.difference[each])


class _Histories:
    """The history that the new operators of a branch would be computed from.

    Args:
        deployment: the deployment.
        branch: the branch.
        now: the graph in force.
        after: the graph with the commit.
        log_rate: for estimates.
        source_rate: likewise.
    """

    def __init__(
        self,
        deployment: Deployment,
        branch: str,
        now: Graph,
        after: Graph,
        log_rate: BackfillRate,
        source_rate: BackfillRate,
    ) -> None:
        self._deployment, self._branch, self._graph = deployment, branch, after
        self._log_rate, self._source_rate = log_rate.rows_per_second, source_rate.rows_per_second
        self.notes: list[str] = []
        self._fresh = self._new(now)
        self._logs: dict[str, tuple[int, int]] = {}
        self._sources = self._new_sources(now)
        self._sizes: dict[str, SourceSize] = {}
        self._counts = deployment.catalog.counts()

    def of(self, name: str) -> PlannedHistory | None:
        """Return the history that a dataset would be computed from, None for none."""
        placed = self._graph.names[self._branch].get(name)
        if placed is None:
            return None
        upstream = _upstream(self._graph.outputs[placed])
        fresh = {node.state_id for node in upstream} & self._fresh
        logs = self._graph.history_of(fresh)
        datasets = self._graph.upstream(placed)
        return self._summed(logs, [each for each in self._sources.values() if each.dataset in datasets])

    def total(self) -> PlannedHistory | None:
        """Return all history that would be read, each input once."""
        return self._summed(self._graph.history_of(self._fresh), list(self._sources.values()))

    def _new(self, now: Graph) -> set[str]:
        """Return the state ids of the branch's operators that would be computed."""
        last = self._deployment.catalog.progress(JOB, sys.maxsize)
        dues: Dues = last.state.get("logs", {}) if last is not None else {}
        known = {node.state_id for node in now.nodes}
        fresh = {node.state_id for node in self._graph.nodes if node.state_id not in known}
        try:
            return fresh | unlogged(now, self._graph, fresh, dues)
        except NotSupported as error:
            self.notes.append(f"a change log begins without history: {error.message}")
            return fresh

    def _new_sources(self, now: Graph) -> dict[str, OpenedSource]:
        known = {each.key for each in now.sources()}
        own = {each.key for each in self._graph.sources_of(self._branch)} - known
        opened = open_sources(self._deployment.directory, self._graph)
        return {each.key: each for each in opened if each.key in own}

    def _summed(self, logs: Iterable[GraphNode], sources: Iterable[OpenedSource]) -> PlannedHistory | None:
        inputs, rows, size, seconds = list[str](), _Sum[int](0), _Sum[int](0), _Sum[float](0.0)
        for node in logs:
            found, bytes_ = self._measured(node)
            rows.add(found)
            size.add(bytes_)
            seconds.add(found / self._log_rate)
            inputs += [node.dataset or node.log] if found else []
        for each in sources:
            of_source = self._size(each)
            rows.add(of_source.rows)
            size.add(of_source.bytes)
            guessed = None if of_source.bytes is None else of_source.bytes // ROW_BYTES
            work = of_source.rows if of_source.rows is not None else guessed
            seconds.add(None if work is None else work / self._source_rate)
            is_empty = 0 in (of_source.rows, of_source.bytes)
            inputs += [] if is_empty else [f"the source of {self._graph.datasets[each.dataset].name}"]
        if not inputs:
            return None
        return PlannedHistory(list(dict.fromkeys(inputs)), rows.value, size.value, seconds.value)

    def _measured(self, node: GraphNode) -> tuple[int, int]:
        if node.log not in self._logs:
            self._logs[node.log] = self._deployment.changes.measure(node)
        return self._logs[node.log]

    def _size(self, each: OpenedSource) -> SourceSize:
        if each.key not in self._sizes:
            try:
                with each.requesting():
                    found = each.reading.measure(None)
            except Transient as error:
                self.notes.append(
                    f"the source of {each.dataset} does not answer, its rows are not known: {error!s:.300}"
                )
                found = SourceSize()
            if found.rows is None:  # as many as it had so far, if it is read anew
                had = self._counts.get((self._graph.datasets[each.dataset].name, "rows"))
                found = SourceSize(had, found.bytes) if had and found.bytes != 0 else found
            self._sizes[each.key] = found
        return self._sizes[each.key]


Number = TypeVar("Number", int, float)


class _Sum(Generic[Number]):
    """A sum that is unknown once a part of it is."""

    def __init__(self, value: Number) -> None:
        self.value: Number | None = value

    def add(self, part: Number | None) -> None:
        self.value = None if self.value is None or part is None else self.value + part


class _Deletions:
    """The data that would be deleted after a commit.

    Args:
        deployment: the deployment.
        branch: the branch.
        now: the graph in force.
        after: the graph with the commit.
    """

    def __init__(self, deployment: Deployment, branch: str, now: Graph, after: Graph) -> None:
        self._deployment, self._graph, self._names = deployment, now, now.names.get(branch, {})
        self._retained = {node.state_id for node in after.nodes}
        self._fed = {node.state_id for node in fed(now)}

    def of(self, name: str) -> PlannedDeletion | None:
        """Return the data of a dataset that would be deleted, None for none."""
        if name not in self._names:
            return None
        output = self._graph.outputs[self._names[name]]
        gone = [node for node in _upstream(output) if node.state_id not in self._retained]
        if output.state_id in self._fed and output.state_id not in self._retained:
            rows, size = self._deployment.changes.measure(output)
            return PlannedDeletion(rows, size, None)
        mine = [node for node in gone if node.state_id not in self._fed and node.dataset in (None, name)]
        sizes = [self._deployment.changes.measure(node) for node in mine if node.is_logged]
        return PlannedDeletion(sum(r for r, _ in sizes), sum(b for _, b in sizes), RETAINED_FOR) if mine else None


def _upstream(output: GraphNode) -> list[GraphNode]:
    """Return a node and all nodes upstream of it."""
    found, waiting = dict[int, GraphNode](), [output]
    while waiting:
        node = waiting.pop()
        if node.number not in found:
            found[node.number] = node
            waiting.extend(node.parents)
    return list(found.values())


def as_plain(made: CommitPlan) -> Mapping[str, Any]:
    """Return a plan as JSON-compatible data."""
    return asdict(made)
