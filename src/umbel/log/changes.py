"""Change logs: the complete changelog of a dataset, as an open table.

A change log is a Delta table `(columns…, _at, _weight, _seq, _batch)`, partitioned by the month of `_at`, that any Delta reader
can read. Writes of many months make files of longer periods, whose partition is the first month. Recent batches are stored in
a *tail* (`umbel.log.change_tail`) and are moved to the table in large commits; batches that are large themselves are written as
Parquet parts by the processes that made them, and committed by one.

Each commit carries an application transaction, a name and a number that only grows: a commit that was made is not made
again, by any process. A reader sees the table, and of the tail the batches that the table does not have yet.

Files have a checksum in their names, those made by compaction one in `_sums.json`; a reader knows the minimum version and row
count of the table, and the last batch of the tail. Anything that does not fit is refused, never read.
"""

from __future__ import annotations

import io
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import polars as pl

from umbel.errors import Damaged, Transient
from umbel.log.change_files import (
    MONTH,
    ChangeLogFile,
    added,
    batch_of,
    by_period,
    in_order,
    iso,
    may_have,
    prefix_of,
    unfinished,
)
from umbel.log.change_statistics import differences, spread_of
from umbel.log.change_tail import BATCH, ChangeTail, FileTail
from umbel.log.file_checksums import FileSums
from umbel.log.nesting import stored, stored_frame, to_storage_frame
from umbel.log.reading import RESTORE
from umbel.state import disk
from umbel.types.schema import AT

if TYPE_CHECKING:
    from deltalake import DeltaTable

TAIL = "umbel-tail"
"""The application transaction of batches moved from the tail; its number is the last batch moved."""

ERASED = "umbel-erased"
"""The application transaction of rewriting; its number is the number of rows that are gone."""

TAIL_PARTS = 64
"""In how many parts the rows of a tail are taken to tell when they were."""
ROW_GROUP = 131_072
SMALL_FILE = 32 << 20
MANY_FILES = 64
RETAINED_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Due:
    """The minimum expected content of a change log.

    Args:
        version: of its table, -1 for none.
        rows: in its table.
        last: the last batch that was put into its tail, -1 for none.
    """

    version: int = -1
    rows: int = 0
    last: int = -1


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The change log of a dataset.

    Args:
        path: the folder of its table.
        columns: the columns of a frame of changes, see `Schema.changes`.
        title: the dataset, for people who find the table.
        due: its minimum expected content.
        store: returns the identity of the deployment's store, empty if it is not known; may be called with the one that is
            expected. A new table has it as its description.
    """

    path: Path
    columns: Mapping[str, pl.DataType]
    title: str = ""
    due: Due = Due()
    store: Callable[..., str] = str

    def write(self, changes: pl.DataFrame, batch: int, name: str = "part") -> list[ChangeLogFile]:
        """Write changes beside the table durably; they are not visible before `commit`.

        Args:
            changes: a frame of changes.
            batch: the batch that made them.
            name: part of the files' names, for people.
        """
        rows = stored_frame(changes).with_columns(pl.lit(batch, pl.Int64).alias(BATCH))
        return self._write(rows, f"{prefix_of(batch)}{name}")

    def commit(self, parts: Sequence[ChangeLogFile], application: str, number: int) -> bool:
        """Add parts to the table; return False if the transaction was made before.

        Args:
            parts: from `write`, by any process.
            application: the name of the transaction.
            number: its number; parts of a number that is not above the last one are not added.

        Raises:
            Transient: other processes were committing at the same time.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        with disk.naming(f"the change log {self.path}"):
            table = self._opened()
        if _version(table, application) >= number and self._has_batches(table, parts):
            self._sync_commits()  # the process that made it may have died before it was durable
            return False
        once = CommitProperties(app_transactions=[Transaction(application, number)], max_commit_retries=20)
        try:
            with disk.naming(f"the change log {self.path}"):
                table.create_write_transaction(
                    [added(part) for part in parts], "append", table.schema(), [MONTH], commit_properties=once
                )
        except CommitFailedError as error:
            raise Transient(f"the change log {self.path} was committed to by another process: {error}") from error
        self._sync_commits()
        return True

    def _has_batches(self, table: DeltaTable, parts: Sequence[ChangeLogFile]) -> bool:
        """Return False if parts are of batches without any row in the table.

        The number of a transaction has no checksum: one that is too large would hide that its rows are missing.
        """
        for batch in {batch_of(part.path) for part in parts} - {None}:
            paths = [self.path / name for name in _names(table) if may_have(name, batch, batch)]
            rows = pl.scan_parquet(paths, extra_columns="ignore", hive_partitioning=False) if paths else None
            if rows is None or rows.filter(pl.col(BATCH) == batch).select(BATCH).head(1).collect().is_empty():
                return False
        return True

    def _sync_commits(self) -> None:
        """Make the newest commits durable; their writers did not."""
        folder = self.path / "_delta_log"
        for path in sorted(folder.glob("*.json"))[-2:]:
            disk.sync_file(path)
        disk.sync_directory(folder)

    def flush(self, tail: ChangeTail, until: int) -> int:
        """Move a tail's batches up to `until` into the table; return the number of changes.

        It may be interrupted and repeated at any point: readers skip batches of the tail that are in the table.

        Args:
            tail: the tail.
            until: the last batch to move; it and those before it are finished in every shard.
        """
        self._check_tail(tail, self.reached(TAIL))
        parts = list[ChangeLogFile]()
        try:
            for portion in tail.portions(self.reached(TAIL), until):
                parts += self._write(portion, "tail")
            if parts:
                self.commit(parts, TAIL, until)
        except Exception:
            if self.reached(TAIL) < until:  # else they are in the table, though it may not be durable
                self.discard(parts)
            raise
        tail.forget(min(until, self.reached(TAIL)))
        return sum(part.rows for part in parts)

    def reached(self, application: str) -> int:
        """Return the number of the last transaction of an application, -1 for none."""
        return _version(self.table(), application)

    def read(
        self,
        tail: ChangeTail | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: pl.Expr | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        first: int | None = None,
        through: int | None = None,
    ) -> pl.DataFrame:
        """Return changes, in no particular order.

        Args:
            tail: the tail with recent batches.
            columns: columns to return; those of a frame of changes when None. `_batch` may be requested.
            predicate: filter of the changes; pushed down to the files.
            since: only changes at this instant or later.
            until: only changes before this instant.
            first: only batches from this one on.
            through: only batches up to this one.
        """
        # The tail first: batches moved during the read are then in the table.
        recent = None if tail is None else tail.read(-1, through)
        table = self.table()
        if tail is not None:
            self._check_tail(tail, _version(table, TAIL))
        frames = [pl.LazyFrame(schema=_storage(self.columns))]
        if recent is not None:
            fresh = recent.lazy().filter(pl.col(BATCH) > _version(table, TAIL))
            frames.append(fresh.select(list(_storage(self.columns))))
        frames += [] if table is None else self._scan(table, since, until, first, through)
        found = pl.concat(frames)
        for condition in _conditions(since, until, first, through, predicate):
            found = found.filter(condition)
        requested = list(self.columns) if columns is None else list(columns)
        return to_storage_frame(found.select(requested).collect(), self.columns)

    def tidy(self) -> None:
        """Compact small files if there are many, and delete unreferenced files past retention."""
        table = self.table()
        if table is None:
            return
        sizes = pl.DataFrame(table.get_add_actions(flatten=True))["size_bytes"]
        if (sizes < SMALL_FILE // 4).sum() >= MANY_FILES:
            self.compact()
        self.vacuum()

    def compact(self) -> int:
        """Merge the small files of each month; return the number of files merged."""
        table = self.table()
        if table is None or len(table.file_uris()) < 2:
            return 0
        self._verify(table)  # merged files get checksums of their own
        merged = int(table.optimize.compact(target_size=SMALL_FILE)["numFilesRemoved"])
        merged_table = self.table()
        assert merged_table is not None
        FileSums(self.path).note(_names(merged_table))
        return merged

    def state(self) -> tuple[int, int]:
        """Return the version of the table, -1 for none, and its rows."""
        table = self.table()
        return (-1, 0) if table is None else (table.version(), _rows(table))

    def has(self, application: str, number: int, batch: int) -> bool:
        """Return whether the table has a transaction, or a batch of the tail."""
        table = self.table()
        return _version(table, application) >= number or _version(table, TAIL) >= batch

    def history(self) -> frozenset[str]:
        """Return the names of the files that tell of the table's versions."""
        return frozenset(path.name for path in (self.path / "_delta_log").glob("[0-9_]*"))

    def measure(self, tail: FileTail) -> tuple[int, int]:
        """Return the number of changes and their bytes, without reading the table's files."""
        table = self.table()
        files = pl.DataFrame() if table is None else pl.DataFrame(table.get_add_actions(flatten=True))
        recent = tail.read(_version(table, TAIL))
        rows, size = (0, 0) if files.is_empty() else (files["num_records"].sum(), files["size_bytes"].sum())
        return int(rows) + (0 if recent is None else recent.height), int(size) + tail.size()[1]

    def spread(self, tail: FileTail) -> list[tuple[datetime, datetime, int]]:
        """Return how the changes are spread over time.

        The first and the last instant of each file and of parts of the tail, with the number of rows.
        """
        table = self.table()
        found = [] if table is None else spread_of(table)
        recent = tail.read(_version(table, TAIL))
        if recent is not None:
            ordered = recent[AT].sort()
            parts = ordered.to_frame().with_row_index().group_by(pl.col("index") * TAIL_PARTS // ordered.len())
            found += parts.agg(pl.col(AT).min().alias("first"), pl.col(AT).max(), pl.len()).drop("index").rows()
        return found

    def check(self, tail: ChangeTail | None = None, *, deep: bool = False) -> None:
        """Verify that the minimum expected content exists.

        Args:
            tail: the tail with recent batches.
            deep: True to read everything.

        Raises:
            Damaged: something is missing or damaged.
        """
        table = self.table()
        if tail is not None:
            self._check_tail(tail, _version(table, TAIL))
            if deep:
                tail.read(-1)
        if deep and table is not None:
            self._verify(table)

    def vacuum(self, retained_for: timedelta = RETAINED_FOR) -> list[str]:
        """Delete files that no version within the retention has; return their names.

        Args:
            retained_for: the longest time from a part's write to its commit, and the longest duration of a read.
        """
        table = self.table()
        if table is None:
            return []
        hours = int(retained_for.total_seconds() // 3600)
        begun = [each for each in unfinished(self.path) if _age(each) >= retained_for]
        for path in begun:
            disk.remove(path)
        removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return [*removed, *(path.relative_to(self.path).as_posix() for path in begun)]

    def _write(self, changes: pl.DataFrame, name: str) -> list[ChangeLogFile]:
        ordered, written = in_order(changes.select(list(_storage(self.columns)))), list[ChangeLogFile]()
        try:
            for month, rows in by_period(ordered):
                written.append(self._write_file(month, rows, name))
        except Exception:
            self.discard(written)
            raise
        return written

    def discard(self, parts: Iterable[ChangeLogFile]) -> None:
        """Delete parts that are not to be committed."""
        for part in parts:
            disk.remove(self.path / part.path)

    def write_stored(self, rows: pl.DataFrame, name: str) -> list[ChangeLogFile]:
        """Write rows of `stored` beside the table durably; they are not visible before a commit."""
        return self._write(rows, name)

    def empty(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns without rows, as they are stored."""
        return pl.DataFrame(schema={name: _storage(self.columns)[name] for name in columns})

    def stored(self, path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows of one of its files as they are stored, with `_batch`.

        Args:
            path: of the file.
            columns: the columns to return, all when None.
        """
        schema = _storage(self.columns)
        found = pl.scan_parquet([path], schema=schema, extra_columns="ignore", hive_partitioning=False)
        return found.select(list(schema) if columns is None else list(columns)).collect()

    def _write_file(self, month: str, rows: pl.DataFrame, prefix: str) -> ChangeLogFile:
        # A unique name for every attempt: a file that is committed must never be replaced.
        buffer = io.BytesIO()
        rows.write_parquet(buffer, compression="zstd", compression_level=1, row_group_size=ROW_GROUP)
        data = buffer.getbuffer()
        name = f"{MONTH}={month}/{prefix}-{uuid.uuid4()}-{zlib.crc32(data):08x}.parquet"
        with disk.naming(f"the change log {self.path}"):
            disk.write_new(self.path / name, data)
        first, last = rows[AT].min(), rows[AT].max()
        assert isinstance(first, datetime)
        assert isinstance(last, datetime)
        return ChangeLogFile(name, month, len(data), rows.height, iso(first), iso(last))

    def table(self) -> DeltaTable | None:
        """Return the table, None for none yet.

        Raises:
            Damaged: it cannot be opened, lacks expected content, or is that of another deployment.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(self.path) if DeltaTable.is_deltatable(str(self.path)) else None
            version, rows = (-1, 0) if table is None else (table.version(), _rows(table) if self.due.rows else 0)
        except (DeltaError, ValueError, OSError) as error:
            reason = str(error).partition("\n")[0]  # what follows is a trace of the library's calls
            raise self._damaged(f"its table cannot be opened: {reason:.300}") from error
        if version < self.due.version or rows < self.due.rows:
            due = f"version {self.due.version} with {self.due.rows} rows"
            raise self._damaged(f"its table is of version {version} with {rows} rows, and must be of {due} at least")
        made_for = table.metadata().description if table is not None else None
        if made_for and self.store(made_for) not in ("", made_for):
            raise self._damaged("its table is that of another deployment, or from before `umbel rebuild --all`")
        return table

    def _damaged(self, what: str) -> Damaged:
        return Damaged(
            f"the change log {self.path.name} of {self.title or 'a dataset'} is damaged: {what}", hint=RESTORE
        )

    def _check_tail(self, tail: ChangeTail, reached: int) -> None:
        """Verify that the tail has the batches missing in the table."""
        if not isinstance(tail, FileTail):
            return  # the store checks its own tail
        missing = tail.missing(self.due.last, reached)
        if missing is not None and missing > self.reached(TAIL):  # else it was moved meanwhile
            raise self._damaged(f"batch {missing} is missing in its tail")

    def _verify(self, table: DeltaTable) -> None:
        """Verify each file of the table, and what the table says of it."""
        self.files(_names(table))
        for difference in differences(self.path, table):
            raise self._damaged(difference)

    def files(self, names: Iterable[str]) -> list[Path]:
        """Return the paths of files of the table, each verified against its checksum."""
        sums = FileSums(self.path)
        for name in names:
            if (error := sums.error(name)) is not None:
                raise self._damaged(error)
        return [self.path / name for name in names]

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        found = self.table()
        if found is None:
            disk.make_folder(self.path)
            empty = pl.DataFrame(schema={**_storage(self.columns), MONTH: pl.Date()}).to_arrow().schema
            name = self.title or None
            store = self.store() or None
            DeltaTable.create(
                str(self.path), schema=empty, mode="ignore", partition_by=[MONTH], name=name, description=store
            )
            self._sync_commits()
            disk.sync_directory(self.path)
            found = DeltaTable(self.path)
        return found

    def _scan(
        self,
        table: DeltaTable,
        since: datetime | None,
        until: datetime | None,
        first_batch: int | None,
        last_batch: int | None,
    ) -> list[pl.LazyFrame]:
        files = pl.DataFrame(table.get_add_actions(flatten=True))
        if files.is_empty():
            return []
        first, last = f"min.{AT}", f"max.{AT}"
        unknown = [
            pl.lit(None, stored(self.columns[AT])).alias(name) for name in (first, last) if name not in files.columns
        ]
        files = files.with_columns(unknown)  # compaction computes statistics of a table's first 32 columns alone
        if since is not None:
            files = files.filter(pl.col(last).is_null() | (pl.col(last) >= since))
        if until is not None:
            files = files.filter(pl.col(first).is_null() | (pl.col(first) < until))
        files = files.sort(first)  # rows that arrived in the order of time need less sorting
        names = list(map(unquote, files["path"]))
        paths = self.files([name for name in names if may_have(name, first_batch, last_batch)])
        schema = _storage(self.columns)
        return [pl.scan_parquet(paths, schema=schema, extra_columns="ignore", hive_partitioning=False)] if paths else []


def _storage(columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    return {**{name: stored(dtype) for name, dtype in columns.items()}, BATCH: pl.Int64()}


def _age(path: Path) -> timedelta:
    """Return the time since a file was written to; no time if it is gone."""
    try:
        return timedelta(seconds=time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return timedelta.min


def _names(table: DeltaTable) -> list[str]:
    """Return the names of the files of a table, relative to it."""
    return [unquote(each) for each in pl.DataFrame(table.get_add_actions(flatten=True))["path"]]


def _rows(table: DeltaTable) -> int:
    """Return the number of rows of a table, with those that were erased."""
    files = pl.DataFrame(table.get_add_actions(flatten=True))
    return (0 if files.is_empty() else int(files["num_records"].sum())) + max(0, _version(table, ERASED))


def _version(table: DeltaTable | None, application: str) -> int:
    found = None if table is None else table.transaction_version(application)
    return -1 if found is None else int(found)


def _conditions(
    since: datetime | None, until: datetime | None, first: int | None, through: int | None, predicate: pl.Expr | None
) -> Iterable[pl.Expr]:
    if since is not None:
        yield pl.col(AT) >= since
    if until is not None:
        yield pl.col(AT) < until
    if first is not None:
        yield pl.col(BATCH) >= first
    if through is not None:
        yield pl.col(BATCH) <= through
    if predicate is not None:
        yield predicate
