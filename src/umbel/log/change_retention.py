"""Retention of change logs: the oldest changes are dropped, by age and by size.

Of a keyless dataset, whole files go. Of a keyed one, changes that cancel out go, and the rows that are left at that instant stay:
its rows at any later instant are as before. The table says from which instant on it has all changes. Files go from the disk when
no reader can have them open any more, see `ChangeLog.vacuum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

import polars as pl

from umbel.errors import Transient
from umbel.log.change_rewriting import replace_files
from umbel.log.change_tail import BATCH
from umbel.log.changes import ChangeLog
from umbel.state.failpoints import reach
from umbel.state.keys import shard_of_columns
from umbel.types.epochs import EPOCH
from umbel.types.schema import AT, WEIGHT

if TYPE_CHECKING:
    from deltalake import DeltaTable

RETAINED = "umbel-retained"
"""The application transaction of dropping; its number is the instant in µs from which on the table has all changes."""
PART_ROWS = 2_000_000
"""About how many changes of a keyed log are consolidated at once."""
WORTH = 0.1
"""The share of changes that were not consolidated before from which on those of a keyed log are."""
MILLISECOND = timedelta(milliseconds=1)
"""The unit of statistics that other writers round down to."""

Locked = Callable[[], AbstractContextManager[bool]]
"""Locks the commit of a drop; false if it may not be made."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of a change log.

    Args:
        before: the instant before which changes are dropped; None for none.
        size: bytes of the table from which on its oldest changes are dropped; 0 for any number.
        batch: the last batch that no sink needs any more; None for any.
    """

    before: datetime | None = None
    size: int = 0
    batch: int | None = None


def retained_since(table: DeltaTable | None) -> int | None:
    """Return the instant since which a table is complete, in µs.

    None if no changes were dropped.
    """
    return None if table is None else table.transaction_version(RETAINED)


def drop_oldest(log: ChangeLog, keys: Sequence[str], limits: RetentionLimits, locked: Locked) -> int:
    """Drop the oldest changes of a log; return their number.

    It may be interrupted at any point and repeated, while others append to the log.

    Args:
        log: the log.
        keys: the key fields of its dataset; empty for a keyless one.
        limits: what is retained.
        locked: locks the commit.

    Raises:
        Damaged: a file is missing, or differs from its checksum.
        Transient: another process commits all the time.
    """
    for _ in range(20):
        table = log.table()
        if table is None or (oldest := _oldest(log, table, limits, is_keyed=bool(keys))) is None:
            return 0
        names, until, rows = oldest["path"].to_list(), _until(oldest), int(oldest["num_records"].sum())
        left = (
            [part for frame in _net(log, oldest, keys) for part in log.write_stored(frame, "retained")] if keys else []
        )
        dropped = rows - sum(part.rows for part in left)
        if not dropped:
            return 0
        reach("retained")
        with locked() as may:
            if not may:
                return 0
            try:
                replace_files(log, table, names, left, dropped, {RETAINED: max(until, retained_since(table) or until)})
            except FileExistsError:
                continue
        reach("dropped")
        return dropped
    raise Transient(f"the change log {log.path.name} was committed to by another process again and again")


def _oldest(log: ChangeLog, table: DeltaTable, limits: RetentionLimits, *, is_keyed: bool) -> pl.DataFrame | None:
    """Return the files whose changes are to be dropped, the oldest first; None for none."""
    files = pl.DataFrame(table.get_add_actions(flatten=True))
    if files.is_empty() or f"max.{AT}" not in files.columns:
        return None
    files = files.sort(f"max.{AT}", "path").with_row_index("_number")
    behind = pl.col("size_bytes").sum() - pl.col("size_bytes").cum_sum() + pl.col("size_bytes")
    is_past = pl.lit(value=False) if limits.before is None else pl.col(f"max.{AT}") < limits.before
    is_much = (behind > limits.size) & (pl.col("_number") < pl.len() - 1) if limits.size else pl.lit(value=False)
    oldest = files.filter(is_past | is_much)
    since = retained_since(table)
    if is_keyed and since is not None:
        fresh = oldest.filter(pl.col(f"max.{AT}") >= EPOCH + timedelta(microseconds=since))
        if fresh["num_records"].sum() <= WORTH * int(oldest["num_records"].sum()):
            return None
    if limits.batch is not None:
        oldest = oldest.head(_delivered(log, oldest, limits.batch))
    return None if oldest.is_empty() else oldest


def _delivered(log: ChangeLog, files: pl.DataFrame, batch: int) -> int:
    """Return how many files, from the first on, have only batches up to one."""
    for number, name in enumerate(files["path"]):
        (path,) = log.files([unquote(name)])
        last = log.stored(path, [BATCH])[BATCH].max()
        if isinstance(last, int) and last > batch:
            return number
    return files.height


def _until(files: pl.DataFrame) -> int:
    """Return the instant after the last change in files, in µs."""
    last = files[f"max.{AT}"].max()
    assert isinstance(last, datetime)
    return (last + MILLISECOND - EPOCH) // timedelta(microseconds=1)


def _net(log: ChangeLog, files: pl.DataFrame, keys: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the changes of files without those that cancel out, key by key."""
    paths = log.files([unquote(each) for each in files["path"]])
    parts = max(1, -(-int(files["num_records"].sum()) // PART_ROWS))
    for part in range(parts):
        found = []
        for path in paths:
            rows = log.stored(path)
            found.append(rows if parts == 1 else rows.filter(shard_of_columns(rows, keys, parts) == part))
        left = _consolidated(pl.concat(found))
        if left.height:
            yield left


def _consolidated(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum the weights of changes of equal rows, without those that cancel out.

    What is left takes effect at the last of them.
    """
    row = [name for name in rows.columns if name not in (AT, WEIGHT, BATCH)]
    total = pl.col(WEIGHT).sum()
    last = [pl.col(name).filter(pl.col(WEIGHT).sign() == total.sign()).last() for name in (AT, BATCH)]
    summed = rows.sort(AT, maintain_order=True).group_by(row, maintain_order=True).agg(*last, total)
    return summed.filter(pl.col(WEIGHT) != 0).select(rows.columns)
