"""Point lookups in runs and blocks: rows of single keys as NumPy arrays.

They make no frame: for one key that would take most of the time.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from umbel.state.runs.addresses import Hashes, expanded, hash_key, hash_keys
from umbel.state.runs.point_source import PointSource
from umbel.state.runs.stored_columns import NullBits, StoredColumn, fixed_values, zeroed
from umbel.state.runs.stored_lists import StoredLists, joined
from umbel.state.values import Array, Flags, Ints, Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PLAIN = pl.CompatLevel.oldest()
ONE_BY_ONE = 24
"""Up to so many keys are searched one by one; more together, which takes as long for one as for all of these."""
BY_SLICES = 16
"""Up to so many groups of rows are cut out one by one; the rows of more are gathered from each source."""


class RowSlice(NamedTuple):
    """Adjacent rows of a source.

    Args:
        source: a run or a block.
        low: the first row.
        high: the end.
    """

    source: PointSource
    low: int
    high: int


def newest_group(sources: Sequence[PointSource], at: np.uint64, key: bytes) -> RowSlice | None:
    """Return the rows of a key in a table without an order, if any.

    Args:
        sources: the runs and blocks of the table, oldest first.
        at: the hash of the key.
        key: the encoded key.
    """
    for source in reversed(sources):
        found = source.find_key(at, key)
        if found is not None:
            return None if source.is_removed(found[0]) else RowSlice(source, *found)
    return None


def newest_before(sources: Sequence[PointSource], order: str, at: np.uint64, key: bytes, bound: int) -> RowSlice | None:
    """Return the last entry of a key before a bound, if any.

    Args:
        sources: the runs and blocks of the table, oldest first.
        order: the first column of the order.
        at: the hash of the key.
        key: the encoded key.
        bound: the value of the order from which on entries do not count.
    """
    known = [(source, *found) for source in sources if (found := source.find_key(at, key)) is not None]
    while True:
        best: tuple[int, RowSlice] | None = None
        for source, low, high in known:
            values = source.ordinals(order, low, high)[low:high]
            end = int(values.searchsorted(bound))
            value = int(values[end - 1]) if end else 0
            if end and (best is None or value >= best[0]):
                best = value, RowSlice(source, low + int(values.searchsorted(value)), low + end)
        if best is None or not best[1].source.is_removed(best[1].low):
            return None if best is None else best[1]
        bound = best[0]


def newest_groups(sources: Sequence[PointSource], keys: Sequence[bytes]) -> list[RowSlice | None]:
    """Return the rows of keys in a table without an order; None for none.

    Args:
        sources: the runs and blocks of the table, oldest first.
        keys: the encoded keys.
    """
    if len(keys) <= ONE_BY_ONE:
        return [newest_group(sources, hash_key(key), key) for key in keys]
    requested = pl.Series(keys, dtype=pl.Binary)
    hashes, left = hash_keys(requested), np.arange(len(keys))
    found: list[RowSlice | None] = [None] * len(keys)
    for source in reversed(sources):
        hits, low, high = _groups_in(source, requested[left], hashes[left])
        alive = ~source.removed(low)
        for place, start, end in zip(
            left[hits[alive]].tolist(), low[alive].tolist(), high[alive].tolist(), strict=True
        ):
            found[place] = RowSlice(source, start, end)
        left = np.delete(left, hits)
        if not len(left):
            break
    return found


def all_groups(sources: Sequence[PointSource], keys: Sequence[bytes]) -> list[list[RowSlice]]:
    """Return the rows of keys in each source of a table without an order.

    Args:
        sources: the runs and blocks of the table, oldest first.
        keys: the encoded keys.
    """
    if len(keys) <= ONE_BY_ONE:
        return [_in_each(sources, hash_key(key), key) for key in keys]
    requested = pl.Series(keys, dtype=pl.Binary)
    hashes = hash_keys(requested)
    found: list[list[RowSlice]] = [[] for _ in keys]
    for source in sources:
        hits, low, high = _groups_in(source, requested, hashes)
        for place, start, end in zip(hits.tolist(), low.tolist(), high.tolist(), strict=True):
            found[place].append(RowSlice(source, start, end))
    return found


def _groups_in(source: PointSource, keys: pl.Series, hashes: Hashes) -> tuple[Ints, Ints, Ints]:
    """Return the indices of the keys that a source has, and their rows.

    The rows are the first one and the end of each.
    """
    low, high = source.find(hashes)
    (hits,) = (low < high).nonzero()
    keyed = keys[hits]
    own = ((source.keys(low[hits]) == keyed) & (source.keys(high[hits] - 1) == keyed)).to_numpy()
    for hit in hits[~own].tolist():  # keys that share a hash
        low[hit], high[hit] = source.find_key(hashes[hit], keys[hit]) or (0, 0)
    hits = hits[low[hits] < high[hits]]
    return hits, low[hits], high[hits]


def _in_each(sources: Sequence[PointSource], at: np.uint64, key: bytes) -> list[RowSlice]:
    return [RowSlice(source, *rows) for source in sources if (rows := source.find_key(at, key)) is not None]


def slices_of(groups: Sequence[RowSlice | None]) -> list[list[RowSlice]]:
    """Return groups of rows in the form of `all_groups`."""
    return [[] if each is None else [each] for each in groups]


class PointRecords:
    """The rows of some groups, one group after the other, as NumPy arrays.

    In columns of fixed width null is 0.

    Args:
        groups: the rows of each group, in slices of any sources.
        dtypes: the types of the columns.
    """

    def __init__(self, groups: Sequence[Sequence[RowSlice]], dtypes: Mapping[str, pl.DataType]) -> None:
        self._slices = [each for group in groups for each in group]
        self._dtypes = dtypes
        self.counts = np.array([sum(each.high - each.low for each in group) for group in groups], np.int64)
        self.are_merged = all(len(group) < 2 for group in groups)
        self._columns: dict[str, Array] = {}
        self._nulls: dict[tuple[NullBits | None, ...], Flags] = {}
        self._parts, self._order = _gathered(self._slices)

    def __getitem__(self, name: str) -> Array:
        """Return a column: numbers as they are stored, for a decimal two halves."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._read(name)
        return found

    def _read(self, name: str) -> Array:
        if len(self._parts) == 1:  # as most lookups of one key
            source, rows = self._parts[0]
            columns = [source.column(name)]
            found = columns[0].raw(rows)
            if not columns[0].has_nulls:
                return found
        else:
            columns = [source.column(name) for source, _ in self._parts]
            parts = [column.raw(rows) for column, (_, rows) in zip(columns, self._parts, strict=True)]
            found = self._joined(parts or [_no_values(self._dtypes[name])])
        nulls = self._nulls_of(columns)
        return found if nulls is None else zeroed(found, nulls)

    @property
    def owners(self) -> Ints:
        """The group index of each row."""
        if len(self.counts) == 1:
            return np.zeros(self.counts[0], np.int64)
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def nulls(self, name: str) -> Flags:
        """Return the null mask of a column of fixed width."""
        found = self._nulls_of([source.column(name) for source, _ in self._parts])
        return np.zeros(int(self.counts.sum()), np.bool_) if found is None else found

    def _nulls_of(self, columns: Sequence[StoredColumn]) -> Flags | None:
        """Return the null mask of a column by its parts.

        None if no column has nulls. Columns that share their bitmaps share the mask.
        """
        bits = tuple([column.null_bits for column in columns])
        if not any(bits):
            return None
        found = self._nulls.get(bits)
        if found is None:
            pairs = zip(columns, self._parts, strict=True)
            found = self._nulls[bits] = self._joined([column.nulls(rows) for column, (_, rows) in pairs])
        return found

    def lists(self, name: str, rows: Ints) -> tuple[Values, Ints]:
        """Return the elements of a list column at some rows, and each list's length.

        A null list has no elements.
        """
        if len(self._parts) == 1:
            source, places = self._parts[0]
            return source.lists(name).at(_rows_at(places, rows if self._order is None else self._order[rows]))
        if not self._parts:
            return StoredLists.of(pl.Series(dtype=self._dtypes[name])).at(rows)
        return joined(self._lists_in_parts(name, rows if self._order is None else self._order[rows]))

    def _lists_in_parts(self, name: str, rows: Ints) -> Iterator[tuple[Ints, Values, Ints]]:
        """Yield the positions of the rows of each part, and what `lists` returns for these."""
        start = 0
        for source, places in self._parts:
            count = places.stop - places.start if isinstance(places, slice) else len(places)
            (mine,) = ((rows >= start) & (rows < start + count)).nonzero()
            yield mine, *source.lists(name).at(_rows_at(places, rows[mine] - start))
            start += count

    def binaries(self, name: str, rows: Ints) -> list[bytes | None]:
        """Return the bytes of a column at some rows."""
        found: list[bytes | None] = self._array(name).take(pa.array(rows)).to_pylist()
        return found

    def _array(self, name: str) -> pa.Array:
        parts = [source.taken(name, rows) for source, rows in self._parts]
        if not parts:
            return pl.Series(dtype=self._dtypes[name]).to_arrow(compat_level=_PLAIN)
        if len({part.type for part in parts}) > 1:  # the offsets of some are short
            kind = pl.Series(dtype=self._dtypes[name]).to_arrow(compat_level=_PLAIN).type
            parts = [part.cast(kind) for part in parts]
        found = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return found if self._order is None else found.take(pa.array(self._order))

    def _joined(self, parts: list[Array]) -> Array:
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return found if self._order is None else found[self._order]


def _gathered(slices: Sequence[RowSlice]) -> tuple[list[tuple[PointSource, Ints | slice]], Ints | None]:
    """Return the rows of slices by source, and the order that restores the slices."""
    if len(slices) == 1:
        source, low, high = slices[0]
        return [(source, slice(low, high))], None
    if not slices:
        return [], None
    sources = {id(each.source): each.source for each in slices}
    numbers = {source: number for number, source in enumerate(sources)}
    lows = np.array([each.low for each in slices], np.int64)
    highs = np.array([each.high for each in slices], np.int64)
    rows, ranges = expanded(lows, highs)
    if len(sources) < 2:
        return [(slices[0].source, rows)], None
    owners = np.array([numbers[id(each.source)] for each in slices])[ranges]
    apart = owners.argsort(kind="stable")
    order = np.empty_like(apart)
    order[apart] = np.arange(len(apart))
    rows, ends = rows[apart], np.bincount(owners, minlength=len(sources)).cumsum().tolist()
    places = [rows[start:end] for start, end in pairwise([0, *ends])]
    return list(zip(sources.values(), places, strict=True)), order


def _rows_at(places: Ints | slice, positions: Ints) -> Ints:
    return positions + places.start if isinstance(places, slice) else places[positions]


@cache
def _no_values(dtype: pl.DataType) -> Array:
    return fixed_values(pl.Series(dtype=dtype).to_arrow(compat_level=_PLAIN))


def frame_of(rows: Sequence[RowSlice], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the rows of slices of one table as a frame, in order.

    Args:
        rows: of any sources of the table.
        columns: those requested, name and type.
    """
    if not rows:
        return pl.DataFrame(schema=columns)
    names = list(columns)
    if len(rows) <= BY_SLICES:
        frames = [each.source.slice(each.low, each.high, names) for each in rows]
        return frames[0] if len(frames) == 1 else pl.concat(frames, rechunk=True)
    parts, order = _gathered(rows)
    frames = [source.take(places).select(names) for source, places in parts if isinstance(places, np.ndarray)]
    found = frames[0] if len(frames) == 1 else pl.concat(frames)
    return found if order is None else found[order]
