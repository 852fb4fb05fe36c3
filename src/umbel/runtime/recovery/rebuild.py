"""Rebuilding: state is computed again from change logs, or from the sources.

A pipeline that is rebuilt counts as new: the worker deletes its state and its change log, and computes both by a backfill, with
those of all pipelines that read it. While it does so their datasets answer as far as it has come.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import delete, select, update

from umbel.catalog import tables as t
from umbel.catalog.replays import REPLAYS
from umbel.errors import Damaged, InvalidValue, NotSupported, UnknownName, did_you_mean
from umbel.graph.graph import MAIN, Graph, GraphNode
from umbel.log.segments import ORIGIN, read_oldest
from umbel.processes.locks import alone
from umbel.runtime.backfill_state import BACKFILL
from umbel.runtime.completeness import COMPLETE, check_computable
from umbel.runtime.deployment import FORMER_STORE, JOB, NEW_STORE, STORE, Deployment
from umbel.runtime.empty_commit import commit_again
from umbel.runtime.recovery.cut import ingest_logs
from umbel.runtime.retention import no_drops
from umbel.runtime.sink_ids import PREFIX, resending
from umbel.runtime.state_claim import claims
from umbel.state.description import NAME as STORE_FILE
from umbel.state.durable import DurableStore
from umbel.state.file import FileStore
from umbel.state.port import Store
from umbel.state.urls import open_store

_OF_STATE = frozenset({STORE, NEW_STORE, FORMER_STORE, BACKFILL, COMPLETE, REPLAYS})
"""The settings that belong to the state."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Operators to rebuild.

    Args:
        state_ids: of them, and of all that read them.
        datasets: their names, for messages.
    """

    state_ids: frozenset[str]
    datasets: tuple[str, ...]


def planned(graph: Graph, state_ids: Container[str]) -> Rebuild:
    """Return what has to be rebuilt for some operators' state to be right again.

    Raises:
        NotSupported: one belongs to a dataset that is read from a source.
    """
    found, before = {node.state_id for node in graph.nodes if node.state_id in state_ids}, 0
    while len(found) > before:
        before = len(found)
        for node in graph.nodes:
            if any(each.state_id in found for each in node.parents):
                found.add(node.state_id)
        for node in graph.nodes:
            if node.state_id in found:
                found |= set(_unlogged(node))
    fed = sorted({name for name in graph.entries for node in _fed(graph, name) if node.state_id in found})
    if fed:
        raise NotSupported(
            f"{_listed(fed)} cannot be rebuilt alone: its rows come from a source, and no change log has them but its own",
            hint="restore a backup: umbel restore; or read all sources again: umbel rebuild --all",
        )
    return Rebuild(frozenset(found), tuple(titles(graph, found)))


def _unlogged(node: GraphNode) -> Iterator[str]:
    """Yield the keyed operators without change logs that a node reads.

    They are computed again with it.
    """
    for parent in node.parents:
        if not parent.is_logged and (parent.is_keyed or not parent.parents):
            yield parent.state_id
        elif not parent.is_logged:
            yield from _unlogged(parent)


def titles(graph: Graph, state_ids: Container[str]) -> list[str]:
    """Return the datasets that operators belong to or lead to, sorted."""
    found = set[str]()
    for node in graph.nodes:
        if node.state_id in state_ids:
            found |= _datasets(node)
    return sorted(found)


def _datasets(node: GraphNode) -> set[str]:
    if node.dataset is not None:
        return {node.dataset}
    return set[str]().union(*(_datasets(reader) for reader, _ in node.readers))


def _fed(graph: Graph, name: str) -> Iterable[GraphNode]:
    """Yield the nodes of a dataset with sources of its own."""
    node, entry = graph.outputs[name], graph.entries[name]
    while node is not entry:
        yield node
        (node,) = node.parents
    yield entry


def rebuild(deployment: Deployment, datasets: Iterable[str], branch: str = MAIN) -> Rebuild:
    """Have the worker rebuild the pipelines of datasets; return what it will rebuild.

    Args:
        deployment: the deployment; its worker may be running.
        datasets: their names on the branch.
        branch: the branch.

    Raises:
        UnknownName: there is no such dataset.
        NotSupported: a dataset is read from a source.
        HistoryDropped: its inputs do not have the changes any more.
    """
    graph, found = deployment.graph(deployment.catalog.latest()), set[str]()
    outputs = graph.branch(branch).outputs
    for name in datasets:
        if name not in outputs:
            raise UnknownName(f"there is no dataset '{name}' on branch '{branch}'{did_you_mean(name, outputs)}")
        found |= _pipelines(outputs[name])
    with no_drops(deployment):
        made = computable(deployment, graph, found)
        request(deployment, made)
    return made


def _pipelines(output: GraphNode) -> set[str]:
    """Return the state ids of the operators between a dataset and those it reads.

    An operator before an aggregate has a change log of its own, from which the aggregate alone would be computed.
    """
    found, left = set[str](), [output]
    while left:
        node = left.pop()
        if node.state_id not in found:
            found.add(node.state_id)
            left += [each for each in node.parents if each.dataset is None and each.parents]
    return found


def computable(deployment: Deployment, graph: Graph, state_ids: Container[str]) -> Rebuild:
    """Return what has to be rebuilt, as `planned`.

    Raises:
        NotSupported: one belongs to a dataset that is read from a source.
        HistoryDropped: the change logs do not have the changes any more that it would be computed from.
    """
    made = planned(graph, state_ids)
    check_computable(deployment, graph, made.state_ids)
    return made


def request(deployment: Deployment, made: Rebuild) -> None:
    """Have the worker compute operators again with its next batch."""
    catalog = deployment.catalog
    catalog.backfill(made.state_ids, done=False)
    # a new revision makes a batch, also where nothing comes in
    commit_again(catalog, f"rebuild {_listed(made.datasets)}"[:1000])


def rebuild_all(deployment: Deployment) -> list[str]:
    """Forget all state, change logs and positions, so that the worker reads all sources again.

    Definitions, branches, tokens, secrets, ingested events and the feature log stay.

    Args:
        deployment: the deployment; it must be stopped.

    Returns:
        What is not in the sources any more, and what sinks are sent again, for people.

    Raises:
        InvalidValue, Damaged: the store is that of another deployment, or of a copy of this one.
        Transient: the worker, a server or a backup runs, or the storage does not answer.
    """
    lost = _expired(deployment)
    graph = deployment.graph(deployment.catalog.latest())
    if again := resending(deployment, graph, {node.state_id for node in graph.nodes}):
        lost.append(again)
    with ExitStack() as locks:
        # a backup would have the catalog of before, and a part of the state
        for what in ("worker", "server", "backup"):
            locks.enter_context(alone(deployment.directory, what))
        store = _own_store(deployment)
        if isinstance(store, DurableStore):
            lost += _missing(deployment, store)
            store.clear()
        else:
            for shard in range(store.shards):
                for state_id in store.state_ids(shard):
                    store.drop(state_id)
        for each in ("checkpoint", "plans", "changes"):
            shutil.rmtree(deployment.directory / each, ignore_errors=True)
        # The catalog forgets it last but one: interrupted before, the worker refuses to start; after, there is nothing to read.
        _forget_progress(deployment)
        if isinstance(store, DurableStore):
            store.forget()
        shutil.rmtree(deployment.directory / "store", ignore_errors=True)
    return lost


def _expired(deployment: Deployment) -> list[str]:
    """Return which rows of ingest logs are past their retention."""
    found = []
    for name, folder in ingest_logs(deployment.directory):
        oldest = read_oldest(folder)
        if oldest is not None and oldest > ORIGIN:
            found.append(f"{oldest.row} rows of {name} are past their retention, and cannot be read again")
    return found


def _forget_progress(deployment: Deployment) -> None:
    with deployment.catalog.sessions.begin() as session:
        for row in (t.BatchRow, t.Counter, t.BackfillRow, t.Removal):
            session.execute(delete(row))
        # as after a change of their sources: a record that is accepted now must not come from its dead letter as well
        of_sources = update(t.DeadLetterRow).where(t.DeadLetterRow.source >= 0)
        session.execute(of_sources.values(origin="", replay=None))
        names = session.scalars(select(t.SettingRow.name)).all()
        stores = [session.get(t.SettingRow, name) for name in (STORE, FORMER_STORE, NEW_STORE)]
        former = next((row.value for row in stores if row is not None), None)
        gone = [name for name in names if name in _OF_STATE or name.startswith(("frontier of ", PREFIX))]
        session.execute(delete(t.SettingRow).where(t.SettingRow.name.in_(gone)))
        if former is not None:  # what is left there is refused from now on
            session.add(t.SettingRow(name=FORMER_STORE, value=former))


def _own_store(deployment: Deployment) -> Store:
    """Return the store of a deployment, whether or not it can be read.

    Raises:
        InvalidValue: it is that of another deployment.
        Damaged: a worker of a copy of this deployment has taken it.
    """
    store = open_store(deployment.store_url, deployment.shards)
    own = {deployment.catalog.noted(name) for name in (STORE, NEW_STORE, FORMER_STORE)}
    is_in_folder = isinstance(store, FileStore) and store.directory == (deployment.directory / "store").resolve()
    if isinstance(store, DurableStore) and not is_in_folder and _identity(store) not in {None, *own}:
        raise InvalidValue(
            f"the state in {store.root} is not the one that the catalog tells of: it is left as it is",
            hint="name the store of the worker: --store",
        )
    if isinstance(store, DurableStore):
        store.check_claim(claims(deployment))
    return store


def _missing(deployment: Deployment, store: DurableStore) -> list[str]:
    """Return a warning if the catalog knows of state and the store has none."""
    if deployment.noted_store is None or store.root.size(STORE_FILE) is not None:
        return []
    return [f"there was no state in {store.root}: if the worker has it elsewhere, do this again with its --store"]


def _identity(store: DurableStore) -> str | None:
    try:
        return store.identity
    except Damaged:
        return None


def share(deployment: Deployment, made: Rebuild) -> float:
    """Return the share of a rebuild that is done.

    What a commit has removed since is not computed any more, and counts as done.
    """
    in_force = {node.state_id for node in deployment.graph(deployment.catalog.latest()).nodes}
    left = made.state_ids & in_force - deployment.catalog.backfilled()
    if not left:
        return 1.0
    state = deployment.backfill_state()
    last = deployment.catalog.progress(JOB, sys.maxsize)
    return min(0.99, state.share) if last and left.intersection(state.state_ids) else 0.0


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
