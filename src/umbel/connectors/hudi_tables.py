"""Hudi tables: their commits, the file groups as of one, and the rows of these.

A file group has slices, one after the other: a base file, and, in tables of type `MERGE_ON_READ`, log files with what later
commits changed in it. A compaction writes both as the base file of the next slice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa

from umbel.connectors.delta_tables import with_size
from umbel.connectors.versioned_source import KIND
from umbel.errors import InvalidValue, Transient, UmbelError
from umbel.types.arrow import check_texts

AT_ONCE = 65_536
GroupId = tuple[str, str]
"""The partition and the id of a file group."""
_LIBRARY_ERROR = "HudiCoreError"
"""The error of the library, which has no name to import."""
_NONE = (None, "", "null")
_DROPPED = "hoodie.datasource.write.drop.partition.columns"
_RECORD_KEY = "_hoodie_record_key"
_KEY = ("hoodie.table.recordkey.fields", "hoodie.table.partition.fields")
"""The properties that name the columns of the record key and of the partition."""
_LOG = re.compile(r"\.(?P<group>.+)_(?P<instant>\d+)\.log\.")
_MOVES = ("CLUSTER", "COMPACT", "LOG_COMPACT")


@dataclass(frozen=True, slots=True)
class HudiSlice:
    """The files of a file group as of one commit.

    Args:
        base: the path of the base file, below the table; empty if there is none.
        logs: those of the log files, in order. Later commits may have written to some.
        created: the instant from which on the group has these files.
        merged: returns the rows as of the commit, in batches of Arrow.
    """

    base: str
    logs: tuple[str, ...]
    created: str
    merged: Callable[[], Iterator[Any]] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class HudiFile:
    """The rows of a slice that a commit adds or removes.

    Args:
        slice: the slice.
        schema: of the columns to read, in Arrow.
        kind: insert for rows that came, delete for those that went.
    """

    slice: HudiSlice
    schema: Any
    kind: str = "insert"


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The timeline's record of one commit.

    Args:
        instant: its name.
        written: the file groups that it wrote to: each with the path of the file, and the commit before of the group's base file.
        replaced: the file groups that are not in force from then on.
        only_moves: True if it changed no row: it compacted or clustered.
    """

    instant: str
    written: Sequence[tuple[GroupId, str, str | None]]
    replaced: frozenset[GroupId]
    only_moves: bool

    @classmethod
    def of(cls, instant: str, content: Mapping[str, Any]) -> CommitRecord:
        """Return the record of a commit's metadata."""
        stats = ((part, each) for part, found in (content.get("partitionToWriteStats") or {}).items() for each in found)
        written = [((part, each["fileId"]), each.get("path") or "", each.get("prevCommit")) for part, each in stats]
        replaced = (content.get("partitionToReplaceFileIds") or {}).items()
        only_moves = bool(content.get("compacted")) or content.get("operationType") in _MOVES
        return cls(instant, written, frozenset((part, each) for part, ids in replaced for each in ids), only_moves)

    @property
    def groups(self) -> set[GroupId]:
        """The file groups that it wrote or replaced."""
        return {group for group, _, _ in self.written} | self.replaced

    def check(self, slices: Mapping[GroupId, HudiSlice], known: Mapping[str, Any]) -> None:
        """Check that the files that it wrote are there.

        Each is in one of its group's slices as of this commit, or as of a later one.

        Args:
            slices: as of that commit.
            known: the complete commits.

        Raises:
            FileNotFoundError: some were deleted.
            Transient: they are of a slice whose compaction is not complete yet.
        """
        for group, path, _ in self.written:
            found, log = slices.get(group), _LOG.match(path.rpartition("/")[2])
            if not path:
                continue
            if log is None:
                if (
                    found is None
                    or found.created < self.instant
                    or (found.created == self.instant and found.base != path)
                ):
                    raise FileNotFoundError(path)
                continue
            begun = log["instant"]
            if found is not None and (path in found.logs or found.created > begun):
                continue
            if begun != self.instant and begun not in known:  # tables of version 6 name them by the compaction before
                raise Transient(
                    f"commit {self.instant} is read when the compaction {begun} is complete",
                    hint="run it, or see why it does not end",
                )
            raise FileNotFoundError(path)

    def check_before(self, before: Mapping[GroupId, HudiSlice], after: Mapping[GroupId, HudiSlice]) -> None:
        """Check that the files that it replaced or added to are there.

        Args:
            before: the slices as of the commit before.
            after: those as of this one.

        Raises:
            FileNotFoundError: some were deleted.
        """
        if not self.replaced <= before.keys():
            raise FileNotFoundError
        for group, path, former in self.written:
            found = before.get(group)
            if path.rpartition("/")[2].startswith("."):
                slice_now = after.get(group)
                is_there = slice_now is None or slice_now.created >= self.instant or found is not None
            else:
                is_there = former in (*_NONE, self.instant) or (found is not None and found.created == former)
            if not is_there:
                raise FileNotFoundError(path)


@dataclass(frozen=True)
class HudiPlace:
    """A table in a folder or a bucket.

    Args:
        title: of it, for messages.
        address: returns its address and storage options.
    """

    title: str
    address: Callable[[], tuple[str, dict[str, str]]] = field(repr=False)
    _records: dict[str, CommitRecord] = field(default_factory=dict, init=False, repr=False, compare=False)

    def opened(self) -> Any:
        """Return the table as it is now.

        Raises:
            InvalidValue: there is none, or it cannot be read.
            Transient: its storage does not answer.
        """
        from hudi import HudiTableBuilder

        uri, options = self.address()
        lower = {name.lower(): value for name, value in options.items() if name.startswith("AWS_")}
        with self.described():
            table = HudiTableBuilder.from_base_uri(uri).with_storage_options(lower).build()
        if str(table.hudi_options().get(_DROPPED, "")).lower() == "true":
            raise InvalidValue(f"{self.title}: its files lack the partition columns", hint=f"{_DROPPED} = false")
        return table

    def key(self, table: Any) -> list[str]:
        """Return the columns that identify a row.

        A record key is unique within its partition.
        """
        options = table.hudi_options()
        names = (each.partition(":")[0].strip() for name in _KEY for each in str(options.get(name, "")).split(","))
        return [each for each in names if each] if options.get(_KEY[0]) else []

    def instants(self, table: Any) -> dict[str, Any]:
        """Return the complete commits in order, by their names."""
        listed = table.get_timeline()
        with self.described():
            found = [
                *listed.get_completed_commits(),
                *listed.get_completed_deltacommits(),
                *listed.get_completed_replacecommits(),
            ]
        return dict(sorted((each.timestamp, each) for each in found))

    def record(self, table: Any, instant: Any) -> CommitRecord:
        """Return what a complete commit did."""
        name = instant.timestamp
        if name not in self._records:
            with self.described():
                content = json.loads(table.get_timeline().get_instant_metadata_in_json(instant))
            self._records[name] = CommitRecord.of(name, content)
        return self._records[name]

    def check(
        self,
        table: Any,
        instants: Mapping[str, Any],
        instant: str,
        slices: Mapping[GroupId, HudiSlice],
        groups: set[GroupId] | None = None,
    ) -> None:
        """Check that slices have the files that the timeline's commits wrote.

        Args:
            table: the table.
            instants: its complete commits, in order.
            instant: the name of one.
            slices: as of it.
            groups: those to check, all when None.

        Raises:
            FileNotFoundError: files were deleted.
            Transient: rows are in a slice whose compaction is not complete yet.
        """
        for name in self._records.keys() - instants.keys():
            del self._records[name]
        replaced = set[GroupId]()
        for record in reversed([self.record(table, each) for name, each in instants.items() if name <= instant]):
            in_force = [
                each for each in record.written if each[0] not in replaced and (groups is None or each[0] in groups)
            ]
            replace(record, written=in_force).check(slices, instants)
            replaced |= record.replaced

    def slices(self, table: Any, instant: str) -> dict[GroupId, HudiSlice]:
        """Return the slices as of a commit, by file group."""
        from hudi import HudiReadOptions

        options = HudiReadOptions().with_as_of_timestamp(instant)
        with self.described():
            found = table.get_file_slices(options)
            reader = table.create_file_group_reader_with_options(options)
        return {(each.partition_path, each.file_id): _slice(each, reader) for each in found}

    def schema(self, table: Any) -> Any:
        """Return the columns of the table, in Arrow."""
        with self.described():
            return table.get_schema()

    def rows(self, file: HudiFile, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a slice, always in the same order, with their kind.

        Args:
            file: of the table.
            types: the columns to read.

        Raises:
            FileNotFoundError: it was deleted.
        """
        schema = pa.schema([file.schema.field(name) for name in types])
        with self.described():
            for batch in self._merged(file.slice, schema) if file.slice.logs else self._stored(file.slice, schema):
                check_texts(batch, self.title)
                yield pl.DataFrame(pl.from_arrow(batch)).with_columns(pl.lit(file.kind).alias(KIND))

    def _stored(self, stored: HudiSlice, schema: Any) -> Iterator[Any]:
        import pyarrow.dataset as ds

        fragment = ds.ParquetFileFormat().make_fragment(stored.base, with_size(self.address(), stored.base)[1])
        for batch in fragment.to_batches(schema=schema, batch_size=AT_ONCE, use_threads=False, batch_readahead=1):
            yield pa.Table.from_batches([batch])

    def _merged(self, stored: HudiSlice, schema: Any) -> Iterator[Any]:
        found = [pa.table(batch) for batch in stored.merged()]
        if not found:
            return
        rows = pa.concat_tables(found, promote_options="default")
        if _RECORD_KEY in rows.column_names:
            rows = rows.sort_by(_RECORD_KEY)
        columns = [
            rows[each.name].cast(each.type) if each.name in rows.column_names else pa.nulls(len(rows), each.type)
            for each in schema
        ]
        chosen = pa.Table.from_arrays(columns, schema=schema)
        for start in range(0, len(chosen), AT_ONCE):
            yield chosen.slice(start, AT_ONCE)

    @contextmanager
    def described(self) -> Iterator[None]:
        """Turn errors of the storage and the library into umbel's; their text may quote credentials."""
        try:
            yield
        except FileNotFoundError:
            raise
        except pa.ArrowInvalid as error:
            reason = str(error).partition("\n")[0][:200]
            raise InvalidValue(f"{self.title}: a file cannot be read: {reason}", hint="see what wrote it") from None
        except OSError:
            raise Transient(f"{self.title}: its storage cannot be read", hint="see that it can be reached") from None
        except Exception as error:
            if type(error).__name__ != _LIBRARY_ERROR:
                raise
            raise self._translated(str(error)) from None

    def _translated(self, text: str) -> UmbelError:
        if "hoodie.properties" in text and "not found" in text:
            return InvalidValue(f"{self.title}: there is no Hudi table", hint="create it first")
        if text.startswith("Storage error"):
            return Transient(f"{self.title}: its storage cannot be read", hint="see that it can be reached")
        if "merger of its own" in text:
            return InvalidValue(
                f"{self.title}: its rows are merged by a class of its own, which is not read",
                hint="use one of Hudi's own merge modes, or read a copy",
            )
        return InvalidValue(f"{self.title}: it cannot be read: {text[:200]}", hint="see what wrote it")


def _slice(found: Any, reader: Any) -> HudiSlice:
    base = found.base_file_relative_path() if found.base_file_name else ""
    logs = tuple(found.log_files_relative_paths())
    return HudiSlice(base, logs, found.creation_instant_time, lambda: reader.read_file_slice_stream(found))
