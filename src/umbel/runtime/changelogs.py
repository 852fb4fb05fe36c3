"""The change logs of a deployment: one for each logged node of a graph.

Changes of large batches are written by the tasks that made them, as parts which the driver commits; those of small ones are
appended to a tail, which is moved into the table from time to time. `umbel.log.changes` describes how both are exactly once.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from umbel.changes.versions import insertions
from umbel.errors import Damaged
from umbel.graph.graph import GraphNode
from umbel.graph.threads import Calls, in_threads
from umbel.log import change_retention, change_rewriting, changes
from umbel.log.change_files import ChangeLogFile
from umbel.log.change_retention import Locked, RetentionLimits
from umbel.log.change_tail import BATCH, FileTail
from umbel.operators.operator import ALWAYS
from umbel.query.erasure import ErasedKeys
from umbel.query.history import LogPart
from umbel.state.keys import encode_columns
from umbel.state.port import Stamp
from umbel.types.schema import WEIGHT

PARTS, STEPS = "umbel-parts", "umbel-backfill"
FLUSH_BYTES = 8 << 20
FLUSH_FILES = 200
REWRITTEN = 5
"""Attempts to read a log that is rewritten meanwhile."""

Dues = Mapping[str, Sequence[int]]
"""The expected content of each log, by its name: the version and the rows of its table, and the last batch of its tail."""


@dataclass(frozen=True, slots=True)
class ChangeLogPart:
    """Files that one task wrote for one log, not yet committed to its table.

    Args:
        log: the name of the log.
        files: the files.
    """

    log: str
    files: Sequence[ChangeLogFile]


@dataclass(eq=False, slots=True)
class ChangeLogWriter:
    """Writes parts of change logs in threads.

    Args:
        write: writes changes of a node, under a name.
        written: what was written so far.
        calls: those that run.
    """

    write: Callable[[GraphNode, str, Sequence[pl.DataFrame]], ChangeLogPart]
    written: list[tuple[GraphNode, ChangeLogPart]] = field(default_factory=list)
    calls: Calls[ChangeLogPart] = field(default_factory=Calls)

    def begin(self, node: GraphNode, name: str, frames: Sequence[pl.DataFrame]) -> None:
        """Begin to write changes of a node as a part."""
        self.calls.start(self._part, [(node, name, frames)])

    def _part(self, changes: tuple[GraphNode, str, Sequence[pl.DataFrame]]) -> ChangeLogPart:
        part = self.write(*changes)
        self.written.append((changes[0], part))
        return part


class ChangeLogs:
    """The change logs of a deployment.

    Args:
        folder: the parent folder of the logs' folders.
        due: returns the expected content of each log, by its name, as of the last finished batch.
        store: as of `ChangeLog`.
    """

    def __init__(self, folder: Path, due: Callable[[], Dues] = dict, store: Callable[..., str] = str) -> None:
        self._folder, self._due, self._store = folder, due, store

    def write_part(self, node: GraphNode, stamp: Stamp, name: str, frames: Sequence[pl.DataFrame]) -> ChangeLogPart:
        """Write changes as a part, not yet committed to the table."""
        title = f"{stamp.step}-{name}-{node.number}"
        return ChangeLogPart(node.log, self._bare(node).write(pl.concat(frames), stamp.batch, title))

    @contextmanager
    def writing(self, stamp: Stamp) -> Iterator[ChangeLogWriter]:
        """Write parts while the body of the `with` statement runs.

        If it fails, they are deleted.
        """
        writer = ChangeLogWriter(lambda node, name, frames: self.write_part(node, stamp, name, frames))
        try:
            with writer.calls:
                yield writer
        except Exception:
            for node, part in writer.written:
                self._bare(node).discard(part.files)
            raise

    def commit(self, batch: int, parts: Iterable[ChangeLogPart], nodes: Mapping[str, GraphNode]) -> None:
        """Commit the parts of a batch to their tables.

        Args:
            batch: its number, -1 or more.
            parts: all of them.
            nodes: the node behind each log, by its name.
        """
        self._commit(parts, nodes, PARTS, batch + 1)  # transactions count from 0, backfills are batch -1

    def commit_step(self, step: int, parts: Iterable[ChangeLogPart], nodes: Mapping[str, GraphNode]) -> None:
        """Commit the parts of a backfill step to their tables; steps count from 0."""
        self._commit(parts, nodes, STEPS, step)

    def _commit(
        self, parts: Iterable[ChangeLogPart], nodes: Mapping[str, GraphNode], application: str, number: int
    ) -> None:
        by_log: dict[str, list[ChangeLogFile]] = {}
        for part in parts:
            by_log.setdefault(part.log, []).extend(part.files)
        in_threads(lambda each: self._bare(nodes[each[0]]).commit(each[1], application, number), by_log.items())

    def keep(self, node: GraphNode, batch: int, frames: Sequence[pl.DataFrame], before: int = -1) -> None:
        """Append the changes of a small batch to the tail, after the batch `before`."""
        self._tail(node).put(batch, pl.concat(frames), before)

    def flush(self, node: GraphNode, *, everything: bool = False) -> bool:
        """Move the tail into the table once it is large enough.

        Returns whether it was moved.
        """
        tail = self._tail(node)
        files, size = tail.size()
        is_worth = bool(files) and (everything or files >= FLUSH_FILES or size >= FLUSH_BYTES)
        if is_worth:
            self._log(node).flush(tail, tail.last())
        return is_worth

    def dues(self, before: Dues, batch: int, retained: Iterable[GraphNode], moved: Iterable[GraphNode]) -> Dues:
        """Return the expected content of each log after a batch.

        Args:
            before: the expected content before it.
            batch: its number.
            retained: the logs whose tails got changes.
            moved: the logs whose tables did.
        """
        after = {log: list(due) for log, due in before.items()}
        for node in retained:
            after.setdefault(node.log, [-1, 0, -1])[2] = batch
        for node in moved:
            after.setdefault(node.log, [-1, 0, -1])[:2] = self._bare(node).state()
        return after

    def has(self, node: GraphNode, batch: int) -> bool:
        """Return whether the table of a log has a batch, finished or not."""
        return self._bare(node).has(PARTS, batch + 1, batch)

    def has_step(self, node: GraphNode, step: int) -> bool:
        """Return whether the table of a log has a backfill step, finished or not."""
        return self._bare(node).has(STEPS, step, sys.maxsize)

    def undo(self, node: GraphNode, batch: int) -> None:
        """Delete an unfinished batch from the tail of a log."""
        self._tail(node).undo(batch)

    def check(self, node: GraphNode, *, deep: bool = False) -> None:
        """Check that a log has its expected content; see `ChangeLog.check`."""
        self._log(node).check(self._tail(node), deep=deep)

    def read(
        self,
        node: GraphNode,
        predicate: pl.Expr | None = None,
        *,
        first: int | None = None,
        until: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Return the changes of a log: its table and its tail.

        Args:
            node: the node of the log.
            predicate: a filter; pushed down to the files.
            first: only batches from this one on.
            until: only batches up to this one.
            columns: the columns to return, all when None.
        """
        return self._read(node, predicate=predicate, first=first, through=until, columns=columns)

    def part(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        """Return a part of the changes of a log."""
        which = {"columns": part.columns, "since": part.since, "until": part.until}
        return self._read(node, predicate=part.condition, **which)

    def batches(self, node: GraphNode, *, after: int | None, until: int) -> pl.DataFrame:
        """Return the changes of the batches after one, up to another, with their `_batch`.

        Of all batches up to it if `after` is None.
        """
        columns = [*node.operator.schema.changes(), BATCH]
        return self._read(node, columns=columns, first=None if after is None else after + 1, through=until)

    def sizes(self, node: GraphNode, *, until: int, after: int | None = None) -> dict[int, int]:
        """Return the number of changes of each batch in a log.

        Only batches up to `until`, and after `after` unless that is None.
        """
        batches = self._read(node, columns=[BATCH], first=None if after is None else after + 1, through=until)
        return dict(batches.group_by(BATCH).len().iter_rows())

    def measure(self, node: GraphNode) -> tuple[int, int]:
        """Return the number of changes in a log and their bytes, by its metadata."""
        return self._log(node).measure(self._tail(node))

    def spread(self, node: GraphNode) -> list[tuple[datetime, datetime, int]]:
        """Return how the changes of a log are spread over time; see `ChangeLog.spread`."""
        return self._log(node).spread(self._tail(node))

    def drop(self, log: str) -> None:
        """Delete a log, by its name."""
        shutil.rmtree(self._folder / log, ignore_errors=True)

    def matching(self, node: GraphNode, erased: ErasedKeys) -> pl.Series:
        """Return the distinct encoded keys of a log's erased rows; its tail is empty."""
        names = node.operator.schema.key_names
        found = change_rewriting.matching(self._log(node), names, erased.hits)
        return encode_columns(found, names)

    def rewrite_without(self, node: GraphNode, erased: ErasedKeys) -> int:
        """Rewrite a log without erased rows; return their number. Its tail is empty."""
        log = self._log(node)
        rows = change_rewriting.rewrite_without(log, erased.columns, erased.hits)
        change_rewriting.forget_history(log)
        return rows

    def drop_oldest(self, node: GraphNode, limits: RetentionLimits, locked: Locked) -> int:
        """Drop the oldest changes of a log; return their number. See `umbel.log.change_retention`."""
        return change_retention.drop_oldest(self._log(node), node.operator.schema.key_names, limits, locked)

    def retained_since(self, node: GraphNode) -> float:
        """Return the instant since which a log is complete, in µs."""
        found = change_retention.retained_since(self._bare(node).table())
        return ALWAYS if found is None else float(found)

    def tidy(self, node: GraphNode) -> None:
        """Merge small files, and delete files without readers."""
        self._log(node).tidy()

    def newest(self, node: GraphNode, limit: int) -> pl.DataFrame:
        """Return the newest rows not retracted, sorted by time.

        At most `limit` rows; superseded ones are included.
        """
        retained = self.inserted(node, limit)
        copies = np.repeat(np.arange(retained.height, dtype=np.uint32), retained[WEIGHT].to_numpy())
        return retained.select(node.operator.schema.names)[copies].tail(limit)

    def inserted(self, node: GraphNode, limit: int) -> pl.DataFrame:
        """Return the newest insertions not retracted, sorted by time.

        At most `limit` changes.
        """
        schema, now = node.operator.schema, datetime.now(UTC)
        for back in (timedelta(hours=1), timedelta(days=1), timedelta(days=30), None):
            since = None if back is None else now - back
            rows = insertions(self._read(node, since=since), schema)
            if rows.height >= limit:
                break
        return rows.tail(limit)

    def _read(self, node: GraphNode, **which: Any) -> pl.DataFrame:
        """Return changes; try again where the log was rewritten meanwhile."""
        for _ in range(REWRITTEN):
            log = self._log(node)
            before = log.history()
            try:
                return log.read(self._tail(node), **which)
            except (Damaged, OSError, pl.exceptions.PolarsError):
                if log.history() == before:
                    raise
        return self._log(node).read(self._tail(node), **which)

    def _log(self, node: GraphNode) -> changes.ChangeLog:
        due = self._due().get(node.log)
        return replace(self._bare(node), due=changes.Due(*due)) if due else self._bare(node)

    def _bare(self, node: GraphNode) -> changes.ChangeLog:
        title, columns = node.dataset or node.state_id, node.operator.schema.changes()
        return changes.ChangeLog(self._folder / node.log, columns, title, store=self._store)

    def _tail(self, node: GraphNode) -> FileTail:
        return FileTail(self._folder / node.log / "_tail", self._store)
