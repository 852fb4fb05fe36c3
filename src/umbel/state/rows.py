"""Rows as bytes: one value of the store holds a group of rows.

    value   = version (1 byte), block
    block   = number of rows (4 bytes), records, heap
    record  = null bits, numbers of fixed width, lengths of what is on the heap (4 bytes each)
    heap    = bytes of the first row's columns, bytes of the second's, ...

Everything is little endian. Values are exact to the bit; what is null is zero. Whole batches are encoded and decoded at
once, no Python code runs per row.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from umbel.errors import InvalidType, Terminal
from umbel.state.arrow import binary_of, binary_parts, fixed_binary, join_rows
from umbel.state.columns import HEAP, Booleans, Leaf, Lists, Numbers, Slice, layout_of, schema_of
from umbel.state.records import Listed, Records, Values, mismatch, readable, texts, units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


VERSION = 1
_COUNT = 4
_LENGTH = np.dtype("<u4")

Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]


class RowCodec:
    """Frames of given columns to bytes and back.

    Args:
        columns: name and type of each column.

    Raises:
        InvalidType: a column's type cannot be kept.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.schema = schema_of(columns)
        self._layouts = {name: layout_of(name, dtype, RowCodec) for name, dtype in self.schema.items()}
        formats = [form for layout in self._layouts.values() for form in layout.formats()]
        self._formats = [_LENGTH if form == HEAP else form for form in formats]
        self._heaps = [place for place, form in enumerate(formats) if form == HEAP]
        self._record = _record(self._formats)

    def encode(self, frame: pl.DataFrame, counts: Counts) -> list[bytes]:
        """Return the bytes of each group of consecutive rows.

        Args:
            frame: the rows; columns by name, others are left out.
            counts: how many rows each group has.

        Raises:
            InvalidType: a column of `frame` has another type than it should have.
        """
        values: list[bytes] = self._joined(frame, counts, bytes([VERSION])).to_pylist()
        return values

    def decode(self, values: Sequence[bytes]) -> tuple[pl.DataFrame, Counts]:
        """Return the rows of all groups, one group after the other, and how many rows each has.

        Raises:
            Terminal: a value was written by another version, or with other columns.
        """
        data = np.frombuffer(b"".join(values), np.uint8)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        starts = lengths.cumsum() - lengths
        if len(values) and not (lengths.min() > _COUNT and (data[starts] == VERSION).all()):
            raise _unreadable()
        columns, counts = self.columns(data, starts + 1, lengths - 1)
        return self._frame(columns, int(counts.sum())), counts

    def records(self, values: Sequence[bytes | None]) -> Records:
        """Return the rows of all groups, one group after the other; None is a group without rows.

        Raises:
            Terminal: a value was written by another version, or with other columns.
        """
        kind, places, heaps = self._readable
        if len(values) == 1 and values[0] is not None:
            count, start, end = self._block(values[0])
            rows = np.frombuffer(values[0], kind, count, start)
            return Records(rows, np.array([count], np.int64), values[0][end:], places, heaps)
        blocks = [(value, *self._block(value)) for value in values if value is not None]
        rows = np.frombuffer(b"".join([value[start:end] for value, _, start, end in blocks]), kind)
        taken = iter(blocks)
        counts = np.array([0 if value is None else next(taken)[1] for value in values], np.int64)
        return Records(rows, counts, b"".join([value[end:] for value, _, _, end in blocks]), places, heaps)

    def _block(self, value: bytes) -> tuple[int, int, int]:
        """Return how many records a group has, and where they begin and end."""
        start, count = 1 + _COUNT, int.from_bytes(value[1 : 1 + _COUNT], "little")
        end = start + count * self._record.itemsize
        if value[0] != VERSION:
            raise _unreadable()
        if len(value) < end or (len(value) > end and not self._heaps):
            raise mismatch()
        return count, start, end

    def elements(self, data: Bytes, starts: Counts) -> tuple[Values, Counts]:
        """Return what the blocks at `starts` have in the one column there is, not nested, and how many rows each has."""
        (dtype,) = self.schema.values()
        counts = _counts(data, starts)
        starts = starts + _COUNT
        records = self._records(data, starts, counts)
        nulls = (records["nulls"][:, 0] & 1).astype(np.bool_)
        if self._heaps:
            ends = records["0"].astype(np.int64).cumsum()
            sizes = np.diff(np.concatenate(([0], ends))[np.concatenate(([0], counts.cumsum()))])
            begins = starts + counts * self._record.itemsize - (sizes.cumsum() - sizes)
            stored = texts(data, np.repeat(begins, counts) + ends, records["0"], is_text=dtype == pl.String)
        else:
            stored = records.view(self._readable[0])[""]
            stored = units(stored) if isinstance(dtype, pl.Decimal) else stored
        return Values(stored, nulls, dtype), counts

    @cached_property
    def _readable(self) -> tuple[np.dtype[Any], dict[str, int], dict[str, Listed | None]]:
        places: dict[str, int] = {}
        fixed: list[tuple[str, int, pl.DataType]] = []
        heaps: dict[str, Listed | None] = {}
        place = 0
        for name, layout in self._layouts.items():
            places[name] = place
            if isinstance(layout, Numbers | Booleans):
                fixed.append((name, place, self.schema[name]))
            elif len(layout.formats()) == 1:
                heaps[name] = layout.codec if isinstance(layout, Lists) else None
            place += len(layout.formats())
        on_heap = {name: places[name] for name in heaps}
        return readable(self._record, fixed, on_heap), places, heaps

    def blocks(self, frame: pl.DataFrame, counts: Counts) -> pa.LargeBinaryArray:
        """Return the block of each group of consecutive rows."""
        return self._joined(frame, counts, b"")

    def columns(self, data: Bytes, starts: Counts, lengths: Counts) -> tuple[list[pa.Array], Counts]:
        """Return the columns of the blocks at `starts`, and how many rows each block has."""
        counts = _counts(data, starts)
        if (_COUNT + counts * self._record.itemsize > lengths).any():
            raise mismatch()
        records = self._records(data, starts + _COUNT, counts)
        heap = self._heap(records, starts, counts, lengths)
        leaves = iter([self._leaf(place, records, heap) for place in range(len(self._formats))])
        return [layout.join(leaves, data, len(records)) for layout in self._layouts.values()], counts

    def _frame(self, columns: list[pa.Array], rows: int) -> pl.DataFrame:
        if not columns:
            return pl.DataFrame(height=rows)
        frame = pl.DataFrame(pa.RecordBatch.from_arrays(columns, list(self._layouts)))
        return frame.cast(pl.Schema(self.schema)) if self._is_recast else frame

    @cached_property
    def _is_recast(self) -> bool:
        """Whether columns come back from Arrow with other types: arrays of fixed length do, as lists."""
        none = np.zeros(0, np.int64)
        columns, _ = self.columns(np.zeros(0, np.uint8), none, none)
        return pl.DataFrame(pa.RecordBatch.from_arrays(columns, list(self._layouts))).schema != self.schema

    # to bytes

    def _joined(self, frame: pl.DataFrame, counts: Counts, version: bytes) -> pa.LargeBinaryArray:
        leaves = [leaf for name, layout in self._layouts.items() for leaf in layout.split(self._column(frame, name))]
        ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        records = self._to_records(leaves, frame.height)
        parts = [_headers(counts, version), binary_of(ends * self._record.itemsize, records.view(np.uint8).reshape(-1))]
        if self._heaps:
            offsets, heap = binary_parts(join_rows([leaves[place].content for place in self._heaps]))
            parts.append(binary_of(offsets[ends], heap))
        return join_rows(parts)

    def _column(self, frame: pl.DataFrame, name: str) -> pl.Series:
        """Return a column of the frame in its type; nothing but nulls, and decimals of more digits, are cast."""
        column, dtype = frame.get_column(name), self.schema[name]
        if column.dtype == dtype:
            return column
        if column.dtype == pl.Null or (column.dtype.is_decimal() and column.dtype.is_(pl.Decimal(38, _scale(dtype)))):
            return column.cast(dtype)
        raise InvalidType(f"column {name!r} has type {column.dtype} where state has {dtype}")

    def _to_records(self, leaves: list[Leaf], rows: int) -> NDArray[Any]:
        records = np.zeros(rows, self._record)
        for place, leaf in enumerate(leaves):
            if leaf.nulls is not None:
                records["nulls"][:, place // 8] |= leaf.nulls.astype(np.uint8) << (place % 8)
            if leaf.content is not None:
                records[f"{place}"] = np.diff(binary_parts(leaf.content)[0])
            elif leaf.numbers is not None:
                records[f"{place}"] = leaf.numbers
        return records

    # from bytes

    def _records(self, data: Bytes, starts: Counts, counts: Counts) -> NDArray[Any]:
        """Return the records of all blocks, put together."""
        width = self._record.itemsize
        if not counts.sum():
            return np.zeros(0, self._record)
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        positions = np.repeat(starts, counts) + within * width
        every: NDArray[Any] = np.ndarray(len(data) - width + 1, self._record, data, strides=(1,))
        records: NDArray[Any] = every[positions]
        return records

    def _heap(self, records: NDArray[Any], starts: Counts, counts: Counts, lengths: Counts) -> list[Slice]:
        """Return where each row's bytes lie in the buffer, column by column, and check the lengths of the blocks."""
        sizes = np.empty((len(records), len(self._heaps)), np.int64)
        for number, place in enumerate(self._heaps):
            sizes[:, number] = records[f"{place}"]
        within = np.concatenate(([0], sizes.ravel().cumsum()))
        ends = counts.cumsum() * len(self._heaps)
        first = within[ends - counts * len(self._heaps)]
        fixed = _COUNT + counts * self._record.itemsize
        if not (fixed + within[ends] - first == lengths).all():
            raise mismatch()
        positions = within[:-1].reshape(sizes.shape) + np.repeat(starts + fixed - first, counts).reshape(-1, 1)
        return [Slice(positions[:, number], sizes[:, number]) for number in range(len(self._heaps))]

    def _leaf(self, place: int, records: NDArray[Any], heap: list[Slice]) -> Leaf:
        marks = ((records["nulls"][:, place // 8] >> (place % 8)) & 1).astype(np.bool_)
        nulls = marks if marks.any() else None
        if place in self._heaps:
            return Leaf(nulls, content=heap[self._heaps.index(place)])
        return Leaf(nulls, None if self._formats[place] is None else records[f"{place}"])


def _scale(dtype: pl.DataType) -> int:
    return dtype.scale if isinstance(dtype, pl.Decimal) else 0


def _record(formats: Sequence[np.dtype[Any] | None]) -> np.dtype[Any]:
    marks = np.dtype((np.uint8, max(1, -(-len(formats) // 8))))
    fields = [(f"{place}", form) for place, form in enumerate(formats) if form is not None]
    return np.dtype([("nulls", marks), *fields])


def _headers(counts: Counts, version: bytes) -> pa.LargeBinaryArray:
    matrix = np.empty((len(counts), len(version) + _COUNT), np.uint8)
    matrix[:, : len(version)] = np.frombuffer(version, np.uint8)
    matrix[:, len(version) :] = counts.astype("<u4").view(np.uint8).reshape(-1, _COUNT)
    return fixed_binary(matrix)


def _counts(data: Bytes, starts: Counts) -> Counts:
    if not len(starts):
        return np.zeros(0, np.int64)
    every = np.ndarray(len(data) - _COUNT + 1, _LENGTH, data, strides=(1,))
    return every[starts].astype(np.int64)


def _unreadable() -> Terminal:
    return Terminal("state was written in a format this version of umbel does not read")
