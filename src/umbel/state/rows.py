"""Row codec: one value of the store is a group of rows as bytes.

    value   = version (1 byte), fingerprint of the columns (4 bytes), block
    block   = number of rows (4 bytes), records, heap
    record  = null bits, numbers of fixed width, byte lengths of the columns on the heap (4 bytes each)
    heap    = bytes of the first row's columns, bytes of the second's, ...

Columns are stored in the order of their names: the content of a value depends on the names and types of its columns, not on the
order of their declaration. Rows of other names or types have another fingerprint and are refused. Everything is little endian.
Values are exact to the bit; null is stored as zero. Whole batches are encoded and decoded at once, no Python code runs per row.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from umbel.errors import InvalidType
from umbel.state.arrow import binary_of, binary_parts, fixed_binary, join_rows
from umbel.state.columns import HEAP, Booleans, LeafColumn, ListColumn, Numbers, Slice, layout_of, schema_of
from umbel.state.port import OldState
from umbel.state.records import ListSpans, Records, Values, mismatch, readable, texts, units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


VERSION = 2
"""Version 1, of umbel 0.1, had the columns in declaration order, and no fingerprint of them."""

_HEAD = 5
_COUNT = 4
_LENGTH = np.dtype("<u4")

Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]


class RowCodec:
    """Encode frames with a fixed set of columns to bytes and decode them.

    Args:
        columns: name and type of each column.

    Raises:
        InvalidType: a column's type cannot be stored.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.schema = schema_of(columns)
        self._layouts = {name: layout_of(name, dtype, RowCodec) for name, dtype in sorted(self.schema.items())}
        formats = [form for layout in self._layouts.values() for form in layout.formats()]
        self._formats = [_LENGTH if form == HEAP else form for form in formats]
        self._heaps = [position for position, form in enumerate(formats) if form == HEAP]
        self._record = _record(self._formats)

    @property
    def text(self) -> str:
        """The columns as text, by name; equal for equal columns in any order."""
        return ", ".join(f"{name!r} {layout.text}" for name, layout in self._layouts.items())

    @cached_property
    def _head(self) -> bytes:
        return bytes([VERSION]) + crc32(self.text.encode()).to_bytes(_HEAD - 1, "little")

    def encode(self, frame: pl.DataFrame, counts: Counts) -> list[bytes]:
        """Return the bytes of each group of consecutive rows.

        Args:
            frame: the rows; columns by name, others are ignored.
            counts: number of rows of each group.

        Raises:
            InvalidType: a column of `frame` has another type than declared.
        """
        values: list[bytes] = self._joined(frame, counts, self._head).to_pylist()
        return values

    def decode(self, values: Sequence[bytes]) -> tuple[pl.DataFrame, Counts]:
        """Return the rows of all groups in order, and the number of rows of each.

        Raises:
            Terminal: a value was written by another version (OldState), or with other columns.
        """
        data = np.frombuffer(b"".join(values), np.uint8)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        starts = lengths.cumsum() - lengths
        if len(values):
            self._check_heads(data, starts, lengths)
        columns, counts = self.columns(data, starts + _HEAD, lengths - _HEAD)
        return self._frame(columns, int(counts.sum())), counts

    def records(self, values: Sequence[bytes | None]) -> Records:
        """Return the rows of all groups in order; None is a group without rows.

        Raises:
            Terminal: a value was written by another version (OldState), or with other columns.
        """
        kind, positions, heaps = self._readable
        if len(values) == 1 and values[0] is not None:
            count, start, end = self._block(values[0])
            rows = np.frombuffer(values[0], kind, count, start)
            return Records(rows, np.array([count], np.int64), values[0][end:], positions, heaps)
        blocks = [(value, *self._block(value)) for value in values if value is not None]
        rows = np.frombuffer(b"".join([value[start:end] for value, _, start, end in blocks]), kind)
        taken = iter(blocks)
        counts = np.array([0 if value is None else next(taken)[1] for value in values], np.int64)
        return Records(rows, counts, b"".join([value[end:] for value, _, _, end in blocks]), positions, heaps)

    def _block(self, value: bytes) -> tuple[int, int, int]:
        """Return a group's number of records, and their start and end offsets."""
        start, count = _HEAD + _COUNT, int.from_bytes(value[_HEAD : _HEAD + _COUNT], "little")
        end = start + count * self._record.itemsize
        if value[:_HEAD] != self._head:
            raise mismatch() if value[:1] == self._head[:1] else _unreadable(value[:1])
        if len(value) < end or (len(value) > end and not self._heaps):
            raise mismatch()
        return count, start, end

    def _check_heads(self, data: Bytes, starts: Counts, lengths: Counts) -> None:
        if not lengths.all():
            raise _unreadable(b"")
        versions = data[starts]
        if not (versions == VERSION).all():
            raise _unreadable(bytes(versions[versions != VERSION][:1]))
        if lengths.min() < _HEAD + _COUNT:
            raise mismatch()
        marks = np.ndarray(len(data) - _HEAD + 1, _LENGTH, data, offset=1, strides=(1,))[starts]
        if (marks != int.from_bytes(self._head[1:], "little")).any():
            raise mismatch()

    def elements(self, data: Bytes, starts: Counts) -> tuple[Values, Counts]:
        """Return the values of single-column blocks at `starts`, and each block's row count.

        The one column of the blocks must not be nested.
        """
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
    def _readable(self) -> tuple[np.dtype[Any], dict[str, int], dict[str, ListSpans | None]]:
        positions: dict[str, int] = {}
        fixed: list[tuple[str, int, pl.DataType]] = []
        heaps: dict[str, ListSpans | None] = {}
        position = 0
        for name, layout in self._layouts.items():
            positions[name] = position
            if isinstance(layout, Numbers | Booleans):
                fixed.append((name, position, self.schema[name]))
            elif len(layout.formats()) == 1:
                heaps[name] = layout.codec if isinstance(layout, ListColumn) else None
            position += len(layout.formats())
        on_heap = {name: positions[name] for name in heaps}
        return readable(self._record, fixed, on_heap), positions, heaps

    def blocks(self, frame: pl.DataFrame, counts: Counts) -> pa.LargeBinaryArray:
        """Return the block of each group of consecutive rows."""
        return self._joined(frame, counts, b"")

    def columns(self, data: Bytes, starts: Counts, lengths: Counts) -> tuple[list[pa.Array], Counts]:
        """Return the columns of the blocks at `starts`, and each block's row count."""
        counts = _counts(data, starts)
        if (_COUNT + counts * self._record.itemsize > lengths).any():
            raise mismatch()
        records = self._records(data, starts + _COUNT, counts)
        heap = self._heap(records, starts, counts, lengths)
        leaves = iter([self._leaf(position, records, heap) for position in range(len(self._formats))])
        return [layout.join(leaves, data, len(records)) for layout in self._layouts.values()], counts

    def _frame(self, columns: list[pa.Array], rows: int) -> pl.DataFrame:
        if not columns:
            return pl.DataFrame(height=rows)
        frame = self._unordered(columns)
        return frame.cast(pl.Schema(self.schema)) if self._is_recast else frame

    def _unordered(self, columns: list[pa.Array]) -> pl.DataFrame:
        """Return stored columns as a frame in declaration order."""
        by_name = dict(zip(self._layouts, columns, strict=True))
        return pl.DataFrame(pa.RecordBatch.from_arrays([by_name[name] for name in self.schema], list(self.schema)))

    @cached_property
    def _is_recast(self) -> bool:
        """Return True if columns read back from Arrow have other types.

        Arrays of fixed length do: they are read back as lists.
        """
        none = np.zeros(0, np.int64)
        columns, _ = self.columns(np.zeros(0, np.uint8), none, none)
        return self._unordered(columns).schema != self.schema

    # to bytes

    def _joined(self, frame: pl.DataFrame, counts: Counts, version: bytes) -> pa.LargeBinaryArray:
        leaves = [leaf for name, layout in self._layouts.items() for leaf in layout.split(self._column(frame, name))]
        ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        records = self._to_records(leaves, frame.height)
        parts = [_headers(counts, version), binary_of(ends * self._record.itemsize, records.view(np.uint8).reshape(-1))]
        if self._heaps:
            offsets, heap = binary_parts(join_rows([leaves[position].content for position in self._heaps]))
            parts.append(binary_of(offsets[ends], heap))
        return join_rows(parts)

    def _column(self, frame: pl.DataFrame, name: str) -> pl.Series:
        """Return a column of the frame in its declared type.

        Only all-null columns, and decimals of more digits, are cast.
        """
        column, dtype = frame.get_column(name), self.schema[name]
        if column.dtype == dtype:
            return column
        if column.dtype == pl.Null or (column.dtype.is_decimal() and column.dtype.is_(pl.Decimal(38, _scale(dtype)))):
            return column.cast(dtype)
        raise InvalidType(f"column {name!r} has type {column.dtype} where state has {dtype}")

    def _to_records(self, leaves: list[LeafColumn], rows: int) -> NDArray[Any]:
        records = np.zeros(rows, self._record)
        for position, leaf in enumerate(leaves):
            if leaf.nulls is not None:
                records["nulls"][:, position // 8] |= leaf.nulls.astype(np.uint8) << (position % 8)
            if leaf.content is not None:
                records[f"{position}"] = np.diff(binary_parts(leaf.content)[0])
            elif leaf.numbers is not None:
                records[f"{position}"] = leaf.numbers
        return records

    # from bytes

    def _records(self, data: Bytes, starts: Counts, counts: Counts) -> NDArray[Any]:
        """Return the records of all blocks, concatenated."""
        width = self._record.itemsize
        if not counts.sum():
            return np.zeros(0, self._record)
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        positions = np.repeat(starts, counts) + within * width
        every: NDArray[Any] = np.ndarray(len(data) - width + 1, self._record, data, strides=(1,))
        records: NDArray[Any] = every[positions]
        return records

    def _heap(self, records: NDArray[Any], starts: Counts, counts: Counts, lengths: Counts) -> list[Slice]:
        """Return the byte ranges of each heap column; check the lengths of the blocks."""
        sizes = np.empty((len(records), len(self._heaps)), np.int64)
        for number, position in enumerate(self._heaps):
            sizes[:, number] = records[f"{position}"]
        within = np.concatenate(([0], sizes.ravel().cumsum()))
        ends = counts.cumsum() * len(self._heaps)
        first = within[ends - counts * len(self._heaps)]
        fixed = _COUNT + counts * self._record.itemsize
        if not (fixed + within[ends] - first == lengths).all():
            raise mismatch()
        positions = within[:-1].reshape(sizes.shape) + np.repeat(starts + fixed - first, counts).reshape(-1, 1)
        return [Slice(positions[:, number], sizes[:, number]) for number in range(len(self._heaps))]

    def _leaf(self, position: int, records: NDArray[Any], heap: list[Slice]) -> LeafColumn:
        marks = ((records["nulls"][:, position // 8] >> (position % 8)) & 1).astype(np.bool_)
        nulls = marks if marks.any() else None
        if position in self._heaps:
            return LeafColumn(nulls, content=heap[self._heaps.index(position)])
        return LeafColumn(nulls, None if self._formats[position] is None else records[f"{position}"])


def _scale(dtype: pl.DataType) -> int:
    return dtype.scale if isinstance(dtype, pl.Decimal) else 0


def _record(formats: Sequence[np.dtype[Any] | None]) -> np.dtype[Any]:
    marks = np.dtype((np.uint8, max(1, -(-len(formats) // 8))))
    fields = [(f"{position}", form) for position, form in enumerate(formats) if form is not None]
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


def _unreadable(version: bytes) -> OldState:
    return OldState.found(f"format {version[0]}" if version else "no format", f"format {VERSION}")
