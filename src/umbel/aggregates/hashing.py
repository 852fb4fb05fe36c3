"""A 64-bit hash of values, stable across processes and versions.

The hashes are part of the stored state of unique counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.errors import InvalidType

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x8C9F3A5D1B7E2460)
_ONE, _TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hash64(column: pl.Series) -> pl.Series:
    """Return the hash of each value (UInt64); null is a value too.

    Raises:
        InvalidType: values of the column's type cannot be hashed.
    """
    return pl.Series(column.name, _hashes(column))


def _hashes(column: pl.Series) -> Hashes:
    hashes = _values(column)
    return np.where(column.is_null().to_numpy(), _NULL, hashes) if column.null_count() else hashes


def _values(column: pl.Series) -> Hashes:
    kind = column.dtype
    if kind.is_float():
        numbers = column.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0  # −0.0 is 0.0
        return _mix(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64))
    if kind.is_temporal():
        return _values(column.to_physical())
    if kind == pl.Boolean or kind.is_integer():
        return _mix(column.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64))
    if isinstance(kind, pl.Decimal):
        return _decimals(column.fill_null(0))
    if kind in (pl.String, pl.Binary):
        return _text(column)
    if isinstance(kind, pl.List):
        return _lists(column)
    if isinstance(kind, pl.Array):
        return _lists(column.arr.to_list())
    if isinstance(kind, pl.Struct):
        parts = [_hashes(part) for part in column.struct.unnest().iter_columns()]
        return _mix(
            sum((_mix(part + _at(position)) for position, part in enumerate(parts)), np.zeros(len(column), np.uint64))
        )
    raise InvalidType(f"column '{column.name}' of type {kind} cannot be hashed")


def _mix(words: NDArray[Any]) -> Hashes:
    """Apply the SplitMix64 finaliser: every output bit depends on every input bit."""
    words = words.astype(np.uint64) + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _ONE
    words = (words ^ (words >> np.uint64(27))) * _TWO
    mixed: Hashes = words ^ (words >> np.uint64(31))
    return mixed


def _at(position: Any) -> Any:
    """Return an offset per position, so that equal words at different positions hash differently."""
    with np.errstate(over="ignore"):
        return (np.uint64(1) + np.asarray(position).astype(np.uint64)) * _GOLDEN


def _decimals(column: pl.Series) -> Hashes:
    array = column.rechunk().to_arrow()
    words = np.frombuffer(array.buffers()[1], np.uint64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
    return _mix(_mix(words[:, 0]) + _mix(words[:, 1] + _at(1)))


def _text(column: pl.Series) -> Hashes:
    binary = column.cast(pl.Binary).fill_null(b"")
    lengths = binary.bin.size().to_numpy().astype(np.int64)
    data = np.frombuffer(b"".join(binary.to_list()), np.uint8)
    ends = lengths.cumsum()
    positions = np.arange(len(data)) - np.repeat(ends - lengths, lengths)
    shifted = data.astype(np.uint64) << (positions % 8 * 8).astype(np.uint64)
    starts = np.flatnonzero(positions % 8 == 0)
    words = np.add.reduceat(shifted, starts) if len(starts) else np.empty(0, np.uint64)
    return _summed(words, positions[starts] // 8, (lengths + 7) // 8, lengths)


def _lists(column: pl.Series) -> Hashes:
    counts = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    elements = _hashes(column.explode(empty_as_null=False, keep_nulls=False))
    positions = np.arange(len(elements)) - np.repeat(counts.cumsum() - counts, counts)
    return _summed(elements, positions, counts, counts)


def _summed(words: Hashes, positions: NDArray[np.int64], counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Hashes:
    """Return one hash for each run of `counts` words; integer overflow is intended."""
    total = np.concatenate((np.zeros(1, np.uint64), _mix(words ^ _at(positions)).cumsum(dtype=np.uint64)))
    ends = counts.cumsum()
    return _mix(total[ends] - total[ends - counts] + _at(sizes))
