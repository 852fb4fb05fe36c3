"""Change logs: everything that ever happened to a dataset, as an open table.

A change log is a Delta table `(columns…, _at, _weight, _seq, _batch)`, partitioned by the month of `_at`, that anything
which reads Delta can read. Recent batches wait in a *tail* (`umbel.log.changetail`) and are moved to the table in large
commits; batches that are large themselves are written as Parquet parts by whoever made them, and committed by one.

Each commit carries an application transaction, a name and a number that only grows: a commit that was made is not made
again, whoever tries. A reader sees the table, and of the tail what the table does not have yet.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl

from umbel.errors import Transient
from umbel.log.changetail import BATCH, ChangeTail
from umbel.log.nesting import stored, stored_frame, told_frame
from umbel.log.segments import sync_directory
from umbel.types.schema import AT, SEQ

if TYPE_CHECKING:
    from deltalake import DeltaTable

MONTH = "_at_month"
TAIL = "umbel-tail"
"""The application transaction of what was moved from the tail; its number is the last batch moved."""

ROW_GROUP = 131_072
SMALL_FILE = 32 << 20
MANY_FILES = 64
KEPT_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file with changes, not yet part of its table.

    Args:
        path: relative to the table.
        month: its partition.
        size: in bytes.
        rows: how many changes.
        first: the earliest `_at`, in ISO form.
        last: the latest.
    """

    path: str
    month: str
    size: int
    rows: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The change log of a dataset.

    Args:
        path: the folder of its table.
        columns: the columns of a frame of changes, see `Schema.changes`.
        title: what it is, for people who find the table.
    """

    path: Path
    columns: Mapping[str, pl.DataType]
    title: str = ""

    def write(self, changes: pl.DataFrame, batch: int, name: str = "part") -> list[Part]:
        """Write changes beside the table, durably; they are not seen before they are committed.

        Args:
            changes: a frame of changes.
            batch: which batch made them.
            name: what the files' names begin with, for people.
        """
        return self._write(stored_frame(changes).with_columns(pl.lit(batch, pl.Int64).alias(BATCH)), name)

    def commit(self, parts: Sequence[Part], application: str, number: int) -> bool:
        """Make parts part of the table; return False when the transaction was made before.

        Args:
            parts: from `write`, by any process.
            application: the name of the transaction.
            number: its number; parts of a number that is not above the last one are not added.

        Raises:
            Transient: others were committing at the same time.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        table = self._opened()
        if _version(table, application) >= number:
            return False
        once = CommitProperties(app_transactions=[Transaction(application, number)], max_commit_retries=20)
        try:
            table.create_write_transaction(
                [_added(part) for part in parts], "append", table.schema(), [MONTH], commit_properties=once
            )
        except CommitFailedError as error:
            raise Transient(f"the change log {self.path} was committed to by another process: {error}") from error
        return True

    def flush(self, tail: ChangeTail, until: int) -> int:
        """Move the batches of a tail up to one into the table; return how many changes that were.

        It may be interrupted and repeated at any point: readers pass over what is in both.

        Args:
            tail: where they are.
            until: the last batch to move; it and those before it are finished in every shard.
        """
        changes = tail.read(self.reached(TAIL), until)
        if changes is not None and changes.height:
            self.commit(self._write(changes, "tail"), TAIL, until)
        tail.forget(min(until, self.reached(TAIL)))
        return 0 if changes is None else changes.height

    def reached(self, application: str) -> int:
        """Return the number of the last transaction of an application, -1 for none."""
        return _version(self._table(), application)

    def read(
        self,
        tail: ChangeTail | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: pl.Expr | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        through: int | None = None,
    ) -> pl.DataFrame:
        """Return changes, in no particular order.

        Args:
            tail: where recent batches are.
            columns: which columns; those of a frame of changes when None. `_batch` may be asked for.
            predicate: which changes; pushed down to the files.
            since: only changes at this instant or later.
            until: only changes before this instant.
            through: only batches up to this one.
        """
        # The tail first: what is moved while we look is then in the table.
        recent = None if tail is None else tail.read(-1, through)
        table = self._table()
        frames = [pl.LazyFrame(schema=_storage(self.columns))]
        if recent is not None:
            fresh = recent.lazy().filter(pl.col(BATCH) > _version(table, TAIL))
            frames.append(fresh.select(list(_storage(self.columns))))
        frames += [] if table is None else self._scan(table, since, until)
        found = pl.concat(frames)
        for condition in _conditions(since, until, through, predicate):
            found = found.filter(condition)
        wanted = list(self.columns) if columns is None else list(columns)
        return told_frame(found.select(wanted).collect(), self.columns)

    def tidy(self) -> None:
        """Merge small files once there are many, and delete what merging left behind long ago."""
        table = self._table()
        if table is None:
            return
        sizes = pl.DataFrame(table.get_add_actions(flatten=True))["size_bytes"]
        if (sizes < SMALL_FILE // 4).sum() >= MANY_FILES:
            self.compact()
        self.vacuum()

    def compact(self) -> int:
        """Merge small files of a month; return how many were merged."""
        table = self._table()
        if table is None or len(table.file_uris()) < 2:
            return 0
        return int(table.optimize.compact(target_size=SMALL_FILE)["numFilesRemoved"])

    def vacuum(self, kept_for: timedelta = KEPT_FOR) -> list[str]:
        """Delete files that no version of the last days has; return their names.

        Args:
            kept_for: parts may wait so long for their commit, and readers may read so long.
        """
        table = self._table()
        if table is None:
            return []
        hours = int(kept_for.total_seconds() // 3600)
        return table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _write(self, changes: pl.DataFrame, name: str) -> list[Part]:
        in_order = changes.select(list(_storage(self.columns))).sort(AT, SEQ, maintain_order=True)
        by_month = in_order.with_columns(pl.col(AT).dt.truncate("1mo").dt.date().alias(MONTH))
        months = by_month.partition_by(MONTH, as_dict=True, include_key=False, maintain_order=True)
        return [self._write_month(str(month), rows, name) for (month,), rows in months.items()]

    def _write_month(self, month: str, rows: pl.DataFrame, prefix: str) -> Part:
        # A name of its own for every try: a file that is committed must never be replaced.
        name = f"{MONTH}={month}/{prefix}-{uuid.uuid4()}.parquet"
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            rows.write_parquet(file, compression="zstd", compression_level=1, row_group_size=ROW_GROUP)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        sync_directory(path.parent)
        first, last = rows[AT].min(), rows[AT].max()
        assert isinstance(first, datetime)
        assert isinstance(last, datetime)
        return Part(name, month, size, rows.height, _iso(first), _iso(last))

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        return DeltaTable(self.path) if DeltaTable.is_deltatable(str(self.path)) else None

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        found = self._table()
        if found is None:
            self.path.mkdir(parents=True, exist_ok=True)
            empty = pl.DataFrame(schema={**_storage(self.columns), MONTH: pl.Date()}).to_arrow().schema
            name = self.title or None
            DeltaTable.create(str(self.path), schema=empty, mode="ignore", partition_by=[MONTH], name=name)
            found = DeltaTable(self.path)
        return found

    def _scan(self, table: DeltaTable, since: datetime | None, until: datetime | None) -> list[pl.LazyFrame]:
        files = pl.DataFrame(table.get_add_actions(flatten=True))
        if files.is_empty():
            return []
        if since is not None:
            files = files.filter(pl.col(f"max.{AT}").is_null() | (pl.col(f"max.{AT}") >= since))
        if until is not None:
            files = files.filter(pl.col(f"min.{AT}").is_null() | (pl.col(f"min.{AT}") < until))
        paths = [self.path / unquote(path) for path in files["path"]]
        schema = _storage(self.columns)
        return [pl.scan_parquet(paths, schema=schema, extra_columns="ignore", hive_partitioning=False)] if paths else []


def _storage(columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    return {**{name: stored(dtype) for name, dtype in columns.items()}, BATCH: pl.Int64()}


def _version(table: DeltaTable | None, application: str) -> int:
    found = None if table is None else table.transaction_version(application)
    return -1 if found is None else int(found)


def _added(part: Part) -> Any:
    from deltalake.transaction import AddAction

    stats = {"numRecords": part.rows, "minValues": {AT: part.first}, "maxValues": {AT: part.last}, "nullCount": {AT: 0}}
    return AddAction(
        path=part.path,
        size=part.size,
        partition_values={MONTH: part.month},
        modification_time=0,
        data_change=True,
        stats=json.dumps(stats),
    )


def _conditions(
    since: datetime | None, until: datetime | None, through: int | None, predicate: pl.Expr | None
) -> Iterable[pl.Expr]:
    if since is not None:
        yield pl.col(AT) >= since
    if until is not None:
        yield pl.col(AT) < until
    if through is not None:
        yield pl.col(BATCH) <= through
    if predicate is not None:
        yield predicate


def _iso(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
