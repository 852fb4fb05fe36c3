"""Columns in fewer bytes: whole numbers by base and scale, and offsets of 32 bits.

Numbers are read as they were written without widening a whole column. All arithmetic is modulo 2**64, so that it is exact
for every value and every difference of 64 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pyarrow as pa

from umbel.state.runs.stored_columns import StoredColumn, width_of
from umbel.state.values import HALVES, Array, Flags, Ints

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_ALL, _HALF = 2**64, 2**63
_SAMPLE = 64
"""Numbers whose greatest common divisor is tried on all others."""
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)
_KINDS = [np.dtype(kind) for kind in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8")]
_LIMITS = {kind: (np.iinfo(kind).min, np.iinfo(kind).max) for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class Packing:
    """The meaning of stored numbers: `base + scale * stored`.

    Args:
        base: added to all.
        scale: the factor of the stored numbers.
        other: the column whose values are added, None for none.
        is_constant: True if no numbers are stored: all would be 0.
    """

    base: int = 0
    scale: int = 1
    other: str | None = None
    is_constant: bool = False

    def described(self) -> list[Any]:
        """Return the arguments, for JSON."""
        return [self.base, self.scale, self.other, self.is_constant]


PLAIN = Packing()


def packed_columns(columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], dict[str, Packing]]:
    """Return the columns to store, and the packings of those of whole numbers.

    Args:
        columns: with at least one row.
    """
    stored, packings, before = dict[str, pa.Array](), dict[str, Packing](), dict[pa.DataType, tuple[str, Array]]()
    for name, column in columns.items():
        numbers, nulls = _whole_numbers(column)
        if numbers is None:
            stored[name] = with_short_offsets(column)
            continue
        packing, small = packed(numbers)
        if nulls is None and numbers.dtype.itemsize == _INT64.itemsize:
            own = numbers.view(_INT64)
            if column.type in before and _width(packing, small):
                other, values = before[column.type]
                apart, narrow = packed(own - values)
                if _width(apart, narrow) < _width(packing, small):
                    packing, small = replace(apart, other=other), narrow
            before[column.type] = name, own
        if nulls is not None and packing.is_constant:
            packing, small = replace(packing, is_constant=False), np.zeros(len(numbers), np.uint8)
        packings[name] = packing
        if not packing.is_constant:
            stored[name] = array_of(pa.from_numpy_dtype(small.dtype), small, nulls)
    return stored, packings


def _width(packing: Packing, small: Array) -> int:
    return 0 if packing.is_constant else small.itemsize


def _whole_numbers(column: pa.Array) -> tuple[Array | None, Flags | None]:
    """Return a column's numbers and the mask of its nulls.

    The numbers are None if they are no integers of up to 64 bits, the mask if there are no nulls. At nulls is some number of
    the column.
    """
    kind = width_of(column.type)
    if kind is None or kind.kind == "f":
        return None, None
    everything = slice(0, len(column))
    own = StoredColumn(column)
    numbers = own.values(everything)
    if kind == HALVES:
        low = np.ascontiguousarray(numbers[:, 0]).view(_INT64)
        if (numbers[:, 1].view(_INT64) != low >> 63).any():
            return None, None
        numbers = low
    if not own.has_nulls:
        return numbers, None
    nulls = own.nulls(everything)
    if not nulls.all():
        numbers = np.where(nulls, numbers[~nulls][0], numbers)
    return numbers, nulls


def packed(numbers: Array) -> tuple[Packing, Array]:
    """Return the smallest packing of whole numbers, and the numbers to store.

    Of several it is the one that is read fastest.

    Args:
        numbers: at least one.
    """
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return Packing(low, is_constant=True), numbers[:0]
    plain, based = _smallest(low, high), _smallest(0, high - low)
    if plain.itemsize > 1:
        apart = numbers.astype(_UINT64) - np.uint64(low % _ALL)
        scale, divided = _divided(apart)
        scaled = _smallest(0, (high - low) // scale)
        if scaled.itemsize < min(plain.itemsize, based.itemsize):
            return Packing(low, scale), divided.astype(scaled)
        if based.itemsize < plain.itemsize:
            return Packing(low), apart.astype(based)
    return PLAIN, numbers.astype(plain, copy=False)


def _smallest(low: int, high: int) -> np.dtype[Any]:
    """Return the smallest type that has a range of numbers."""
    return next(kind for kind, (least, most) in _LIMITS.items() if least <= low and high <= most)


def _divided(apart: Array) -> tuple[int, Array]:
    """Return the greatest common divisor of numbers, and their quotients.

    Some are not 0.
    """
    found = int(np.gcd.reduce(apart[apart != 0][:_SAMPLE]))
    while found > 1:
        divided = apart // np.uint64(found)
        (others,) = (divided * np.uint64(found) != apart).nonzero()
        if not len(others):
            return found, divided
        found = math.gcd(found, int(apart[others[0]]))
    return 1, apart


class PackedNumbers:
    """Stored numbers, read as they were written.

    Args:
        stored: as `packed` made them; any of a constant.
        packing: their meaning.
        kind: the type of the values; halves for a decimal.
        other: the values that are added.
    """

    __slots__ = ("_base", "_is_cast", "_is_decimal", "_kind", "_other", "_scale", "_stored")

    # A factor that is an array without dimensions is multiplied twice as fast as a number, which a point lookup feels.

    def __init__(
        self, stored: Array, packing: Packing, kind: np.dtype[Any], other: Array | PackedNumbers | None = None
    ) -> None:
        self._stored, self._kind, self._other = stored, _INT64 if kind == _INT64 else kind, other
        self._is_decimal = kind == HALVES
        self._is_cast = packing == PLAIN and not self._is_decimal
        self._base = np.array(_signed(packing.base)) if packing.base else None
        self._scale = np.array(_signed(packing.scale)) if packing.scale != 1 else None

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, rows: Ints | slice) -> Array:
        """Return some values."""
        if self._is_cast:
            return self._stored[rows].astype(self._kind)
        found = self._stored[rows].astype(_INT64)
        if self._scale is not None:
            np.multiply(found, self._scale, found)
        if self._base is not None:
            np.add(found, self._base, found)
        if self._other is not None:
            others = self._other[rows].view(_INT64)
            np.add(found, others[..., 0] if self._is_decimal else others, found)  # the high half is the sign
        if self._kind is _INT64:
            return found
        return np.stack((found, found >> 63), axis=1).view(_UINT64) if self._is_decimal else found.astype(self._kind)


def unpacked(
    stored: Array | None, packing: Packing, kind: np.dtype[Any], rows: int, other: Array | PackedNumbers | None
) -> Array | PackedNumbers:
    """Return the values of a packed column, in the form that is read fastest.

    Args:
        stored: the stored numbers; None of a constant.
        packing: their meaning.
        kind: the type of the values; halves for a decimal.
        rows: the number of values.
        other: the values that are added.
    """
    if stored is None:
        if other is not None and not packing.base:
            return other
        found = PackedNumbers(np.broadcast_to(np.uint8(0), rows), packing, kind, other)
        return found if other is not None else np.broadcast_to(found[:1], (rows, *found[:1].shape[1:]))
    if packing == PLAIN and stored.dtype.itemsize == kind.itemsize and kind != HALVES:
        return stored.view(kind)
    return PackedNumbers(stored, packing, kind, other)


class Ordinals:
    """A column of the order as integers, searched as it is stored.

    Args:
        stored: ascending within the rows of each key.
        base: added to all.
        scale: the factor of the stored numbers.
    """

    __slots__ = ("_base", "_scale", "_stored")

    def __init__(self, stored: Array, base: int, scale: int) -> None:
        self._stored, self._base, self._scale = stored, base, scale

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, rows: int) -> int: ...

    @overload
    def __getitem__(self, rows: slice) -> Ordinals: ...

    @overload
    def __getitem__(self, rows: Ints) -> Ints: ...

    def __getitem__(self, rows: Any) -> Any:
        """Return one value, the ordinals of a range, or some values."""
        if isinstance(rows, slice):
            return Ordinals(self._stored[rows], self._base, self._scale)
        if isinstance(rows, int):
            return self._base + self._scale * int(self._stored[rows])
        return PackedNumbers(self._stored, Packing(self._base, self._scale), _INT64)[rows]

    def __lt__(self, bound: int) -> Flags:
        """Return a mask of the values below a bound."""
        found: Flags = self._stored < -((self._base - int(bound)) // self._scale)
        return found

    def searchsorted(self, point: int | np.int64, side: Literal["left", "right"] = "left") -> int:
        """Return the insertion position of a point among ascending values."""
        apart = int(point) - self._base
        stored = apart // self._scale if side == "right" else -(-apart // self._scale)
        least, most = _LIMITS[self._stored.dtype]
        if not least <= stored <= most:
            return 0 if stored < 0 else len(self._stored)
        return int(self._stored.searchsorted(self._stored.dtype.type(stored), side))


def _signed(number: int) -> int:
    """Return a number modulo 2**64 as a signed one."""
    return (number + _HALF) % _ALL - _HALF


def array_of(kind: pa.DataType, values: Array, nulls: Flags | None = None) -> pa.Array:
    """Return stored values of fixed width as an Arrow array."""
    has_nulls = nulls is not None and np.count_nonzero(nulls)
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls is not None and has_nulls else None
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))])


_SHORT_BYTES = 2**28 - 1
"""Bytes of a column up to which offsets of 32 bits are enough, even for lists of bits."""


def with_short_offsets(column: pa.Array) -> pa.Array:
    """Return a column with offsets of 32 bits where they are enough."""
    kind = _short(column.type)
    return column if kind == column.type or column.nbytes > _SHORT_BYTES else column.cast(kind)


def _short(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_short(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_short(field.type)) for field in kind.fields])
    return kind


def with_fixed_width(column: pa.Array) -> pa.Array:
    """Return binary values without offsets if all have one length, else with short ones.

    Args:
        column: binary values with 64-bit offsets, without nulls; at least one.
    """
    _, offsets, data = column.buffers()
    found = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    width = int(found[1] - found[0])
    if not width or (np.diff(found) != width).any():
        return with_short_offsets(column)
    return pa.Array.from_buffers(pa.binary(width), len(column), [None, data.slice(int(found[0]))])
