"""Switching a branch to its last commit once its backfill has caught up.

A commit whose datasets need existing data waits: queries on its branch are answered by the commit before, whose operators go
on running. Once the backfill is complete, the worker makes one more commit, of the same definitions: from that revision on
every server answers by it, for all datasets at once.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from umbel.catalog.catalog import Catalog
from umbel.catalog.switching import switch
from umbel.connectors.credentials import provide_vault
from umbel.definitions.records import Definitions
from umbel.errors import Transient
from umbel.graph.graph import Graph, GraphNode, KeyedSource
from umbel.runtime.deployment import JOB, Deployment, replaced
from umbel.runtime.plans import BatchPlan
from umbel.runtime.source_lags import source_lags
from umbel.runtime.sources import open_sources

EVERYTHING = 1 << 60
"""A budget in bytes that no source exhausts."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A branch whose last commit does not serve yet.

    Args:
        branch: its name.
        head: the last commit.
        serving: the commit that serves, 0 for none.
    """

    branch: str
    head: int
    serving: int


@lru_cache(maxsize=4)
def waiting_branches(catalog: Catalog, revision: int) -> Sequence[Waiting]:
    """Return the branches whose last commit did not serve yet as of a revision.

    That does not change later.
    """
    serving = catalog.serving(revision)
    heads = catalog.heads(revision)
    return [Waiting(branch, head, serving[branch]) for branch, head in heads.items() if serving[branch] != head]


def serving_on(deployment: Deployment, branch: str) -> tuple[Definitions, Mapping[str, str]]:
    """Return the definitions that serve on a branch, and their datasets' names in the graph.

    Where nothing serves yet, they are those of its last commit.

    Raises:
        UnknownName: there is no such branch.
    """
    head, latest = deployment.catalog.head(branch), deployment.catalog.latest()
    revision = deployment.catalog.serving(latest).get(branch) or head
    names = deployment.graph(latest).names
    return deployment.definitions(revision), names.get(branch if revision == head else replaced(branch), {})


def names_on(deployment: Deployment, branch: str) -> dict[str, list[str]]:
    """Return the names in the graph of each dataset of a branch.

    There are two during a backfill: that of the last commit, and that of what serves.

    Raises:
        UnknownName: there is no such branch.
    """
    _, serving = serving_on(deployment, branch)
    committed = deployment.graph(deployment.catalog.latest()).names.get(branch, {})
    return {
        name: list(dict.fromkeys(each[name] for each in (committed, serving) if name in each))
        for name in {**committed, **serving}
    }


def must_wait(deployment: Deployment, graph: Graph, branch: str) -> bool:
    """Return whether datasets of a branch need data that they do not have.

    Args:
        deployment: the deployment.
        graph: with the branch's new definitions.
        branch: its name.
    """
    known = _serving_owners(deployment)
    fresh = [node for node in graph.nodes_of(branch) if node.state_id not in known]
    return bool(fresh) and _have_rows(deployment, graph, _entries(fresh))


def _serving_owners(deployment: Deployment) -> set[str]:
    """Return the state ids of the operators that answer any branch now."""
    latest = deployment.catalog.latest()
    graph, serving = deployment.graph(latest), deployment.catalog.serving(latest)
    answering = (replaced(each) if replaced(each) in graph.names else each for each in serving)
    return {node.state_id for branch in answering for node in graph.nodes_of(branch)}


def _entries(nodes: list[GraphNode]) -> set[str]:
    """Return the state ids of the source nodes upstream of some nodes."""
    waiting, found, seen = list(nodes), set[str](), set[int]()
    while waiting:
        node = waiting.pop()
        if node.number not in seen:
            seen.add(node.number)
            waiting.extend(node.parents)
            found.update(() if node.parents else (node.state_id,))
    return found


def _have_rows(deployment: Deployment, graph: Graph, entries: set[str]) -> bool:
    counts = deployment.catalog.counts()
    taken = {dataset.partition("@")[0] for (dataset, what), count in counts.items() if what == "rows" and count}
    provide_vault(deployment.vault)
    for opened in open_sources(deployment.directory, graph):
        # rows may have come by other sources, or have left the ingest log since
        had_rows = graph.datasets[opened.dataset].name in taken
        if graph.entries[opened.dataset].state_id in entries and (had_rows or _has_any(opened)):
            return True
    return False


def _has_any(opened: Any) -> bool:
    try:
        found, _ = opened.requested_plan(None, 1)
    except Transient:
        return True  # the worker, which tries again, will find out
    return bool(found) or opened.is_loading


def switch_caught_up(
    deployment: Deployment, plan: BatchPlan, waiting: frozenset[str], pending: Collection[str], epoch: int
) -> list[int]:
    """Switch the branches that caught up with the finished batch; return their new revisions.

    Args:
        deployment: the deployment.
        plan: of the batch.
        waiting: the state ids of the nodes that did not take part in it.
        pending: the keys of sources with rows for which final results have not been emitted.
        epoch: of the worker.
    """
    found = []
    for each in waiting_branches(deployment.catalog, plan.revision):
        graph = deployment.graph(plan.revision)
        lags = {node.state_id for node in graph.nodes_of(each.branch)} & waiting
        behind = {source.key for source in new_sources(graph, each)} & {*plan.behind, *pending}
        if not lags and not behind:
            revision = switch(deployment.catalog, JOB, epoch, each.branch, each.head)
            found += [] if revision is None else [revision]
    return found


def new_sources(graph: Graph, waiting: Waiting) -> list[KeyedSource]:
    """Return the sources of a branch that its serving commit does not read."""
    read = {each.key for each in graph.sources_of(replaced(waiting.branch))}
    return [each for each in graph.sources_of(waiting.branch) if each.key not in read]


@dataclass(frozen=True, slots=True)
class Switch:
    """The progress of a branch towards serving its last commit.

    Args:
        branch: its name.
        serving: the revision that serves, 0 for none.
        committed: the revision that is being backfilled.
        datasets: those being backfilled, with the new version, and the serving version or None.
        share: the share of the data that is processed.
        error: the last failure of the backfill; empty if it did not fail.
        failures: the number of failures since it last went on.
        done: rows of history read, as far as the sources tell rows.
        total: rows of history in all, 0 as long as they are not counted.
        rows_per_second: of the backfill so far, None before its first step.
        trouble: a new source that cannot be read, and why; empty if there is none.
    """

    branch: str
    serving: int
    committed: int
    datasets: Mapping[str, tuple[int, int | None]]
    share: float
    error: str = ""
    failures: int = 0
    done: int = 0
    total: int = 0
    rows_per_second: float | None = None
    trouble: str = ""

    @property
    def seconds_left(self) -> float | None:
        """The estimated time until it has caught up, None for unknown."""
        return (self.total - self.done) / self.rows_per_second if self.rows_per_second and self.total else None

    @property
    def message(self) -> str:
        """A description for messages."""
        alike: dict[tuple[int, int | None], list[str]] = {}
        for name, versions in self.datasets.items():
            alike.setdefault(versions, []).append(name)
        parts = [
            _described(each, *versions, self.share) for versions, names in alike.items() for each in _listed(names)
        ]
        report = "; ".join(parts) or f"revision {self.committed} is being backfilled: {_percent(self.share)}"
        failure = f"; it failed and is tried again: {self.error}" if self.error else ""
        return f"{report}{failure}{f'; it waits for {self.trouble}' if self.trouble else ''}"

    @property
    def plain(self) -> dict[str, Any]:
        """The progress as JSON-compatible data."""
        return {
            "branch": self.branch,
            "state": "failing" if self.error else "backfilling",
            "serving": self.serving,
            "committed": self.committed,
            "share": round(self.share, 4),
            "datasets": [{"name": name, "version": new, "serving": old} for name, (new, old) in self.datasets.items()],
            "message": self.message,
            "error": self.error,
            "failures": self.failures,
            "rows_done": self.done,
            "rows_total": self.total,
            "rows_per_second": self.rows_per_second,
            "seconds_left": self.seconds_left,
        }


def _listed(names: Sequence[str]) -> Sequence[str]:
    """Return the names, many in one text."""
    return names if len(names) < 4 else [f"{names[0]}, {names[1]} and {len(names) - 2} more"]


def _described(name: str, new: int, old: int | None, share: float) -> str:
    serves = "nothing serves yet" if old is None else f"version {old} serves"
    if new == old:
        return f"version {new} of {name} is being backfilled anew: {_percent(share)}; what was there before serves"
    return f"version {new} of {name} is being backfilled: {_percent(share)}; {serves}"


def _percent(share: float) -> str:
    return f"{int(share * 100)} %"


def switches(deployment: Deployment, revision: int) -> list[Switch]:
    """Return the progress of each branch that does not serve its last commit."""
    return [_switch(deployment, each, revision) for each in waiting_branches(deployment.catalog, revision)]


def branch_status(deployment: Deployment, branch: str) -> dict[str, Any]:
    """Return a branch's serving revision, committed revision and backfill progress.

    Raises:
        UnknownName: there is no such branch.
    """
    revision, head = deployment.catalog.latest(), deployment.catalog.head(branch)
    found = [each.plain for each in switches(deployment, revision) if each.branch == branch]
    if found:
        return found[0]
    done = Switch(branch, head, head, {}, 1.0).plain
    return {**done, "state": "serving", "message": f"revision {head} serves"}


def _switch(deployment: Deployment, each: Waiting, revision: int) -> Switch:
    graph = deployment.graph(revision)
    after, before = deployment.definitions(each.head), deployment.definitions(each.serving)
    state = deployment.backfill_state()
    fresh = {node.state_id for node in graph.nodes_of(each.branch)} - deployment.catalog.backfilled()
    awaits = bool(graph.awaiting(fresh))
    parts = list(_parts(deployment, graph, each))
    share = min([state.share if awaits else 1.0, *(part.share for part in parts)])
    datasets = _changed(graph, each.branch, after, before)
    done, total, speed = (state.done, state.total, state.rows_per_second) if awaits else (0, 0, None)
    measured = done + sum(part.done for part in parts), total + sum(part.total for part in parts), speed
    trouble = _trouble(deployment, graph, each)
    return Switch(
        each.branch, each.serving, each.head, datasets, share, state.error, state.failures, *measured, trouble
    )


def _trouble(deployment: Deployment, graph: Graph, each: Waiting) -> str:
    """Return the first new source of a branch that cannot be read, and the reason."""
    new = {source.key for source in new_sources(graph, each)}
    lags = source_lags(deployment.directory)
    return next(
        (f"a source of {lag.source.partition('@')[0]}: {lag}" for lag in lags if lag.trouble and lag.source in new), ""
    )


def _changed(graph: Graph, branch: str, after: Definitions, before: Definitions) -> dict[str, tuple[int, int | None]]:
    new, old = graph.branch(branch).outputs, graph.branch(replaced(branch)).outputs
    return {
        name: (dataset.version, before.datasets[name].version if name in before.datasets else None)
        for name, dataset in after.datasets.items()
        if name not in old or old[name].state_id != new[name].state_id
    }


@dataclass(frozen=True, slots=True)
class _Part:
    """The part that is read of a new source.

    Args:
        share: of its bytes.
        done: rows of it, 0 if it does not tell rows.
        total: rows in all.
    """

    share: float
    done: int = 0
    total: int = 0


def _parts(deployment: Deployment, graph: Graph, each: Waiting) -> Iterator[_Part]:
    """Yield the part that is read of each new source of a branch."""
    last = deployment.catalog.progress(JOB, sys.maxsize)
    positions = deployment.plans().read(last.state["plan"]).positions if last and "plan" in last.state else {}
    new = {source.key for source in new_sources(graph, each)}
    provide_vault(deployment.vault)
    for opened in open_sources(deployment.directory, graph):
        if opened.key in new:
            position = positions.get(opened.key)
            total = _bytes(opened, None)
            left = _bytes(opened, position) if total else 0
            yield _Part(1.0 if not total else max(0.0, 1 - left / total), *_rows(opened, position))


def _rows(opened: Any, position: Any) -> tuple[int, int]:
    """Return the read rows of a source and all rows, zeros for unknown."""
    try:
        with opened.requesting():
            total = opened.reading.measure(None).rows
            left = opened.reading.measure(position).rows if total else 0
    except Transient:
        return 0, 0
    return (max(0, total - left), total) if total and left is not None else (0, 0)


def _bytes(opened: Any, position: Any) -> int:
    try:
        found, _ = opened.requested_plan(position, EVERYTHING)
    except Transient:
        return 0
    return sum(size for _, size in found)
