"""Purges: the worker erases bytes of erased rows between two batches.

No batch runs meanwhile, so nothing of one has to be found again. Each step replaces files as a whole and can be repeated: a purge
that was interrupted begins anew with the next batch. docs/decisions/0036-retention.md has the reasons.
"""

from __future__ import annotations

import io
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from umbel.catalog.purges import Mentions, PurgeProgress, Purges
from umbel.catalog.removals import Removals
from umbel.errors import Transient, UmbelError
from umbel.operators.index import Index
from umbel.processes.locks import alone
from umbel.query.erasure import ErasedKeys
from umbel.runtime.erasures import erased_everywhere, keys_in
from umbel.runtime.recovery.cut import discard_links
from umbel.runtime.redactions import finish_redactions, redact_ingest_logs, redact_staged
from umbel.state.durable import DurableStore
from umbel.state.failpoints import reach
from umbel.state.keys import encode_columns

if TYPE_CHECKING:
    from umbel.graph.graph import Graph, GraphNode
    from umbel.runtime.deployment import Deployment

BACKFILLING = "waits for the end of a backfill"

log = logging.getLogger("umbel.work")


def purge_before(deployment: Deployment, revision: int, batch: int, *, is_backfilling: bool = False) -> None:
    """Purge what is requested, before a batch, unless something has to be waited for.

    An error does not stop the batch: it is recorded, and the purge is tried again.

    Args:
        deployment: the deployment.
        revision: of the definitions and erasures of the batch.
        batch: its number; those before it are finished, and will not run again.
        is_backfilling: whether a step of a backfill runs.
    """
    purges = Purges(deployment.catalog)
    if not purges.is_open:
        return
    try:
        finish_redactions(deployment.directory)  # the batch reads the logs, whether or not the purge has to wait
        if not purges.is_due() or revision <= purges.progress.revision:
            return
        reason = BACKFILLING if is_backfilling else _reason_to_wait(deployment, revision, batch)
        if reason:
            _wait(purges, reason)
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(alone(deployment.directory, "backup"))
            except Transient:
                _wait(purges, "waits for the end of a backup")
                return
            discard_links(deployment)
            _Purge(deployment, purges, revision).run()
    except (UmbelError, OSError, pl.exceptions.PolarsError) as error:
        _failed(purges, error)
        deployment.catalog.record_event("work", "error", f"purge: {error}"[:4000])


def _reason_to_wait(deployment: Deployment, revision: int, batch: int) -> str:
    """Return why a purge cannot begin now, empty if it can."""
    graph = deployment.graph(revision)
    fresh = {node.state_id for node in graph.nodes} - deployment.catalog.backfilled()
    if fresh:
        return BACKFILLING
    if Removals(deployment.catalog).until(time.time()):
        return "waits until the state of removed pipelines is deleted"
    store = deployment.store
    last = store.last_pending() if isinstance(store, DurableStore) else None
    return "waits for the end of a batch that was interrupted" if last is not None and last >= batch else ""


def _wait(purges: Purges, reason: str) -> None:
    purges.note(replace(purges.progress, step=reason, error="", tried=time.time()))


def _note_step(purges: Purges, step: str) -> None:
    before = purges.progress
    if before.step != step:
        purges.note(replace(before, step=step, error="", tried=0.0))


def _failed(purges: Purges, error: Exception) -> None:
    log.warning("purge: %s", error)
    purges.note(replace(purges.progress, step="", error=str(error)[:2000], tried=time.time()))


@dataclass
class _Purge:
    """One purge.

    Args:
        deployment: the deployment.
        purges: its record.
        revision: the last revision of the erasures.
        notes: what was done and what is left, for people.
        left: the number of places that still have bytes.
    """

    deployment: Deployment
    purges: Purges
    revision: int
    notes: list[str] = field(default_factory=list)
    left: int = 0

    def run(self) -> None:
        """Run all steps."""
        graph = self.deployment.graph(self.revision)
        erased = erased_everywhere(self.deployment, self.revision)
        found = {name: keys for name in graph.datasets if (keys := erased.keys(name)) is not None}
        own = {name: keys for name, keys in found.items() if _index_of(graph, name) is not None}
        for name in sorted(found.keys() - own.keys()):
            self._is_left(f"{name} is computed: erase the rows it is computed from, then: umbel rebuild {name}")
        self._tell_of_branches(own)
        mentions = Mentions(self._plain(own))
        state, logs = self._state(graph, own), self._change_logs(graph, own)
        self._step("ingest logs")
        rows, notes = redact_ingest_logs(self.deployment, graph, own, mentions)
        staged = redact_staged(self.deployment, graph, own, mentions)
        for note in notes:
            self._is_left(note)
        letters = self._catalog(graph, own, mentions)
        self.notes.insert(
            0, f"erased {state} rows of state, {logs} changes, {rows + staged} events and {letters} dead letters"
        )
        readers = sorted({name for node in self._readers(graph, own) for name in (node.dataset,) if name})
        if readers:
            self.notes.append(
                f"computed from erased rows, and as before: {', '.join(readers)}; to compute it without them: umbel rebuild"
            )
        now = time.time()
        self.purges.note(PurgeProgress(self.revision, now, notes=tuple(self.notes), left=self.left, tried=now))
        reach("purged")

    def _step(self, step: str) -> None:
        _note_step(self.purges, step)
        reach(step)

    def _is_left(self, note: str) -> None:
        self.notes.append(note)
        self.left += 1

    def _state(self, graph: Graph, own: Mapping[str, ErasedKeys]) -> int:
        """Rewrite the state without the erased rows, and without all that was dropped."""
        self._step("keys")
        changes, keys = self.deployment.changes, dict[str, pl.Series]()
        for name, erased in own.items():
            node = _node(graph, name)
            changes.flush(node, everything=True)
            encoded = [changes.matching(node, erased), *self._encoded(node, name, erased)]
            keys[node.state_id] = pl.concat(encoded).unique()
        store, rows = self.deployment.store, 0
        if isinstance(store, DurableStore):
            for shard in range(store.shards):
                self._step(f"state, shard {shard + 1} of {store.shards}")
                rows += store.rewrite_without(shard, keys)
        return rows

    def _encoded(self, node: GraphNode, name: str, erased: ErasedKeys) -> Iterator[pl.Series]:
        """Yield the encoded keys of erasures by the whole key."""
        names = node.operator.schema.key_names
        for dataset, frame in self._frames():
            if dataset == _own_name(name) and set(frame.columns) == set(names):
                encoded = encode_columns(frame.drop_nulls(), names)
                yield encoded.filter(erased.hits(frame.drop_nulls()))

    def _change_logs(self, graph: Graph, own: Mapping[str, ErasedKeys]) -> int:
        rows = 0
        for number, (name, erased) in enumerate(own.items(), 1):
            self._step(f"change logs, {number} of {len(own)}")
            rows += self.deployment.changes.rewrite_without(_node(graph, name), erased)
        return rows

    def _catalog(self, graph: Graph, own: Mapping[str, ErasedKeys], mentions: Mentions) -> int:
        self._step("catalog")
        letters = self.purges.delete_letters(own, mentions) if mentions else 0
        names = {_own_name(name): keys for name, keys in own.items()}
        self.purges.replace_keys(self.revision, lambda row: _packed(row.keys, names.get(row.dataset)))
        reach("keys replaced")
        note = self.purges.erase_free_pages()
        if note:
            self._is_left(note)
        return letters

    def _frames(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield the keys that are rows in the catalog, with the dataset's name."""
        for dataset, data in self.purges.keys(self.revision):
            if ErasedKeys.unpack(data) is None:
                yield dataset, pl.read_ipc(io.BytesIO(data))

    def _plain(self, own: Collection[str]) -> list[tuple[object, ...]]:
        names = {_own_name(each) for each in own}
        return [row for dataset, frame in self._frames() if dataset in names for row in frame.iter_rows()]

    def _tell_of_branches(self, own: Mapping[str, ErasedKeys]) -> None:
        """Tell which erasures do not count, since another branch has the rows."""
        known = defaultdict[str, set[tuple[int, bytes]]](set)
        for name, keys in own.items():
            known[_own_name(name)] |= keys.digests
        for dataset, data in self.purges.keys(self.revision):
            if keys_in(data).digests - known[dataset]:
                self._is_left(
                    f"some erased rows of {dataset} stay: another branch has them, or it was defined anew since"
                )
                return

    def _readers(self, graph: Graph, own: Collection[str]) -> Iterator[GraphNode]:
        seen, waiting = set[int](), [_node(graph, name) for name in own]
        while waiting:
            for reader, _ in waiting.pop().readers:
                if reader.number not in seen:
                    seen.add(reader.number)
                    waiting.append(reader)
                    yield reader


def _packed(data: bytes, keys: ErasedKeys | None) -> bytes | None:
    """Return the digests of an erasure's purged keys; None if there is nothing to replace."""
    if keys is None or ErasedKeys.unpack(data) is not None:
        return None
    found = keys_in(data)
    return found.pack() if found.digests <= keys.digests else None


def _own_name(placed: str) -> str:
    """Return the name of a dataset on its branch."""
    return placed.partition("@")[0]


def _node(graph: Graph, name: str) -> GraphNode:
    node = _index_of(graph, name)
    assert node is not None
    return node


def _index_of(graph: Graph, name: str) -> GraphNode | None:
    """Return the index of a dataset read from sources, None for another one."""
    node, entry = graph.outputs[name], graph.entries.get(name)
    known = entry is not None or not graph.datasets[name].output
    return node if known and isinstance(node.operator, Index) else None
