"""Tables of rows over a shard, read and written by operators as whole frames."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import polars as pl

from umbel.errors import InvalidValue
from umbel.state.collected import INSTANT, TIME, CollectedTable, StoredRows
from umbel.state.port import MAX_TABLE, check_name
from umbel.state.runs.points import RowSlice, slices_of
from umbel.state.runs.rules import KEY, KEY_ID, NET_WEIGHT, REMOVED, CollectRule, ReplaceRule, TableSchema
from umbel.state.runs.section import check_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from umbel.state.numbered_keys import KeyRanges, NumberedKeys
    from umbel.state.port import Reader, Transaction
    from umbel.state.runs.addresses import Flags, Ints

NUMBER = KEY_ID
"""The column with a key's index among the requested keys, in place of the key."""

_TIMED = (KEY, TIME)
Kind = Literal["table", "timed", "collected"]
Expiry = tuple[str, int]
"""When rows expire: a column, an instant or whole µs since the epoch, and how many µs after it."""


class State:
    """One operator's tables in one shard.

    Args:
        reader: a transaction of the shard, or a snapshot to read only.
        state_id: the operator's state id.
    """

    __slots__ = ("reader", "state_id")

    def __init__(self, reader: Reader, state_id: str) -> None:
        self.reader = reader
        self.state_id = state_id

    def table(self, name: str, columns: Mapping[str, Any], expires: Expiry | None = None) -> Table:
        """Return the table `name`, of groups of rows addressed by a key.

        Args:
            name: at most 24 ascii characters, unique within the operator.
            columns: name and Polars type of each column; always the same for one table.
            expires: when rows expire, never earlier than those they replace.
        """
        return Table(self.reader, self._define(name, columns, "table", expires), columns)

    def timed(self, name: str, columns: Mapping[str, Any], expires: Expiry | None = None) -> TimedTable:
        """Return the table `name`, of groups of rows addressed by a key and an instant.

        Args:
            name: at most 24 ascii characters, unique within the operator.
            columns: name and Polars type of each column; always the same for one table.
            expires: when rows expire, never earlier than those they replace.
        """
        return TimedTable(self.reader, self._define(name, columns, "timed", expires), columns)

    def folded(self, name: str, schema: TableSchema) -> FoldedTable:
        """Return the table `name`, of groups of rows addressed by a key.

        It is written without reading it.

        Args:
            name: at most 24 ascii characters, unique within the operator.
            schema: its columns, and the function that merges the rows of a key.
        """
        full = f"{self.state_id}/{name}"
        self.reader.define(full, schema)
        return FoldedTable(self.reader, full, schema.columns)

    def collected(self, name: str, columns: Mapping[str, Any]) -> CollectedTable:
        """Return the table `name`, of weighted rows addressed by a key and an instant.

        It is written without reading it.

        Args:
            name: at most 24 ascii characters, unique within the operator.
            columns: name and Polars type of each column, but for the weight; always the same for one table.
        """
        return CollectedTable(self.reader, self._define(name, columns, "collected"), (*columns, NET_WEIGHT))

    def of(self, state_id: str) -> State:
        """Return the state of another operator in the same shard."""
        return State(self.reader, state_id)

    def _define(self, name: str, columns: Mapping[str, Any], kind: Kind, expires: Expiry | None = None) -> str:
        full = f"{self.state_id}/{name}"
        self.reader.define(full, _schema(name, tuple(columns.items()), kind, expires))
        return full


@lru_cache(maxsize=1024)
def _schema(name: str, columns: tuple[tuple[str, Any], ...], kind: Kind, expires: Expiry | None) -> TableSchema:
    check_name("the table name", name, MAX_TABLE)
    dtypes = {column: dtype() if isinstance(dtype, type) else dtype for column, dtype in sorted(columns)}
    for column, dtype in dtypes.items():
        check_type(column, dtype)
    if kind == "collected":
        return TableSchema(dtypes, CollectRule(), {TIME: INSTANT}, expires=pl.col(TIME))
    order = {TIME: INSTANT} if kind == "timed" else {}
    if expires is None:
        return TableSchema(dtypes, ReplaceRule(), order)
    column, after = expires
    at = (pl.col(column).cast(pl.Int64) + after).cast(INSTANT)
    return TableSchema(dtypes, ReplaceRule(in_order=True), order, expires=at)


class _KeyedRows(StoredRows):
    """A table of groups of rows, addressed by an encoded key.

    Keys come from `umbel.state.keys.encode_keys`.
    """

    __slots__ = ()

    def numbered(self, keys: pl.Series) -> pl.DataFrame:
        """Return the groups of `keys` as [`NUMBER`, *columns], with key indexes instead of keys.

        Args:
            keys: encoded keys, each once.
        """
        found = self._reader.lookup(self._name, keys)
        return self._ordered(found, found[NUMBER])


class FoldedTable(_KeyedRows):
    """Groups of rows, addressed by an encoded key, whose rows a function merges."""

    __slots__ = ()

    def append(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Add rows to the groups of some keys.

        Args:
            keys: encoded keys in ascending order, each once.
            rows: [`NUMBER`, *columns], merged among themselves; those of a key are in order.
        """
        owners = rows[NUMBER].to_numpy().astype(np.int64)
        cast("Transaction", self._reader).append_groups(self._name, keys, owners, rows)

    def slices(self, keys: Sequence[bytes]) -> list[list[RowSlice]]:
        """Return the stored rows of some keys for `PointRecords`.

        Those of each run and block are apart.
        """
        return self._reader.slices(self._name, keys)


class Table(_KeyedRows):
    """Groups of rows, addressed by an encoded key, each written as a whole."""

    __slots__ = ()

    def get(self, keys: pl.Series) -> pl.DataFrame:
        """Return the existing groups of `keys`: [_key, *columns], sorted by key.

        The rows of a group are in the order in which they were written.
        """
        requested = keys.unique().sort()
        found = self.numbered(requested)
        return self._ordered(found, requested.gather(found[NUMBER]).alias(KEY))

    def found(self, keys: pl.Series) -> pl.DataFrame:
        """Return the existing groups of `keys`: [`NUMBER`, _key, *columns].

        Args:
            keys: encoded keys, each once.
        """
        found = self._reader.lookup(self._name, keys)
        return self._ordered(found, found[NUMBER], keys.gather(found[NUMBER]).alias(KEY))

    def write(self, rows: pl.DataFrame) -> None:
        """Replace the groups of the keys of some rows by these rows: [_key, *columns]."""
        cast("Transaction", self._reader).put(self._name, rows, rows.select(KEY).clear())

    def replace(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Replace the groups of `keys` by those of `rows`.

        Args:
            keys: every key touched; one without rows is removed.
            rows: [_key, *columns]; the rows of a key are stored in this order.

        Raises:
            InvalidValue: a row's key is not among `keys`.
        """
        self._put(keys.alias(KEY).to_frame(), rows)

    def renumber(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Replace the groups of `keys` by those of `rows`, in the form of `numbered`.

        Args:
            keys: every key touched, in ascending order, each once; one without rows is removed.
            rows: [`NUMBER`, *columns], in the order of the keys.
        """
        owners = rows[NUMBER].to_numpy().astype(np.int64)
        cast("Transaction", self._reader).put_groups(self._name, keys, owners, rows)

    def groups(self, keys: Sequence[bytes]) -> list[RowSlice | None]:
        """Return the rows of some keys; None for a key without rows."""
        return self._reader.groups(self._name, keys)

    def slices(self, keys: Sequence[bytes]) -> list[list[RowSlice]]:
        """Return the rows of some keys for `PointRecords`."""
        return slices_of(self.groups(keys))


class TimedTable(StoredRows):
    """Groups of rows, addressed by an encoded key and an instant.

    Keys come from `umbel.state.keys.encode_keys`.
    """

    __slots__ = ()

    def scan(self, ranges: pl.DataFrame, *, before: bool = False, after: bool = False) -> pl.DataFrame:
        """Return the entries of keys within time ranges.

        Args:
            ranges: [_key, _low, _high]: low <= time < high; null is unbounded.
            before: add the last entry before each range.
            after: add the first entry at or after the end of each range.

        Returns:
            [_key, _time, *columns] sorted by key and time, each entry once.
        """
        keys, low, high = (ranges[name] for name in (KEY, "_low", "_high"))
        found = self._reader.ranges(self._name, keys, low, high, before=before, after=after, once=True)
        found = found.sort(_TIMED, maintain_order=True)
        return self._ordered(found, found[KEY], found[TIME])

    def numbered(
        self, keys: pl.Series, ranges: KeyRanges, *, before: bool = False, after: bool = False
    ) -> pl.DataFrame:
        """Return the entries of keys within time ranges, each once.

        Its columns are [`NUMBER`, _time, *columns]; it is sorted by the first two.

        Args:
            keys: encoded keys, each once.
            ranges: of these keys.
            before: add the last entry before each range.
            after: add the first entry at or after the end of each range.
        """
        owners, low, high = (pl.Series(values) for values in (ranges.owners, ranges.low, ranges.high))
        bounds = keys.gather(owners), low.cast(INSTANT), high.cast(INSTANT)
        found = self._reader.ranges(self._name, *bounds, before=before, after=after, once=True)
        number = owners.gather(found[NUMBER]).cast(pl.UInt32)
        return self._ordered(found, number.alias(NUMBER), found[TIME]).sort(NUMBER, TIME, maintain_order=True)

    def entries(
        self, keys: NumberedKeys, ranges: KeyRanges, *, before: bool = False, after: bool = False
    ) -> tuple[Ints, pl.DataFrame]:
        """Return the entries of numbered keys within time ranges, sorted by range and time.

        Args:
            keys: the keys.
            ranges: of these keys; the ranges of a key do not overlap, with `before` or `after` each key has one.
            before: add the last entry before each range.
            after: add the first entry at or after the end of each range.

        Returns:
            The number of each entry's range, and the entries: [_time, *columns].
        """
        found = self._reader.ranges_of(self._name, keys, ranges, before=before, after=after)
        return found[KEY_ID].to_numpy(), self._ordered(found, found[TIME])

    def floor(self, points: pl.DataFrame) -> pl.DataFrame:
        """Return for each point its latest entry at or before the point's time.

        Args:
            points: [_key, _time].

        Returns:
            [_point, _time, *columns]: `_point` is the row number (UInt32) in `points`, ascending; points without an
            entry are absent.

        Raises:
            InvalidValue: a time is null.
        """
        if points[TIME].null_count():
            raise InvalidValue(f"table {self._name!r}: a null in {TIME!r}")
        after = points[TIME].dt.offset_by("1us")
        found = self._reader.ranges(self._name, points[KEY], after, after, before=True)
        return self._ordered(found, found[NUMBER].alias("_point"), found[TIME])

    def until(self, instant: int) -> pl.DataFrame:
        """Return the entries of all keys up to an instant, in µs: [_key, _time, *columns]."""
        found = self._reader.before(self._name, instant + 1)
        return self._ordered(found, found[KEY], found[TIME])

    def all(self) -> pl.DataFrame:
        """Return every entry of this shard: [_key, _time, *columns], sorted by key and time."""
        found = self._reader.before(self._name, 2**63 - 1).sort(_TIMED, maintain_order=True)
        return self._ordered(found, found[KEY], found[TIME])

    def replace(self, entries: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replace the groups of `entries` by those of `rows`.

        Args:
            entries: [_key, _time] of every entry touched; one without rows is removed.
            rows: [_key, _time, *columns].

        Raises:
            InvalidValue: a row's key and time are not among `entries`.
        """
        self._put(entries.select(_TIMED), rows)

    def put(self, rows: pl.DataFrame, removed: pl.DataFrame) -> None:
        """Replace groups of rows, and remove others.

        Args:
            rows: [_key, _time, *columns].
            removed: [_key, _time] of entries without rows, none of which `rows` has.
        """
        cast("Transaction", self._reader).put(self._name, rows, removed)

    def renumber(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Replace the groups at the addresses of rows in the form of `numbered`.

        Args:
            keys: encoded keys in ascending order, each once.
            rows: [`NUMBER`, _time, *columns], sorted by the first two.
        """
        owners = rows[NUMBER].to_numpy().astype(np.int64)
        cast("Transaction", self._reader).put_groups(self._name, keys, owners, rows)

    def write(self, rows: pl.DataFrame) -> None:
        """Replace the groups at the addresses of some rows by these rows: [_key, _time, *columns]."""
        self.put(rows, rows.select(_TIMED).clear())

    def write_numbered(self, keys: NumberedKeys, owners: Ints, rows: pl.DataFrame, gone: Flags | None = None) -> None:
        """Replace the entries at the addresses of rows sorted by key number and time.

        Args:
            keys: the keys.
            owners: the number of each row's key.
            rows: [_time, *columns], one for each address.
            gone: mask of the entries that are removed; their columns must be null.
        """
        marks = pl.Series(REMOVED, np.zeros(rows.height, np.bool_) if gone is None else gone)
        cast("Transaction", self._reader).append_numbered(self._name, keys, owners, rows.with_columns(marks))

    def latest(self, keys: Sequence[bytes], instants: Sequence[int]) -> list[RowSlice | None]:
        """Return the latest entry of keys at or before instants in µs; None for none."""
        return [self._reader.latest(self._name, key, instant + 1) for key, instant in zip(keys, instants, strict=True)]
