"""Tables of rows over a store, read and written by kernels as whole frames."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from umbel.errors import InvalidValue
from umbel.state.arrow import binary_array, join_rows, to_series
from umbel.state.keys import decode_time, encode_time
from umbel.state.port import LAST, Entry, Range, Reader, Transaction
from umbel.state.rows import Counts, RowCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NUMBER = "_key_id"
"""The column with a key's index among the requested keys, in place of the key."""

_TIME = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AFTER_ALL = b"\xff" * (_TIME + 1)


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

    def table(self, name: str, columns: Mapping[str, Any]) -> Table:
        """Return the table `name`.

        Args:
            name: at most 24 ascii characters, unique within the operator.
            columns: name and Polars type of each column; always the same for one table.
        """
        return Table(self.reader, self.state_id, name, _codec(tuple(columns.items())))

    def of(self, state_id: str) -> State:
        """Return the state of another operator in the same shard."""
        return State(self.reader, state_id)


@lru_cache(maxsize=1024)
def _codec(columns: tuple[tuple[str, Any], ...]) -> RowCodec:
    return RowCodec(dict(columns))


class Table:
    """Groups of rows, addressed by an encoded key, or by a key and an instant.

    A table is used in one of the two forms only. Keys come from `umbel.state.keys.encode_keys`.
    """

    __slots__ = ("_codec", "_name", "_reader", "_state_id")

    def __init__(self, reader: Reader, state_id: str, name: str, codec: RowCodec) -> None:
        self._reader, self._state_id, self._name, self._codec = reader, state_id, name, codec

    # entries addressed by key

    def get(self, keys: pl.Series) -> pl.DataFrame:
        """Return the existing groups of `keys`: [_key, *columns], sorted by key.

        The rows of a group are in the order in which they were written.
        """
        requested = _sorted_unique(keys).to_list()
        found = self._reader.get(self._state_id, self._name, requested)
        return self._rows([entry for entry in zip(requested, found, strict=True) if entry[1] is not None])

    def numbered(self, keys: pl.Series) -> pl.DataFrame:
        """Return the groups of `keys` as [`NUMBER`, *columns], with key indexes instead of keys.

        Args:
            keys: encoded keys, each once and in order.
        """
        found = self._reader.get(self._state_id, self._name, keys.to_list())
        rows, counts = self._codec.decode([value for value in found if value is not None])
        known = np.fromiter((value is not None for value in found), np.bool_, len(found))
        numbers = np.repeat(np.flatnonzero(known).astype(np.uint32), counts)
        return pl.DataFrame([pl.Series(NUMBER, numbers), *rows.get_columns()])

    def between(self, low: bytes | None = None, high: bytes | None = None, *, limit: int | None = None) -> pl.DataFrame:
        """Return the groups with low <= key < high (None: unbounded): [_key, *columns].

        They are sorted by key, at most `limit` of them.
        """
        bounds = (low or b"", LAST if high is None else high)
        return self._rows(self._reader.scan(self._state_id, self._name, [bounds], limit=limit)[0])

    def all(self) -> pl.DataFrame:
        """Return every group of this shard: [_key, *columns], sorted by key."""
        return self.between()

    def replace(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Replace the groups of `keys` by those of `rows`.

        Args:
            keys: every key touched; one without rows is removed.
            rows: [_key, *columns]; the rows of a key are stored in this order.

        Raises:
            InvalidValue: a row's key is not among `keys`.
        """
        self._put(_sorted_unique(keys), rows.get_column("_key"), rows)

    def renumber(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Replace the groups of `keys` by those of `rows`, in the form of `numbered`.

        Args:
            keys: every key touched, each once and in order; one without rows is removed.
            rows: [`NUMBER`, *columns], in the order of the keys.
        """
        numbers = rows[NUMBER].to_numpy()
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        present = numbers[starts]
        gone = np.ones(len(keys), np.bool_)
        gone[present] = False
        self._write(keys.gather(present), np.diff(starts, append=len(numbers)), rows, keys.filter(pl.Series(gone)))

    # entries addressed by key and instant

    def scan(self, ranges: pl.DataFrame, *, before: bool = False, after: bool = False) -> pl.DataFrame:
        """Return the entries of keys within time ranges.

        Args:
            ranges: [_key, _low, _high]: low <= time < high; null is unbounded.
            before: add the last entry before each range.
            after: add the first entry at or after the end of each range.

        Returns:
            [_key, _time, *columns] sorted by key and time, each entry once.
        """
        ranges = ranges.sort("_key")
        keys = ranges.get_column("_key").to_list()
        lows = _bounds(keys, ranges.get_column("_low"), b"")
        highs = _bounds(keys, ranges.get_column("_high"), _AFTER_ALL)
        found = self._scan(list(zip(lows, highs, strict=True)))
        if before:
            found += self._scan(list(zip(keys, lows, strict=True)), limit=1, reverse=True)
        if after:
            ends = [key + _AFTER_ALL for key in keys]
            found += self._scan(list(zip(highs, ends, strict=True)), limit=1)
        return self._timed(sorted(dict(chain.from_iterable(found)).items()))

    def floor(self, points: pl.DataFrame) -> pl.DataFrame:
        """Return for each point its latest entry at or before the point's time.

        Args:
            points: [_key, _time].

        Returns:
            [_point, _time, *columns]: `_point` is the row number (UInt32) in `points`, ascending; points without an
            entry are absent.
        """
        addresses = _addresses(points)
        order = addresses.arg_sort()
        keys = points.get_column("_key").gather(order).to_list()
        ranges = [(key, end + b"\x00") for key, end in zip(keys, addresses.gather(order).to_list(), strict=True)]
        found = self._scan(ranges, limit=1, reverse=True)
        hits = np.fromiter(map(len, found), np.bool_, len(found))
        entries = list(chain.from_iterable(found))
        rows, counts = self._decoded(entries)
        numbers = order.filter(pl.Series(hits)).cast(pl.UInt32).alias("_point")
        return _beside([numbers, _times(entries)], counts, rows).sort("_point", maintain_order=True)

    def all_at(self) -> pl.DataFrame:
        """Return every entry of this shard: [_key, _time, *columns], sorted by key and time."""
        return self._timed(self._scan([(b"", LAST)])[0])

    def replace_at(self, entries: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replace the groups of `entries` by those of `rows`.

        Args:
            entries: [_key, _time] of every entry touched; one without rows is removed.
            rows: [_key, _time, *columns].

        Raises:
            InvalidValue: a row's key and time are not among `entries`.
        """
        self._put(_sorted_unique(_addresses(entries)), _addresses(rows), rows)

    # used by both forms

    def _scan(self, ranges: Sequence[Range], *, limit: int | None = None, reverse: bool = False) -> list[list[Entry]]:
        return self._reader.scan(self._state_id, self._name, ranges, limit=limit, reverse=reverse)

    def _put(self, touched: pl.Series, addresses: pl.Series, rows: pl.DataFrame) -> None:
        keys, counts, rows = _groups(addresses, rows)
        gone = touched.clear() if keys.equals(touched) else touched.filter(~touched.is_in(keys.implode()))
        if len(gone) + len(keys) != len(touched):
            raise InvalidValue(f"table {self._name!r}: rows were given for keys that are not among those replaced")
        self._write(keys, counts, rows, gone)

    def _write(self, keys: pl.Series, counts: Counts, rows: pl.DataFrame, gone: pl.Series) -> None:
        writer = cast("Transaction", self._reader)
        if len(keys):
            writer.put(self._state_id, self._name, keys.to_list(), self._codec.encode(rows, counts))
        if len(gone):
            writer.delete(self._state_id, self._name, gone.to_list())

    def _decoded(self, entries: Sequence[tuple[bytes, bytes | None]]) -> tuple[pl.DataFrame, Counts]:
        return self._codec.decode([cast("bytes", value) for _, value in entries])

    def _rows(self, entries: Sequence[tuple[bytes, bytes | None]]) -> pl.DataFrame:
        rows, counts = self._decoded(entries)
        keys = pl.Series("_key", [key for key, _ in entries], pl.Binary)
        return _beside([keys], counts, rows)

    def _timed(self, entries: Sequence[Entry]) -> pl.DataFrame:
        rows, counts = self._decoded(entries)
        keys = pl.Series("_key", [key[:-_TIME] for key, _ in entries], pl.Binary)
        return _beside([keys, _times(entries)], counts, rows)


def _sorted_unique(keys: pl.Series) -> pl.Series:
    ordered = keys.sort()
    return ordered.filter(_is_first(ordered))


def _is_first(ordered: pl.Series) -> pl.Series:
    """Return a mask of the rows at which a new value begins."""
    return ordered.ne_missing(ordered.shift(1))


def _groups(addresses: pl.Series, rows: pl.DataFrame) -> tuple[pl.Series, Counts, pl.DataFrame]:
    """Return the distinct addresses in order, each one's row count, and the sorted rows."""
    if not addresses.is_sorted():
        rows = rows.with_columns(addresses.alias("_address")).sort("_address", maintain_order=True)
        addresses = rows.get_column("_address")
    first = _is_first(addresses)
    starts = first.arg_true().to_numpy()
    return addresses.filter(first), np.diff(np.append(starts, len(addresses))), rows


def _addresses(entries: pl.DataFrame) -> pl.Series:
    times = encode_time(entries.get_column("_time"))
    return to_series(join_rows([binary_array(entries.get_column("_key")), binary_array(times)]), "_address")


def _bounds(keys: Sequence[bytes], instants: pl.Series, when_open: bytes) -> list[bytes]:
    """Return each key followed by its encoded instant; `when_open` for a null instant."""
    times = encode_time(instants.fill_null(_EPOCH)).to_list()
    is_open = instants.is_null().to_list()
    return [key + (when_open if empty else time) for key, time, empty in zip(keys, times, is_open, strict=True)]


def _times(entries: Iterable[Entry]) -> pl.Series:
    joined = b"".join([key[-_TIME:] for key, _ in entries])
    return decode_time(np.frombuffer(joined, np.uint8), "_time")


def _beside(addresses: list[pl.Series], counts: Counts, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of groups, preceded by their address columns."""
    return pl.DataFrame([*(_repeated(column, counts) for column in addresses), *rows.get_columns()])


def _repeated(column: pl.Series, counts: Counts) -> pl.Series:
    if (counts == 1).all():
        return column
    return column.gather(np.repeat(np.arange(len(counts)), counts))
