"""Binary layouts of column values, one class per kind of type.

A column is split into *leaves*: null marks with either numbers of fixed width, or bytes of any length, or nothing
(a struct is a leaf of marks, followed by the leaves of its fields). `umbel.state.rows` puts leaves into records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from umbel.errors import InvalidType
from umbel.state.arrow import binary_array, nulls_of, stored_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Nulls = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Format = np.dtype[Any] | Literal["heap"] | None


@dataclass(frozen=True, slots=True)
class Slice:
    """Byte ranges of the rows in a buffer, in increasing order.

    Args:
        starts: offset of each row's first byte.
        lengths: number of bytes of each row.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """Null marks (None: no nulls) and values: numbers, bytes, or neither."""

    nulls: Nulls | None
    numbers: NDArray[Any] | None = None
    content: pa.LargeBinaryArray | Slice | None = None


class Layout(Protocol):
    """The binary layout of one column type."""

    @property
    def text(self) -> str:
        """The type as text, part of the fingerprint of stored rows.

        It must not change between versions.
        """
        ...

    def formats(self) -> list[Format]:
        """Return the format of each leaf: number type, `heap` for bytes, None for marks alone."""
        ...

    def split(self, column: pl.Series) -> list[LeafColumn]:
        """Return the leaves of a column."""
        ...

    def join(self, leaves: Iterator[LeafColumn], data: Bytes, rows: int) -> pa.Array:
        """Build the Arrow array of this column from its leaves, whose bytes lie in `data`."""
        ...


HEAP: Final = "heap"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Integers, floats, instants and decimals, stored as Arrow stores them."""

    arrow: pa.DataType
    storage: np.dtype[Any]

    @property
    def text(self) -> str:
        """The type as text."""
        return str(self.arrow)

    def formats(self) -> list[Format]:
        """Return the format of each leaf."""
        return [self.storage]

    def split(self, column: pl.Series) -> list[LeafColumn]:
        """Return the leaves of a column."""
        numbers = stored_of(column, self.storage)
        nulls = nulls_of(column)
        if nulls is not None:
            numbers = numbers.copy()
            numbers[nulls] = np.zeros((), self.storage)
        return [LeafColumn(nulls, numbers)]

    def join(self, leaves: Iterator[LeafColumn], data: Bytes, rows: int) -> pa.Array:
        """Build the Arrow array of this column from its leaves."""
        leaf = next(leaves)
        return _array(self.arrow, rows, leaf.nulls, np.ascontiguousarray(leaf.numbers))


@dataclass(frozen=True, slots=True)
class Booleans:
    """Booleans, one byte each."""

    @property
    def text(self) -> str:
        """The type as text."""
        return "bool"

    def formats(self) -> list[Format]:
        """Return the format of each leaf."""
        return [np.dtype(np.uint8)]

    def split(self, column: pl.Series) -> list[LeafColumn]:
        """Return the leaves of a column."""
        filled = column.fill_null(False) if column.null_count() else column
        return [LeafColumn(nulls_of(column), filled.to_numpy().astype(np.uint8))]

    def join(self, leaves: Iterator[LeafColumn], data: Bytes, rows: int) -> pa.Array:
        """Build the Arrow array of this column from its leaves."""
        leaf = next(leaves)
        bits = np.packbits(np.ascontiguousarray(leaf.numbers), bitorder="little")
        return _array(pa.bool_(), rows, leaf.nulls, bits)


@dataclass(frozen=True, slots=True)
class Text:
    """Strings and binaries: the length in the record, the bytes on the heap."""

    arrow: pa.DataType

    @property
    def text(self) -> str:
        """The type as text."""
        return str(self.arrow)

    def formats(self) -> list[Format]:
        """Return the format of each leaf."""
        return [HEAP]

    def split(self, column: pl.Series) -> list[LeafColumn]:
        """Return the leaves of a column."""
        return [LeafColumn(nulls_of(column), content=binary_array(column))]

    def join(self, leaves: Iterator[LeafColumn], data: Bytes, rows: int) -> pa.Array:
        """Build the Arrow array of this column from its leaves."""
        leaf = next(leaves)
        assert isinstance(leaf.content, Slice)
        return _gather(self.arrow, leaf.content, data, leaf.nulls)


@dataclass(frozen=True, slots=True)
class Structs:
    """Structs: null marks of the struct, then its fields as columns."""

    fields: tuple[tuple[str, Layout], ...]

    @property
    def text(self) -> str:
        """The type as text."""
        return f"struct({', '.join(f'{name!r} {layout.text}' for name, layout in self.fields)})"

    def formats(self) -> list[Format]:
        """Return the format of each leaf."""
        return [None, *(form for _, layout in self.fields for form in layout.formats())]

    def split(self, column: pl.Series) -> list[LeafColumn]:
        """Return the leaves of a column."""
        parts = column.struct.unnest()
        leaves = [leaf for name, layout in self.fields for leaf in layout.split(parts[name])]
        return [LeafColumn(nulls_of(column)), *leaves]

    def join(self, leaves: Iterator[LeafColumn], data: Bytes, rows: int) -> pa.Array:
        """Build the Arrow array of this column from its leaves."""
        nulls = next(leaves).nulls
        parts = [layout.join(leaves, data, rows) for _, layout in self.fields]
        names = [name for name, _ in self.fields]
        return pa.StructArray.from_arrays(parts, names, mask=None if nulls is None else pa.array(nulls))


@dataclass(frozen=True, slots=True)
class ListColumn:
    """Lists: the elements of each row as a group of rows on the heap.

    Arrays of fixed length are stored in the same way and are read back as lists.
    """

    codec: Any

    @property
    def text(self) -> str:
        """The type as text."""
        return f"list({self.codec.text})"

    def formats(self) -> list[Format]:
        """Return the format of each leaf."""
        return [HEAP]

    def split(self, column: pl.Series) -> list[LeafColumn]:
        """Return the leaves of a column."""
        lists = column.arr.to_list() if isinstance(column.dtype, pl.Array) else column
        elements = lists.explode(empty_as_null=False, keep_nulls=False).alias("")
        counts = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
        return [LeafColumn(nulls_of(column), content=self.codec.blocks(elements.to_frame(), counts))]

    def join(self, leaves: Iterator[LeafColumn], data: Bytes, rows: int) -> pa.Array:
        """Build the Arrow array of this column from its leaves."""
        leaf = next(leaves)
        assert isinstance(leaf.content, Slice)
        (elements,), counts = self.codec.columns(data, leaf.content.starts, leaf.content.lengths)
        offsets = pa.array(np.concatenate(([0], counts.cumsum())))
        mask = None if leaf.nulls is None else pa.array(leaf.nulls)
        return pa.LargeListArray.from_arrays(offsets, elements, mask=mask)


def _array(kind: pa.DataType, rows: int, nulls: Nulls | None, data: NDArray[Any]) -> pa.Array:
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(data)])


def _gather(kind: pa.DataType, slices: Slice, data: Bytes, nulls: Nulls | None) -> pa.Array:
    """Return the slices as one Arrow array.

    The bounds of the slices also delimit the gaps between them; every second element of that array is taken.
    """
    rows = len(slices.starts)
    bounds = np.empty(2 * rows, np.int64)
    bounds[0::2] = slices.starts
    bounds[1::2] = slices.starts + slices.lengths
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    with_gaps = pa.Array.from_buffers(kind, max(0, 2 * rows - 1), buffers)
    return with_gaps.take(pa.array(np.arange(0, 2 * rows, 2), mask=nulls))


def layout_of(name: str, dtype: pl.DataType, codec: Any) -> Layout:
    """Return the layout of a column of type `dtype`.

    Args:
        name: the column's name, for the error.
        dtype: its type.
        codec: makes the codec of a frame from its columns' types, for the elements of lists.
    """
    if isinstance(dtype, pl.Struct):
        return Structs(tuple((field.name, layout_of(name, _plain(field.dtype), codec)) for field in dtype.fields))
    if isinstance(dtype, pl.List | pl.Array):
        return ListColumn(codec({"": _plain(dtype.inner)}))
    if dtype == pl.Boolean:
        return Booleans()
    if dtype == pl.String:
        return Text(pa.large_string())
    if dtype == pl.Binary:
        return Text(pa.large_binary())
    if isinstance(dtype, pl.Decimal) or dtype.is_numeric() or dtype.is_temporal():
        return _numbers(name, dtype)
    raise InvalidType(f"column {name!r} of type {dtype} cannot be kept in state")


def _numbers(name: str, dtype: pl.DataType) -> Numbers:
    try:
        arrow = pl.Series(dtype=dtype).to_arrow().type
    except pa.ArrowInvalid as problem:
        raise InvalidType(f"column {name!r} of type {dtype} cannot be kept in state") from problem
    width = arrow.bit_width // 8
    return Numbers(arrow, np.dtype(f"V{width}") if width > 8 else np.dtype(f"u{width}"))


def _plain(dtype: Any) -> pl.DataType:
    plain: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return plain


def schema_of(columns: Mapping[str, Any]) -> dict[str, pl.DataType]:
    """Return the columns with every type as an instance."""
    return {name: _plain(dtype) for name, dtype in columns.items()}
