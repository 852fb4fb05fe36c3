"""Equality deletes of Iceberg tables, and the data files and rows that they apply to.

A file of positions applies to data files up to its own sequence number, a file of values to those with a lower one. Both apply to
data files of their own partition; a file of values without a partition applies to all. Columns are found by the numbers of their
fields, in whatever schema they were, and null equals null.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.staging import OWN
from umbel.errors import InvalidValue

if TYPE_CHECKING:
    import pyarrow as pa

CACHE_BYTES = 256 << 20
"""Bytes of deleted values that stay in memory while the files of one plan are read."""
ROWS_AT_ONCE = 1 << 18
"""Rows of deletions that are compared at once."""
REWRITE = "rewrite the table's data files (compaction) before it is read"
_MANIFESTS_AT_ONCE = 8
_NUMBERS = frozenset({"int", "long", "date", "time", "timestamp", "timestamptz"})
_ROW = f"{OWN}row"

Ranges = Mapping[int, tuple[str, Any, Any, bool]]
"""Of fields by number: the unit, the least and the greatest value, and whether null may be among them."""


@dataclass(frozen=True, eq=False)
class EqualityDelete:
    """A file whose rows say which rows of data files are deleted.

    Args:
        file: its description in pyiceberg.
        sequence: it applies to data files with a lower one.
        ids: the numbers of the fields that are compared.
        ranges: of its values.
    """

    file: Any
    sequence: int
    ids: tuple[int, ...]
    ranges: Ranges = field(repr=False)

    @property
    def name(self) -> str:
        """Its address."""
        return str(self.file.file_path)


class DeletedValues:
    """The rows of equality delete files; some stay in memory.

    Args:
        title: of the table, for messages.
        table: of pyiceberg.
    """

    def __init__(self, title: str, table: Any) -> None:
        self.title, self.fields = title, fields_of(table)
        self._io, self._cached, self._room = (
            table.io,
            dict[tuple[str, tuple[int, ...]], list[pl.DataFrame]](),
            CACHE_BYTES,
        )

    def parts(self, deletes: Iterable[EqualityDelete]) -> Iterator[pl.DataFrame]:
        """Yield the rows of files that compare the same fields, many at once."""
        waiting, rows = list[pl.DataFrame](), 0
        for delete in deletes:
            for part in self._of(delete):
                waiting.append(part)
                rows += part.height
                if rows >= ROWS_AT_ONCE:
                    yield pl.concat(waiting)
                    waiting, rows = [], 0
        if rows:
            yield pl.concat(waiting)

    def _of(self, delete: EqualityDelete) -> Iterator[pl.DataFrame]:
        key = delete.name, delete.ids
        if key in self._cached:
            yield from self._cached[key]
            return
        parts, size = list[pl.DataFrame](), 0
        for part in self._read(delete):
            yield part
            size += int(part.estimated_size())
            if size <= self._room:
                parts.append(part)
            else:
                parts.clear()
        if size <= self._room:
            self._cached[key] = parts
            self._room -= size

    def _read(self, delete: EqualityDelete) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file as they lie in it.

        Raises:
            FileNotFoundError: it was deleted.
            InvalidValue: it is damaged, or lacks a field.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyiceberg.exceptions import ResolveError
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        try:
            with (
                self._io.new_input(delete.name).open() as stream,
                pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False) as opened,
            ):
                names, types = self._columns(delete, opened.schema_arrow)
                for batch in opened.iter_batches(ROWS_AT_ONCE, columns=names):
                    arrays = [batch[name].cast(kind) for name, kind in zip(names, types, strict=True)]
                    yield pl.DataFrame([comparable(*each) for each in zip(delete.ids, arrays, strict=True)])
        except (
            ValueError,
            KeyError,
            pa.ArrowNotImplementedError,
            ResolveError,
            UnsupportedPyArrowTypeException,
        ) as error:
            if isinstance(error, InvalidValue):
                raise
            reason = (str(error).strip().splitlines() or [""])[0][:300]
            raise InvalidValue(
                f"{self.title}: the equality delete file {delete.name} cannot be read: {reason}",
                hint="see what wrote it",
            ) from None

    def _columns(self, delete: EqualityDelete, schema: pa.Schema) -> tuple[list[str], list[pa.DataType]]:
        """Return the names and target types of a file's compared columns."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
        from pyiceberg.schema import promote

        found = {int((each.metadata or {}).get(b"PARQUET:field_id", -1)): each for each in schema}
        if missing := [each for each in delete.ids if each not in found]:
            raise InvalidValue(
                f"{self.title}: the equality delete file {delete.name} lacks field {missing[0]}, by which it deletes",
                hint=REWRITE,
            )
        columns = [found[each] for each in delete.ids]
        written, types = pyarrow_to_schema(pa.schema(columns)), list[pa.DataType]()
        for column, each in zip(columns, delete.ids, strict=True):
            before, now = written.find_field(each).field_type, self.fields[each].field_type
            target = None if before == now else promote(before, now)
            types.append(column.type if target is None else schema_to_pyarrow(target))
        return [each.name for each in columns], types


@dataclass(frozen=True, eq=False)
class AppliedDeletes:
    """The equality delete files that apply to a data file.

    Args:
        files: in the order of their sequence numbers.
        values: has their rows.
    """

    files: tuple[EqualityDelete, ...] = ()
    values: DeletedValues | None = field(default=None, repr=False)

    @property
    def ids(self) -> frozenset[int]:
        """The numbers of the fields that are compared."""
        return frozenset(each for delete in self.files for each in delete.ids)

    def without(self, others: AppliedDeletes) -> AppliedDeletes:
        """Return those that are not among others."""
        known = {each.name for each in others.files}
        return AppliedDeletes(tuple(each for each in self.files if each.name not in known), self.values)

    def narrowed(self, file: Any) -> AppliedDeletes:
        """Return those that may delete rows of a data file, by the statistics of both."""
        if self.values is None:
            return self
        ranges = ranges_of(file, self.values.fields)
        files = tuple(each for each in self.files if not are_apart(ranges, each.ranges, each.ids))
        return AppliedDeletes(files, self.values)

    def matching(self, keys: pl.DataFrame) -> pl.Series:
        """Return which rows are deleted.

        Args:
            keys: the columns `column_of(id)` of the rows.
        """
        found = pl.repeat(False, keys.height, dtype=pl.Boolean, eager=True)
        by_ids = dict[tuple[int, ...], list[EqualityDelete]]()
        for each in self.files:
            by_ids.setdefault(each.ids, []).append(each)
        for ids, deletes in by_ids.items():
            names = [column_of(each) for each in ids]
            numbered = keys.select(names).with_row_index(_ROW)
            for part in self.values.parts(deletes) if self.values is not None and keys.height else ():
                rows = numbered.join(part, on=names, how="semi", nulls_equal=True)[_ROW]
                found = found.scatter(rows, True) if rows.len() else found
        return found


NO_DELETES = AppliedDeletes()


@dataclass(frozen=True, eq=False)
class DeleteIndex:
    """The equality delete files of a snapshot, by partition.

    Args:
        values: has their rows.
        is_global: whether a partition spec has no partitions, by its number.
    """

    values: DeletedValues
    is_global: Mapping[int, bool]
    _by_partition: dict[Hashable, list[EqualityDelete]] = field(default_factory=dict)
    _known: dict[Hashable, AppliedDeletes] = field(default_factory=dict)

    def add(self, entries: Iterable[Any]) -> None:
        """Add the entries of delete files."""
        for entry in sorted(entries, key=lambda each: (each.sequence_number or 0, each.data_file.file_path)):
            file = entry.data_file
            key = None if self.is_global[file.spec_id] else (file.spec_id, file.partition)
            ranges = ranges_of(file, self.values.fields)
            delete = EqualityDelete(file, entry.sequence_number or 0, self._ids(file), ranges)
            self._by_partition.setdefault(key, []).append(delete)

    def applied_to(self, entry: Any) -> AppliedDeletes:
        """Return the deletes that may apply to a data file.

        Files with equal ones get the same object.
        """
        if not self._by_partition:
            return NO_DELETES
        partition = (entry.data_file.spec_id, entry.data_file.partition)
        lists = [self._by_partition.get(key, []) for key in (None, partition)]
        starts = [bisect_right(each, entry.sequence_number or 0, key=lambda delete: delete.sequence) for each in lists]
        key = (starts[0], partition if starts[1] < len(lists[1]) else None, starts[1])
        if key not in self._known:
            files = [delete for each, start in zip(lists, starts, strict=True) for delete in each[start:]]
            self._known[key] = AppliedDeletes(tuple(sorted(files, key=lambda each: each.sequence)), self.values)
        return self._known[key]

    def _ids(self, file: Any) -> tuple[int, ...]:
        """Return the fields that a file compares; refuse one that cannot be read."""
        from pyiceberg.manifest import FileFormat

        ids, fields = tuple(sorted(set(file.equality_ids or ()))), self.values.fields
        subject = f"{self.values.title}: rows were deleted by the equality delete file {file.file_path}"
        if file.file_format != FileFormat.PARQUET:
            raise InvalidValue(
                f"{subject} of {file.file_format.value.capitalize()}, which is not read",
                hint=f"set write.delete.format.default=parquet, and {REWRITE}",
            )
        if not ids:
            raise InvalidValue(f"{subject}, which names no fields to compare", hint=REWRITE)
        for each in ids:
            if each not in fields or not fields[each].field_type.is_primitive:
                raise InvalidValue(f"{subject}, by field {each}, which is no column of a simple type", hint=REWRITE)
        return ids


def planned(table: Any, snapshot: Any, values: DeletedValues) -> list[tuple[Any, AppliedDeletes]]:
    """Return the data files of a snapshot with the deletes that apply to each.

    They are tasks of pyiceberg, which have the position deletes.

    Args:
        table: of pyiceberg.
        snapshot: of the table.
        values: reads the rows of equality deletes.

    Raises:
        InvalidValue: a delete file cannot be read.
    """
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.delete_file_index import DeleteFileIndex

    manifests = snapshot.manifests(table.io)
    with ThreadPoolExecutor(_MANIFESTS_AT_ONCE) as pool:
        listed = list(pool.map(lambda manifest: manifest.fetch_manifest_entry(table.io), manifests))
    by_content = dict[Any, list[Any]]()
    for entry in (entry for each in listed for entry in each):
        by_content.setdefault(entry.data_file.content, []).append(entry)
    positions = DeleteFileIndex()
    for entry in by_content.get(DataFileContent.POSITION_DELETES, []):
        positions.add_delete_file(entry, partition_key=entry.data_file.partition)
    is_global = {
        number: all(str(each.transform) == "void" for each in spec.fields) for number, spec in table.specs().items()
    }
    equality = DeleteIndex(values, is_global)
    equality.add(by_content.get(DataFileContent.EQUALITY_DELETES, []))
    found = list[tuple[Any, AppliedDeletes]]()
    for entry in by_content.get(DataFileContent.DATA, []):
        file = entry.data_file
        task = FileScanTask(file, positions.for_data_file(entry.sequence_number or 0, file, file.partition))
        found.append((task, equality.applied_to(entry)))
    return found


def column_of(number: int) -> str:
    """Return the name of the column with a field that is compared."""
    return f"field_{number}"


def comparable(number: int, array: pa.Array) -> pl.Series:
    """Return an Arrow column as one that can be compared."""
    import pyarrow as pa

    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    return pl.Series(column_of(number), pl.from_arrow(array))


def fields_of(table: Any) -> dict[int, Any]:
    """Return the columns of a table by field number, as the last schema has them."""
    return {each.field_id: each for schema in [*table.schemas().values(), table.schema()] for each in schema.fields}


def ranges_of(file: Any, fields: Mapping[int, Any]) -> Ranges:
    """Return the bounds of a file's fields, from its statistics.

    Args:
        file: its description in pyiceberg.
        fields: of the table, by number.
    """
    lower, upper, nulls = file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    found = dict[int, tuple[str, Any, Any, bool]]()
    for number in lower.keys() & upper.keys() & fields.keys():
        kind, low, high = str(fields[number].field_type), lower[number], upper[number]
        if kind == "string":
            found[number] = (kind, low, high, nulls.get(number) != 0)
        elif kind in _NUMBERS and len(low) == len(high):
            # a promoted date has other units than the timestamps after it; integers have the same
            unit = "integer" if kind in {"int", "long"} else f"{kind} of {len(low)}"
            least, greatest = (int.from_bytes(each, "little", signed=True) for each in (low, high))
            found[number] = (unit, least, greatest, nulls.get(number) != 0)
    return found


def are_apart(some: Ranges, others: Ranges, ids: Iterable[int]) -> bool:
    """Return whether two files surely have no equal values in all of some fields."""
    for each in ids:
        if each in some and each in others:
            unit, low, high, has_null = some[each]
            other_unit, other_low, other_high, other_null = others[each]
            if unit == other_unit and not (has_null and other_null) and (high < other_low or other_high < low):
                return True
    return False
