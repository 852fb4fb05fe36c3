"""The change logs of a deployment: one for each node of a graph that is logged.

Changes of large batches are written by the tasks that made them, as parts which the driver commits; those of small ones go
to a tail, which is moved into the table now and then. `umbel.log.changes` says how both are exactly once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from umbel.log import changes
from umbel.log.changetail import BATCH, FileTail
from umbel.operators.timeline import consolidate
from umbel.plan.graph import Node
from umbel.state.port import Stamp
from umbel.types.schema import AT, SEQ, WEIGHT

PARTS = "umbel-parts"
FLUSH_BYTES = 8 << 20
FLUSH_FILES = 200


@dataclass(frozen=True, slots=True)
class Part:
    """What one task wrote for one log, not yet part of its table.

    Args:
        log: the name of the log.
        files: what was written.
    """

    log: str
    files: Sequence[changes.Part]


class ChangeLogs:
    """The change logs of a deployment.

    Args:
        folder: where they are kept, a folder each.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_part(self, node: Node, stamp: Stamp, name: str, frames: Sequence[pl.DataFrame]) -> Part:
        """Write changes beside the table."""
        prefix = f"batch-{stamp.batch:012d}-{stamp.step}-{name}-{node.number}"
        return Part(node.log, self._log(node).write(pl.concat(frames), stamp.batch, prefix))

    def commit(self, batch: int, parts: Iterable[Part], nodes: Mapping[str, Node]) -> None:
        """Make the parts of a batch part of their tables.

        Args:
            batch: its number, -1 or more.
            parts: all of them.
            nodes: the node behind each log, by its name.
        """
        by_log: dict[str, list[changes.Part]] = {}
        for part in parts:
            by_log.setdefault(part.log, []).extend(part.files)
        for log, files in by_log.items():
            self._log(nodes[log]).commit(files, PARTS, batch + 1)  # transactions count from 0, backfills are batch -1

    def keep(self, node: Node, batch: int, frames: Sequence[pl.DataFrame]) -> None:
        """Put the changes of a small batch into the tail."""
        self._tail(node).put(batch, pl.concat(frames))

    def flush(self, node: Node, *, everything: bool = False) -> None:
        """Move the tail into the table once it is worth it."""
        tail = self._tail(node)
        files, size = tail.size()
        if files and (everything or files >= FLUSH_FILES or size >= FLUSH_BYTES):
            self._log(node).flush(tail, tail.last())

    def read(self, node: Node, predicate: pl.Expr | None = None, *, until: int | None = None) -> pl.DataFrame:
        """Return the changes of a log: its table and its tail.

        Args:
            node: whose log.
            predicate: which of them; pushed down to the files.
            until: only batches up to this one.
        """
        return self._log(node).read(self._tail(node), predicate=predicate, through=until)

    def sizes(self, node: Node, *, until: int) -> dict[int, int]:
        """Return how many changes each batch up to one left in a log."""
        batches = self._log(node).read(self._tail(node), columns=[BATCH], through=until)
        return dict(batches.group_by(BATCH).len().iter_rows())

    def drop(self, node: Node) -> None:
        """Delete the log of a node."""
        shutil.rmtree(self._folder / node.log, ignore_errors=True)

    def tidy(self, node: Node) -> None:
        """Merge small files, delete those that nobody reads any more."""
        self._log(node).tidy()

    def newest(self, node: Node, limit: int) -> pl.DataFrame:
        """Return the newest rows that no correction took back, superseded ones included, at most `limit`, by time."""
        kept = self.inserted(node, limit)
        copies = np.repeat(np.arange(kept.height, dtype=np.uint32), kept[WEIGHT].to_numpy())
        return kept.select(node.operator.schema.names)[copies].tail(limit)

    def inserted(self, node: Node, limit: int) -> pl.DataFrame:
        """Return the newest changes that insert rows no correction took back, at most `limit`, by time."""
        schema, now = node.operator.schema, datetime.now(UTC)
        for back in (timedelta(hours=1), timedelta(days=1), timedelta(days=30), None):
            since = None if back is None else now - back
            rows = consolidate(self._log(node).read(self._tail(node), since=since), [*schema.names, AT])
            if rows.height >= limit:
                break
        return rows.filter(pl.col(WEIGHT) > 0).sort(schema.timestamp, SEQ).tail(limit)

    def _log(self, node: Node) -> changes.ChangeLog:
        return changes.ChangeLog(self._folder / node.log, node.operator.schema.changes(), node.dataset or node.owner)

    def _tail(self, node: Node) -> FileTail:
        return FileTail(self._folder / node.log / "_tail")
