"""Order-preserving key encoding: equal values have equal keys, keys sort like their values.

Each column is a marker (0 null, 1 value) and its value; no encoded key is the beginning of another one, so an instant
or another key can be appended. The encoding is part of the stored format: it must never change.

| type | bytes |
|---|---|
| whole numbers, instants, dates | 8, big endian, sign bit flipped |
| decimals | 16, the same |
| floats | 8, IEEE 754 made monotone; -0.0 is 0.0, there is one NaN, above all numbers |
| booleans | 1 |
| strings, bytes | as they are, 0 written as 0 255; closed by 0 1 |
| lists | 1 before each element, closed by 0 |
| structs, arrays | their parts |

A key over 400 bytes becomes 254, its first 64 bytes and its BLAKE2b-256 digest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from umbel.errors import InvalidType, InvalidValue
from umbel.state.arrow import (
    binary_array,
    binary_of,
    binary_parts,
    fixed_binary,
    join_rows,
    nulls_of,
    numbers_of,
    stored_of,
    to_series,
)
from umbel.state.runs.addresses import Hashes, hash_key, hash_keys, hash_rows

LONGEST = 400
_SHORTENED = b"\xfe"
_PREFIX = 64
_SIGN = np.uint64(1 << 63)
_DIGEST_BYTES = 32

Matrix = NDArray[np.uint8]
"""Bytes of the same width in every row."""

Part: TypeAlias = Matrix | pa.LargeBinaryArray


def encode_keys(columns: pl.DataFrame) -> pl.Series:
    """Return the encoded key of each row.

    Args:
        columns: the key columns, in the order of the key.

    Raises:
        InvalidType: a column's type has no order (an object, a column of unknown type).
    """
    return encode_columns(columns, columns.columns)


def encode_columns(frame: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Return the encoded key of each row of a frame from its key columns.

    Args:
        frame: the rows.
        names: the key columns, in the order of the key; a name may occur more than once. Without any, all keys are equal.

    Raises:
        InvalidType: a column's type has no order (an object, a column of unknown type).
    """
    keys = _joined([part for name in names for part in _parts(frame[name])], frame.height)
    is_long = np.diff(binary_parts(keys)[0]) > LONGEST
    return to_series(_shortened(keys) if is_long.any() else keys, "_key")


def encode_points(columns: Sequence[list[Any]], dtypes: Sequence[pl.DataType]) -> list[bytes]:
    """Encode keys for a point lookup: the result of `encode_keys`, faster for small inputs.

    Args:
        columns: the values of the key columns, in the order of the key.
        dtypes: their types.
    """
    encoders = [_SMALL.get(type(dtype)) for dtype in dtypes]
    parts = [encoder(values) for encoder, values in zip(encoders, columns, strict=True) if encoder]
    if len(parts) < len(columns):
        series = [pl.Series(f"{position}", *each) for position, each in enumerate(zip(columns, dtypes, strict=True))]
        found: list[bytes] = encode_keys(pl.DataFrame(series)).to_list()
        return found
    keys = parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]
    return [_short(key) if len(key) > LONGEST else key for key in keys]


def _texts(values: list[str | None]) -> list[bytes]:
    return [
        b"\x00\x00\x01" if text is None else b"\x01%b\x00\x01" % text.encode().replace(b"\x00", b"\x00\xff")
        for text in values
    ]


def _numbers(values: list[int | None]) -> list[bytes]:
    return [
        (b"\x00" if number is None else b"\x01") + ((number or 0) + (1 << 63)).to_bytes(8, "big") for number in values
    ]


_SMALL: dict[type, Callable[[list[Any]], list[bytes]]] = {pl.String: _texts, pl.Int64: _numbers}


def encode_time(instants: pl.Series) -> pl.Series:
    """Encode instants (µs UTC) as 8 bytes each, preserving their order.

    Raises:
        InvalidValue: an instant is null.
    """
    if instants.null_count():
        raise InvalidValue(f"column {instants.name!r} has a null where an instant is needed")
    return to_series(fixed_binary(_flipped(numbers_of(instants))), "_time")


def encode_instant(instant: int) -> bytes:
    """Encode one instant (µs) as `encode_time` does."""
    return (instant + (1 << 63)).to_bytes(8, "big")


def decode_time(encoded: NDArray[np.uint8], name: str) -> pl.Series:
    """Decode instants from the bytes of `encode_time`, 8 bytes each."""
    numbers = encoded.view(">u8").astype(np.uint64) ^ _SIGN
    return pl.Series(name, numbers.view(np.int64)).cast(pl.Datetime("us", "UTC"))


def shard_of(keys: pl.Series, shards: int) -> pl.Series:
    """Return the shard of each encoded key: the upper half of its hash modulo `shards`.

    It is the same in every version and process.
    """
    return _shards(hash_keys(keys), shards)


def _shards(hashes: Hashes, shards: int) -> pl.Series:
    return pl.Series("_shard", ((hashes >> np.uint64(32)) % np.uint64(shards)).astype(np.int32))


def shard_of_columns(frame: pl.DataFrame, names: Sequence[str], shards: int) -> pl.Series:
    """Return the shard of each row of a frame from its key columns.

    It is that of the encoded key. Keys of fixed width are hashed without being encoded.

    Args:
        frame: the rows.
        names: the key columns, in the order of the key; a name may occur more than once.
        shards: the number of shards.
    """
    parts = [part for name in names for part in _parts(frame[name])]
    matrices = [part for part in parts if isinstance(part, np.ndarray)]
    if not matrices or len(matrices) < len(parts) or sum(part.shape[1] for part in matrices) > LONGEST:
        return shard_of(encode_columns(frame, names), shards)
    return _shards(hash_rows(matrices), shards)


def shard_of_key(key: bytes, shards: int) -> int:
    """Return the shard of one encoded key, as `shard_of` does."""
    return (int(hash_key(key)) >> 32) % shards


def _parts(column: pl.Series) -> list[Part]:
    """Return a column's marker and the parts of its values."""
    nulls = nulls_of(column)
    marks = np.ones(len(column), np.uint8) if nulls is None else (~nulls).astype(np.uint8)
    return [marks.reshape(-1, 1), *_values(column)]


def _values(column: pl.Series) -> list[Part]:
    kind = column.dtype
    if kind.is_float():
        return [_monotone(numbers_of(column.cast(pl.Float64)))]
    if kind == pl.Boolean:
        filled = column.fill_null(False) if column.null_count() else column
        return [filled.to_numpy().astype(np.uint8).reshape(-1, 1)]
    if kind == pl.UInt64:
        return [_big_endian(numbers_of(column))]
    if kind.is_integer() or kind.is_temporal():
        return [_flipped(numbers_of(column).astype(np.int64, copy=False))]
    if isinstance(kind, pl.Decimal):
        return [_flipped_decimals(column.fill_null(0))]
    if isinstance(kind, pl.String | pl.Binary | pl.Enum | pl.Categorical):
        return _closed_text(column)
    if isinstance(kind, pl.Struct):
        return [part for field in column.struct.unnest().iter_columns() for part in _parts(field)]
    if isinstance(kind, pl.Array):
        return [_elements(column.arr.to_list(), b"", b"")]
    if isinstance(kind, pl.List):
        return [_elements(column, b"\x01", b"\x00")]
    raise InvalidType(f"column {column.name!r} of type {kind} cannot be part of a key")


def _flipped(numbers: NDArray[np.int64]) -> Matrix:
    return _big_endian(numbers.view(np.uint64) ^ _SIGN)


def _big_endian(numbers: NDArray[np.uint64]) -> Matrix:
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)


def _monotone(numbers: NDArray[np.float64]) -> Matrix:
    canonical = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
    bits = canonical.view(np.uint64)
    return _big_endian(np.where(bits & _SIGN, ~bits, bits | _SIGN))


def _flipped_decimals(column: pl.Series) -> Matrix:
    words = stored_of(column, np.dtype("V16")).view(np.uint64).reshape(-1, 2)
    swapped = words[:, ::-1].copy()
    swapped[:, 0] ^= _SIGN
    return swapped.astype(">u8").view(np.uint8).reshape(-1, 16)


def _closed_text(column: pl.Series) -> list[Part]:
    text = column.cast(pl.String) if not isinstance(column.dtype, pl.Binary) else column
    array = binary_array(text)
    offsets, data = binary_parts(array)
    content = data[offsets[0] : offsets[-1]]
    if np.count_nonzero(content) < len(content):
        array = pc.replace_substring(array, pattern=b"\x00", replacement=b"\x00\xff")
    close = np.empty((len(column), 2), np.uint8)
    close[:] = (0, 1)
    return [array, close]


def _elements(lists: pl.Series, before_each: bytes, close: bytes) -> pa.LargeBinaryArray:
    """Return the concatenated encoded elements of each list, followed by its close.

    For a null list the close alone.
    """
    elements = lists.explode(empty_as_null=False, keep_nulls=False)
    encoded = _joined([_constant(before_each, len(elements)), *_parts(elements)], len(elements))
    starts, data = binary_parts(encoded)
    ends = np.concatenate(([0], lists.list.len().fill_null(0).to_numpy().cumsum())).astype(np.int64)
    return join_rows([binary_of(starts[ends], data), fixed_binary(_constant(close, len(lists)))])


def _constant(content: bytes, rows: int) -> Matrix:
    return np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content)))


def _joined(parts: list[Part], rows: int) -> pa.LargeBinaryArray:
    """Concatenate the parts of each row; adjacent parts of fixed width are combined first."""
    runs: list[Part] = []
    for part in parts or [np.empty((rows, 0), np.uint8)]:
        if runs and isinstance(part, np.ndarray) and isinstance(runs[-1], np.ndarray):
            runs[-1] = np.concatenate((runs[-1], part), axis=1)
        else:
            runs.append(part)
    return join_rows([fixed_binary(run) if isinstance(run, np.ndarray) else run for run in runs])


def _shortened(keys: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Replace keys over the length limit by their prefix and digest."""
    return pa.array([_short(key) if len(key) > LONGEST else key for key in keys.to_pylist()], pa.large_binary())


def _short(key: bytes) -> bytes:
    return _SHORTENED + key[:_PREFIX] + blake2b(key, digest_size=_DIGEST_BYTES).digest()
