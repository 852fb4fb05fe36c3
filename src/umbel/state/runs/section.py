"""Sections of runs: Arrow files of one record batch, with checksums of blocks.

Each block of rows has a checksum in each buffer. A block is checked the first time it is read by a process: nothing
unchecked is ever returned. The bytes outside of buffers have a checksum of their own.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from umbel.errors import InvalidType
from umbel.state.runs.addresses import Ints, expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from umbel.errors import Damaged

BLOCK_ROWS = 4096
"""Rows of a block; a multiple of 8, so that blocks of bits begin at whole bytes."""
_PLAIN = pl.CompatLevel.oldest()


@dataclass(frozen=True, slots=True)
class _Spans:
    """The byte ranges of the blocks of one buffer."""

    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class PackedSection:
    """The bytes of a section, and its description.

    Args:
        data: the Arrow file.
        meta: rows, extents of the buffers and the checksum of the other bytes, for JSON.
        arrays: first byte, end and checksum of each block of each buffer.
    """

    data: memoryview
    meta: dict[str, Any]
    arrays: bytes


class StoredArrays:
    """Arrays stored one after the other, read in turn.

    Args:
        data: their bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, kind: type[np.generic], count: int) -> NDArray[Any]:
        """Return the next array of a type and a number of values."""
        found: NDArray[Any] = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def rest(self) -> bytes:
        """Return the bytes that were not read yet."""
        return self._data[self._at :]


def pack_section(columns: Mapping[str, pa.Array], rows: int) -> PackedSection:
    """Return a section with some columns of equal length.

    Raises:
        InvalidType: a column has a type that cannot be stored.
    """
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    buffer = sink.getvalue()
    batch = pa.ipc.open_file(buffer).get_batch(0)
    cuts = np.append(np.arange(0, rows, BLOCK_ROWS), rows)
    starts, ends, extents = [], [], []
    for column in batch.columns:
        for part, spans in zip(column.buffers(), _blocks(column, cuts), strict=True):
            if part is not None and part.size:
                spans.ends[-1] = part.size
                extents.append((part.address - buffer.address, part.size))
                starts.append(spans.starts + extents[-1][0])
                ends.append(spans.ends + extents[-1][0])
    first, last = np.array(starts, np.int64).T, np.array(ends, np.int64).T
    data = memoryview(buffer)
    sums = [zlib.crc32(data[a:b]) for a, b in zip(first.ravel().tolist(), last.ravel().tolist(), strict=True)]
    meta = {"rows": rows, "buffers": extents, "rest": _rest_sum(data, extents)}
    return PackedSection(data, meta, first.tobytes() + last.tobytes() + np.array(sums, np.uint32).tobytes())


def _rest_sum(data: memoryview, extents: list[tuple[int, int]]) -> int:
    """Return the checksum of the bytes outside of buffers."""
    found, at = 0, 0
    for start, size in sorted((start, size) for start, size in extents):
        found = zlib.crc32(data[at:start], found)
        at = start + size
    return zlib.crc32(data[at:], found)


def _blocks(array: pa.Array, cuts: Ints) -> Iterator[_Spans]:
    """Yield the byte ranges of blocks of rows, for each buffer in order."""
    kind = array.type
    first, last = cuts[:-1], cuts[1:]
    yield _Spans(first >> 3, (last + 7) >> 3)
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _blocks(array.field(number), cuts)
    elif pa.types.is_large_list(kind) or pa.types.is_list(kind):
        offsets = _offsets(array, is_large=pa.types.is_large_list(kind))
        yield _Spans(first * offsets.itemsize, (last + 1) * offsets.itemsize)
        yield from _blocks(array.values, _placed(offsets, cuts))
    elif pa.types.is_fixed_size_list(kind):
        yield from _blocks(array.values, cuts * kind.list_size)
    elif _is_text(kind):
        offsets = _offsets(array, is_large=pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))
        yield _Spans(first * offsets.itemsize, (last + 1) * offsets.itemsize)
        places = _placed(offsets, cuts)
        yield _Spans(places[:-1].copy(), places[1:].copy())
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        bits = kind.bit_width
        yield _Spans(first * bits >> 3, (last * bits + 7) >> 3)
    else:
        raise InvalidType(f"a column of type {kind} cannot be kept in state")


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_large_binary, pa.types.is_large_string, pa.types.is_binary, pa.types.is_string)
    return any(check(kind) for check in checks)


def _offsets(array: pa.Array, *, is_large: bool) -> NDArray[Any]:
    return np.frombuffer(array.buffers()[1] or b"", np.int64 if is_large else np.int32)


def _placed(offsets: NDArray[Any], cuts: Ints) -> Ints:
    """Return where the elements of the blocks begin; an empty array may lack its offsets."""
    found: Ints = offsets[cuts].astype(np.int64) if len(offsets) else cuts * 0
    return found


def check_type(name: str, dtype: pl.DataType) -> None:
    """Raise InvalidType unless a column of this type can be kept in state."""
    try:
        if _has_objects(dtype):  # Polars aborts the process at nested ones
            raise InvalidType(f"a column of type {dtype} cannot be kept in state")
        list(_blocks(pl.Series(dtype=dtype).to_arrow(compat_level=_PLAIN), np.zeros(1, np.int64)))
    except (InvalidType, pa.ArrowInvalid, pl.exceptions.PolarsError, TypeError) as error:
        raise InvalidType(f"column {name!r} of type {dtype} cannot be kept in state") from error


def _has_objects(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_objects(field.dtype) for field in dtype.fields)
    return _has_objects(dtype.inner) if isinstance(dtype, pl.List | pl.Array) else bool(dtype == pl.Object)


class Section:
    """A section opened for reading. May be used by several threads.

    Args:
        data: the bytes, mapped.
        meta: its description.
        arrays: of the description, up to those of this section.
        what: its rows in messages, and the table they are of.
        damaged: makes the error of a reason.

    Raises:
        Damaged: the bytes outside of buffers differ from their checksum.
    """

    def __init__(
        self,
        data: pa.Buffer,
        meta: Mapping[str, Any],
        arrays: StoredArrays,
        what: tuple[str, str],
        damaged: Callable[[str], Damaged],
    ) -> None:
        self._data, self.rows, self._what, self._damaged = memoryview(data), int(meta["rows"]), what, damaged
        extents = [(int(start), int(size)) for start, size in meta["buffers"]]
        self.blocks = -(-self.rows // BLOCK_ROWS)
        shape = (self.blocks, len(extents))
        cells = self.blocks * len(extents)
        self._starts: Ints = arrays.read(np.int64, cells).reshape(shape)
        self._ends: Ints = arrays.read(np.int64, cells).reshape(shape)
        self._sums: NDArray[np.uint32] = arrays.read(np.uint32, cells).reshape(shape)
        if _rest_sum(self._data, extents) != meta["rest"]:
            raise damaged("its Arrow schema differs from its checksum")
        self._batch = pa.ipc.open_file(data).get_batch(0)
        self.schema: pa.Schema = self._batch.schema
        self._unchecked = np.ones(self.blocks, np.bool_)
        self.is_checked = False
        """True once all blocks were verified."""

    def column(self, name: str) -> pa.Array:
        """Return a whole column; only rows that were checked may be read."""
        return self._batch.column(name)

    def take(self, rows: Ints, names: Sequence[str]) -> pa.RecordBatch:
        """Return some columns of some rows, which were checked."""
        return self._batch.select(names).take(pa.array(rows))

    def check_range(self, low: int, high: int) -> None:
        """Verify the blocks of a range of rows, which is not empty."""
        if not self.is_checked:
            first, last = low // BLOCK_ROWS, -(-high // BLOCK_ROWS)
            if last - first > 1 or self._unchecked[first]:
                self.check_blocks(np.arange(first, last))

    def check_ranges(self, low: Ints, high: Ints) -> None:
        """Verify the blocks of some ranges of rows."""
        if not self.is_checked:
            some = low < high
            blocks, _ = expanded(low[some] // BLOCK_ROWS, -(-high[some] // BLOCK_ROWS))
            self.check_blocks(np.unique(blocks))

    def check_rows(self, rows: Ints) -> None:
        """Verify the blocks of some rows."""
        if not self.is_checked:
            self.check_blocks(np.unique(rows // BLOCK_ROWS))

    def check_all(self) -> None:
        """Verify all blocks, also those that were verified before."""
        self._verify(range(self.blocks))
        self.is_checked = True

    def check_blocks(self, blocks: Ints) -> None:
        """Verify some blocks.

        Raises:
            Damaged: one differs from its checksum.
        """
        unchecked = blocks[self._unchecked[blocks]].tolist()
        if unchecked:
            self._verify(unchecked)
            self.is_checked = not self._unchecked.any()

    def _verify(self, blocks: list[int] | range) -> None:
        for block in blocks:
            spans = zip(
                self._starts[block].tolist(), self._ends[block].tolist(), self._sums[block].tolist(), strict=True
            )
            for start, end, expected in spans:
                if zlib.crc32(self._data[start:end]) != expected:
                    last = min((block + 1) * BLOCK_ROWS, self.rows)
                    each, table = self._what
                    span = f"{each} {block * BLOCK_ROWS} to {last} of table {table!r}"
                    raise self._damaged(f"{span} differ from their checksum")
            self._unchecked[block] = False
