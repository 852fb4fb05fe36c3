"""Addresses of entries: the hash of keys, the order of stored frames, and their merge.

An address is a 64-bit hash of the encoded key, the encoded key itself and the columns of the table's order. Frames are sorted by
it, so that search and merge are calls over whole columns. Two keys may share a hash: the key is compared on every hit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.errors import InvalidValue
from umbel.state.arrow import Bytes, binary_array, binary_parts
from umbel.state.runs.rules import HASH, KEY, SOURCE
from umbel.state.runs.sorting import gathered, order_of_numbers, packed_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from umbel.state.runs.packing import Ordinals
    from umbel.state.runs.rules import TableSchema

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ONE_BY_ONE = 32
"""Up to so many points are searched one by one: each of the steps for all together costs as much as a search."""
_WORD = 8
_ROWS = 1 << 14
"""Keys that are hashed at once."""
_SEED, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)
_SEED_NUMBER, _STEP_NUMBER, _MIX_NUMBERS = int(_SEED), int(_STEP), tuple(map(int, _MIX))
_ALL = 2**64 - 1
_TURN, _REST = np.uint64(27), np.uint64(37)


def hash_keys(keys: pl.Series) -> Hashes:
    """Return a 64-bit hash of each encoded key.

    It is part of the stored format: the same in every version and process, whatever the library versions. The bytes are
    taken as little-endian words of 8, the last one filled with zeros; each is mixed into the hash by multiplications and
    shifts, and the length starts it.
    """
    offsets, data = binary_parts(binary_array(keys))
    lengths = np.diff(offsets)
    longest = int(lengths.max()) if len(lengths) else 0
    if longest and longest == lengths.min():
        return hash_rows([data[offsets[0] : offsets[-1]].reshape(-1, longest)])
    hashes: Hashes = lengths.astype(np.uint64) * _SEED + _STEP
    padded = np.concatenate((data[: offsets[-1]], np.zeros(_WORD, np.uint8)))
    words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    for at in range(0, longest, _WORD):
        rows = np.flatnonzero(lengths > at)
        spare = np.maximum(_WORD - (lengths[rows] - at), 0).astype(np.uint64) * np.uint64(8)
        hashes[rows] = _next(hashes[rows], words[offsets[rows] + at] & (~np.uint64(0) >> spare))
    return _mixed(hashes)


def hash_rows(parts: Sequence[Bytes]) -> Hashes:
    """Return the hash of each key of equal lengths, as `hash_keys` does.

    Args:
        parts: matrices with the bytes of each key, one behind the other; at least one byte.
    """
    size = sum(part.shape[1] for part in parts)
    hashes = np.empty(len(parts[0]), np.uint64)
    matrix = np.zeros((min(len(hashes), _ROWS), -(-size // _WORD) * _WORD), np.uint8)
    for start in range(0, len(hashes), _ROWS):  # each step reads what the one before has left in the cache
        rows, at = hashes[start : start + _ROWS], 0
        for part in parts:
            matrix[: len(rows), at : at + part.shape[1]] = part[start : start + _ROWS]
            at += part.shape[1]
        found: Hashes = np.full(len(rows), size, np.uint64) * _SEED + _STEP
        for word in np.ascontiguousarray(matrix[: len(rows)].view("<u8").T):
            found = _next(found, word)
        rows[:] = _mixed(found)
    return hashes


@lru_cache(1 << 12)
def hash_key(key: bytes) -> np.uint64:
    """Return the hash of one encoded key, like `hash_keys` but faster for one.

    A query needs it for the shard and for the search.
    """
    found = (len(key) * _SEED_NUMBER + _STEP_NUMBER) & _ALL
    for at in range(0, len(key), _WORD):
        word = int.from_bytes(key[at : at + _WORD], "little")
        mixed = found ^ _mixed_number(word * _STEP_NUMBER & _ALL)
        found = ((mixed << 27 & _ALL | mixed >> 37) * _SEED_NUMBER + _STEP_NUMBER) & _ALL
    return np.uint64(_mixed_number(found))


def _mixed_number(number: int) -> int:
    for factor in _MIX_NUMBERS:
        number = (number ^ number >> 33) * factor & _ALL
    return number ^ number >> 33


def _next(hashes: Hashes, word: Hashes) -> Hashes:
    mixed = _mixed(word * _STEP)
    mixed ^= hashes
    turned: Hashes = mixed << _TURN
    mixed >>= _REST
    turned |= mixed
    turned *= _SEED
    turned += _STEP
    return turned


def _mixed(numbers: Hashes) -> Hashes:
    """Mix numbers in place; return them."""
    for factor in _MIX:
        numbers ^= numbers >> _SHIFT
        numbers *= factor
    numbers ^= numbers >> _SHIFT
    return numbers


def stored_frame(rows: pl.DataFrame, schema: TableSchema, name: str) -> pl.DataFrame:
    """Return rows with the hashes of their keys, sorted by address.

    Rows of one address remain in order.

    Args:
        rows: `_key` and the columns of the schema.
        schema: of the table.
        name: the table's name, for messages.

    Raises:
        InvalidValue: a column is missing or has another type, or a part of the address is null.
    """
    rows = _checked(rows, schema, name, (HASH,))
    if any(rows[column].null_count() for column in (KEY, *schema.order)):
        raise InvalidValue(f"table {name!r}: a null in an address, one of {[KEY, *schema.order]}")
    hashed = rows.select(pl.Series(HASH, hash_keys(rows[KEY])), pl.all())
    return _sorted(hashed, [*schema.order])


def grouped_frame(keys: pl.Series, owners: Ints, rows: pl.DataFrame, schema: TableSchema, name: str) -> pl.DataFrame:
    """Return the rows of some keys as `stored_frame` does.

    Each key is hashed and moved once.

    Args:
        keys: encoded keys in ascending order, each once.
        owners: the index of each row's key.
        rows: the order and the columns of the schema; those of a key are in order.
        schema: of the table.
        name: the table's name, for messages.

    Raises:
        InvalidValue: a column is missing or has another type, or a key is null.
    """
    rows = _checked(rows, schema, name, (HASH, KEY))
    if keys.null_count() or any(rows[column].null_count() for column in schema.order):
        raise InvalidValue(f"table {name!r}: a null in an address, one of {[KEY, *schema.order]}")
    hashes = hash_keys(keys)
    ranks = np.empty(len(keys), np.int64)
    ranks[order_of_numbers(hashes)] = np.arange(len(keys))  # keys that share a hash remain in order
    places = order_of_numbers(ranks[owners])
    position = owners[places]
    found = gathered(rows, places)
    found.insert_column(0, keys.gather(pl.Series(position.astype(np.uint32))).alias(KEY))
    return found.insert_column(0, pl.Series(HASH, hashes[position]))


def numbered_frame(
    keys: pl.Series, hashes: Hashes, owners: Ints, rows: pl.DataFrame, schema: TableSchema, name: str
) -> pl.DataFrame:
    """Return rows as `stored_frame` does, without hashing or sorting them.

    Args:
        keys: encoded keys in ascending order of their hash, then of the key, each once.
        hashes: of the keys.
        owners: the index of each row's key.
        rows: the columns of the schema, by the index of their key and the order.
        schema: of the table.
        name: the table's name, for messages.

    Raises:
        InvalidValue: a column is missing or has another type, or rows are not in order.
    """
    rows = _checked(rows, schema, name, (HASH, KEY))
    if any(rows[column].null_count() for column in schema.order):
        raise InvalidValue(f"table {name!r}: a null in an address, one of {[KEY, *schema.order]}")
    in_order = np.ones(max(0, len(owners) - 1), np.bool_)
    for values in (*(rows[column].to_physical().to_numpy() for column in reversed(list(schema.order))), owners):
        in_order = (values[1:] > values[:-1]) | ((values[1:] == values[:-1]) & in_order)
    if not in_order.all():
        raise InvalidValue(f"table {name!r}: rows are not in the order of their addresses")
    return pl.DataFrame([pl.Series(HASH, hashes[owners]), keys.gather(owners).alias(KEY), *rows.iter_columns()])


def _checked(rows: pl.DataFrame, schema: TableSchema, name: str, others: Sequence[str]) -> pl.DataFrame:
    """Return the stored columns of rows but for some.

    Raises InvalidValue if one is missing or has another type.
    """
    expected = pl.Schema({column: dtype for column, dtype in schema.stored.items() if column not in others})
    try:
        rows = rows.select(expected.names())
    except pl.exceptions.ColumnNotFoundError as error:
        raise InvalidValue(f"table {name!r}: the rows lack a column: {error}") from error
    if rows.schema != expected:
        differ = {column: dtype for column, dtype in rows.schema.items() if expected[column] != dtype}
        raise InvalidValue(f"table {name!r}: columns have other types than the table: {differ}")
    return rows


def _sorted(rows: pl.DataFrame, order: list[str], *, is_sorted_by_parts: bool = False) -> pl.DataFrame:
    """Return rows in the order of their addresses; rows of one address remain in order.

    Args:
        rows: with hashes.
        order: the columns after the key.
        is_sorted_by_parts: True if the rows are some sorted sequences one after the other.
    """
    hashes = rows[HASH].to_numpy()
    # NumPy's stable sort of large numbers merges sequences that it finds
    found = hashes.argsort(kind="stable") if is_sorted_by_parts else order_of_numbers(hashes)
    ordered, keys = hashes[found], gathered(rows.select(KEY), found)[KEY]
    repeats = ordered[1:] == ordered[:-1]
    if (repeats & (keys.slice(1) != keys.slice(0, max(0, len(keys) - 1))).to_numpy()).any():
        return rows.sort(HASH, KEY, *order, maintain_order=True)
    if order:
        groups = np.zeros(len(ordered), np.int64)
        np.cumsum(~repeats, out=groups[1:])
        packed = packed_numbers([groups, *(rows[name].to_physical().to_numpy()[found] for name in order)])
        if packed is None:
            return rows.sort(HASH, *order, maintain_order=True)
        if (packed[1:] < packed[:-1]).any():
            found = found[order_of_numbers(packed)]
    return gathered(rows, found)


def merged_sequences(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return rows sorted by columns of whole numbers and instants, without nulls.

    Rows that are some sorted sequences, one after the other, are merged.
    """
    packed = packed_numbers([rows[name].to_physical().to_numpy() for name in columns])
    if packed is None:
        return rows.sort(*columns, maintain_order=True)
    return gathered(rows, packed.argsort(kind="stable"))  # merges the sequences that it finds, where numbers are large


def merge_frames(
    frames: Sequence[pl.DataFrame], schema: TableSchema, *, complete: bool, horizon: int | None = None
) -> pl.DataFrame:
    """Return the merge of sorted frames by the table's rule.

    Args:
        frames: stored frames of the table, oldest first.
        schema: of the table.
        complete: True if no older entries of these addresses exist elsewhere.
        horizon: of the table, in µs, when the rows are to be stored.
    """
    if len(frames) == 1 and not complete:
        return frames[0]
    rows = _sorted(with_sources(frames), [*schema.order], is_sorted_by_parts=True)
    begins = beginnings(rows, (HASH, KEY, *schema.order))
    return schema.rule.merge(rows, begins, complete=complete, horizon=horizon).drop(SOURCE)


def with_sources(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of frames, each with the number of its frame."""
    numbered = [
        frame.hstack([pl.Series(SOURCE, np.full(frame.height, number, np.uint32))])
        for number, frame in enumerate(frames)
    ]
    return pl.concat(numbered) if len(numbered) > 1 else numbered[0]


def beginnings(rows: pl.DataFrame, columns: Iterable[str]) -> Flags:
    """Return a mask of the rows that differ in a column from the row before."""
    begins = np.zeros(rows.height, np.bool_)
    begins[:1] = True
    for name in columns:
        column = rows[name]
        if column.dtype == pl.Binary:
            begins[1:] |= (column.slice(1) != column.slice(0, max(0, len(column) - 1))).to_numpy()
        else:
            numbers = column.to_physical().to_numpy()
            begins[1:] |= numbers[1:] != numbers[:-1]
    return begins


def expanded(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the row numbers of many ranges in turn, and each row's range."""
    counts = high - low
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    ranges = np.repeat(np.arange(len(low)), counts)
    return np.arange(total) + np.repeat(low - before, counts), ranges


def search_all(values: Hashes, points: Hashes) -> tuple[Ints, Ints]:
    """Return the range of positions of each point among sorted values."""
    low, high = values.searchsorted(points, "left"), values.searchsorted(points, "right")
    return low.astype(np.int64), high.astype(np.int64)


def search(values: NDArray[Any] | Ordinals, bounds: tuple[Ints, Ints], points: NDArray[Any], *, right: bool) -> Ints:
    """Return the insertion position of each point within its own range of sorted values.

    Args:
        values: sorted within each range.
        bounds: first position and end of each point's range.
        points: the values to find.
        right: True for the position after equal values.
    """
    low, high = bounds[0].copy(), bounds[1].copy()
    if len(points) <= ONE_BY_ONE:
        side: Literal["left", "right"] = "right" if right else "left"
        places = zip(low.tolist(), high.tolist(), points, strict=True)
        return np.array([start + values[start:end].searchsorted(point, side) for start, end, point in places], np.int64)
    while (is_open := low < high).any():
        middle = (low + high) >> 1
        found = values[np.minimum(middle, len(values) - 1)]
        goes_on = is_open & ((found <= points) if right else (found < points))
        low = np.where(goes_on, middle + 1, low)
        high = np.where(is_open & ~goes_on, middle, high)
    return low
