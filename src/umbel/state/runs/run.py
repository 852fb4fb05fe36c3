"""Runs: immutable files of one table's rows, sorted by address, mapped and read without copying.

A run is an Arrow IPC file with one record batch, followed by a trailer: the table, its rows, the hashes at which each block
of rows begins, and a checksum for each block of each buffer. A block is checked the first time it is read by a process:
nothing unchecked is ever returned. The bytes of the Arrow file outside of buffers have a checksum of their own, and so has
the trailer.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from umbel.errors import Damaged, InvalidType
from umbel.state.arrow import binary_parts
from umbel.state.runs.addresses import Flags, Hashes, Ints, expanded, search, search_all
from umbel.state.runs.points import StoredColumn
from umbel.state.runs.rules import HASH, KEY, REMOVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOOTER = struct.Struct("<QIII8s")
_MAGIC = b"umbelrn1"
_PLAIN = pl.CompatLevel.oldest()
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
BLOCK_ROWS = 4096
"""Rows of a block; a multiple of 8, so that blocks of bits begin at whole bytes."""
REMEDY = "restore umbel's folder as a whole from one backup, or rebuild the state from the logs: umbel check tells more"


@dataclass(frozen=True, slots=True)
class _Spans:
    """The byte ranges of the blocks of one buffer."""

    starts: Ints
    ends: Ints


def pack_run(rows: pl.DataFrame, table: str, order: Sequence[str] | None = None, name: str = "") -> memoryview:
    """Return the bytes of a run.

    Args:
        rows: sorted by address, with `_hash`; not empty.
        table: the table's name.
        order: the names of the table's order, if it replaces its entries.
        name: of the file: under another one it is not read.
    """
    sink = pa.BufferOutputStream()
    arrow = rows.rechunk().to_arrow(compat_level=_PLAIN).combine_chunks()
    with pa.ipc.new_file(sink, arrow.schema) as writer:
        writer.write_batch(arrow.to_batches()[0])
    buffer = sink.getvalue()
    batch = pa.ipc.open_file(buffer).get_batch(0)
    cuts = np.append(np.arange(0, batch.num_rows, BLOCK_ROWS), batch.num_rows)
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
    meta = {"table": table, "rows": batch.num_rows, "buffers": extents, "rest": _rest_sum(data, extents)}
    meta |= {"order": None if order is None else list(order), "name": name}
    index = batch.column(HASH).to_numpy()[cuts[:-1]]
    arrays = [index, first, last, np.array(sums, np.uint32)]
    trailer = json.dumps(meta).encode() + b"".join(array.tobytes() for array in arrays)
    sizes = (len(data), len(trailer), len(json.dumps(meta)))
    footer = _FOOTER.pack(*sizes, zlib.crc32(struct.pack("<QII", *sizes) + trailer), _MAGIC)
    return memoryview(b"".join((data, trailer, footer)))


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
    elif pa.types.is_large_list(kind):
        yield _Spans(first * 8, (last + 1) * 8)
        offsets = np.frombuffer(array.buffers()[1] or b"", np.int64)
        yield from _blocks(array.values, offsets[cuts] if len(offsets) else cuts * 0)
    elif pa.types.is_fixed_size_list(kind):
        yield from _blocks(array.values, cuts * kind.list_size)
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        yield _Spans(first * 8, (last + 1) * 8)
        offsets = np.frombuffer(array.buffers()[1] or b"", np.int64)
        places = offsets[cuts] if len(offsets) else cuts * 0
        yield _Spans(places[:-1].copy(), places[1:].copy())
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        bits = kind.bit_width
        yield _Spans(first * bits >> 3, (last * bits + 7) >> 3)
    else:
        raise InvalidType(f"a column of type {kind} cannot be kept in state")


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


class RunFile:
    """A run opened for reading. May be used by several threads.

    Args:
        data: the file's bytes, mapped.
        name: the file's name.

    Raises:
        Damaged: the file is cut, its description fails its checksum, or it was written under another name.
    """

    def __init__(self, data: pa.Buffer, name: str) -> None:
        self._data, self._name = memoryview(data), name
        if len(self._data) < _FOOTER.size:
            raise self._damaged("it is cut")
        size, trailer, meta, crc, magic = _FOOTER.unpack_from(self._data, len(self._data) - _FOOTER.size)
        if magic != _MAGIC or size + trailer + _FOOTER.size != len(self._data):
            raise self._damaged("it is cut, or its end is overwritten")
        described = bytes(self._data[size : size + trailer])
        if zlib.crc32(struct.pack("<QII", size, trailer, meta) + described) != crc:
            raise self._damaged("its description differs from its checksum")
        self._describe(json.loads(described[:meta]), described[meta:])
        if self._written_as not in ("", name):
            raise self._damaged(f"it was written as {self._written_as}")
        if _rest_sum(self._data[:size], self._extents) != self._rest:
            raise self._damaged("its Arrow schema differs from its checksum")
        self._batch = pa.ipc.open_file(data.slice(0, size)).get_batch(0)
        self._columns: dict[str, StoredColumn] = {}

    def _describe(self, meta: dict[str, Any], arrays: bytes) -> None:
        self.table, self.rows = str(meta["table"]), int(meta["rows"])
        self._extents = [(int(start), int(size)) for start, size in meta["buffers"]]
        self._rest = meta["rest"]
        self._written_as = meta.get("name", "")  # older versions did not write it
        self.order: list[str] | None = meta["order"]
        """The names of the table's order, if it replaces its entries."""
        blocks = -(-self.rows // BLOCK_ROWS)
        cells = blocks * len(self._extents)
        shape = (blocks, len(self._extents))
        self._index: Hashes = np.frombuffer(arrays, np.uint64, blocks)
        self._starts: Ints = np.frombuffer(arrays, np.int64, cells, 8 * blocks).reshape(shape)
        self._ends: Ints = np.frombuffer(arrays, np.int64, cells, 8 * (blocks + cells)).reshape(shape)
        self._sums: NDArray[np.uint32] = np.frombuffer(arrays, np.uint32, cells, 8 * (blocks + 2 * cells))
        self._sums = self._sums.reshape(shape)
        self._unchecked = np.ones(blocks, np.bool_)
        self._is_checked = False

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._data)

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The stored columns, name and type."""
        return dict(_frame(self._batch.slice(0, 0)).schema)

    @property
    def samples(self) -> Hashes:
        """The hash of the first row of each block."""
        return self._index

    @cached_property
    def _hashes(self) -> Hashes:
        found: Hashes = self._batch.column(HASH).to_numpy()
        return found

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of rows of each hash, as first rows and ends."""
        if self._is_checked:
            return search_all(self._hashes, hashes)
        first = self._index.searchsorted(hashes, "left").astype(np.int64) - 1
        last = self._index.searchsorted(hashes, "right").astype(np.int64) - 1
        low = np.maximum(first, 0) * BLOCK_ROWS
        high = np.minimum((last + 1) * BLOCK_ROWS, self.rows)
        self._check(np.unique(np.concatenate((np.maximum(first, 0), np.maximum(last, 0)))))
        # The hash at the start of a block may go on from the one before: each end is searched in its own block.
        start = search(self._hashes, (low, np.minimum(low + BLOCK_ROWS, self.rows)), hashes, right=False)
        end = search(self._hashes, (np.maximum(last, 0) * BLOCK_ROWS, high), hashes, right=True)
        return start, np.maximum(start, end)

    def take(self, rows: Ints) -> pl.DataFrame:
        """Return some rows, in the order given."""
        if not self._is_checked:
            self._check(np.unique(rows // BLOCK_ROWS))
        taken = self._batch.take(pa.array(rows))
        # A frame made of columns one by one does not wake the threads of Polars: what a point lookup waits for.
        return pl.DataFrame([pl.Series(name, column) for name, column in zip(taken.schema.names, taken, strict=True)])

    def slice(self, low: int, high: int) -> pl.DataFrame:
        """Return the rows of a range."""
        if not self._is_checked:
            self._check(np.arange(low // BLOCK_ROWS, -(-high // BLOCK_ROWS)))
        if any(map(pa.types.is_fixed_size_list, self._batch.schema.types)):
            return self.take(np.arange(low, high))  # Polars refuses slices of such columns with nulls
        return _frame(self._batch.slice(low, high - low))

    def keys(self, rows: Ints) -> pl.Series:
        """Return the encoded keys of some rows."""
        self._check_rows(rows, rows + 1)
        return pl.Series(KEY, self._batch.column(KEY).take(pa.array(rows)), pl.Binary)

    def removed(self, rows: Ints) -> Flags:
        """Return a mask of the tombstones among some rows."""
        self._check_rows(rows, rows + 1)
        found: Flags = self.column(REMOVED).values(rows) != 0
        return found

    def ordinals(self, name: str, low: Ints | int, high: Ints | int) -> Ints:
        """Return a whole column of the order as integers.

        Only the rows from `low` to `high` may be read.
        """
        self._check_rows(np.atleast_1d(low), np.atleast_1d(high))
        return _integers(self._batch.column(name))

    def find_key(self, at: np.uint64, key: bytes) -> tuple[int, int] | None:
        """Return the first row and the end of a key's rows, if any."""
        first, last = self._bounds
        if not first <= at <= last:
            return None
        if not self._is_checked:
            self._check(self._blocks_of(at))
        low = int(self._hashes.searchsorted(at))
        if low == self.rows or self._hashes[low] != at:
            return None
        high = int(self._hashes.searchsorted(at, "right"))
        if self._key(low) == key == self._key(high - 1):
            return low, high
        own = [row for row in range(low, high) if self._key(row) == key]  # keys that share the hash
        return (own[0], own[-1] + 1) if own else None

    def is_removed(self, row: int) -> bool:
        """Return True if a row is a tombstone."""
        return self._batch.column(REMOVED)[row].as_py() is True

    def array(self, name: str, low: int, high: int) -> pa.Array:
        """Return a column of some rows."""
        return self._batch.column(name).slice(low, high - low)

    def column(self, name: str) -> StoredColumn:
        """Return a column of fixed width; only rows that were found may be read."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = StoredColumn(self._batch.column(name))
        return found

    def check(self) -> int:
        """Verify all blocks; return the number of rows.

        Raises:
            Damaged: a block differs from its checksum.
        """
        self._check(np.arange(len(self._index)), again=True)
        return self.rows

    @cached_property
    def _bounds(self) -> tuple[np.uint64, np.uint64]:
        """The lowest and the highest hash."""
        self._check(np.array([0, len(self._index) - 1]))
        return self._hashes[0], self._hashes[-1]

    @cached_property
    def _keys(self) -> tuple[Ints, memoryview]:
        """The offsets of the encoded keys, and their bytes."""
        offsets, data = binary_parts(self._batch.column(KEY))
        return offsets, data.data

    def _key(self, row: int) -> bytes:
        offsets, data = self._keys
        return bytes(data[offsets[row] : offsets[row + 1]])

    def _blocks_of(self, at: np.uint64) -> Ints:
        """Return the blocks in which rows with a hash may be."""
        first, last = (max(0, int(self._index.searchsorted(at, side)) - 1) for side in _SIDES)
        return np.arange(first, last + 1)

    def _check_rows(self, low: Ints, high: Ints) -> None:
        """Verify the blocks of some ranges of rows."""
        if not self._is_checked:
            some = low < high
            blocks, _ = expanded(low[some] // BLOCK_ROWS, -(-high[some] // BLOCK_ROWS))
            self._check(np.unique(blocks))

    def _check(self, blocks: Ints, *, again: bool = False) -> None:
        for block in (blocks if again else blocks[self._unchecked[blocks]]).tolist():
            for start, end, expected in zip(
                self._starts[block].tolist(), self._ends[block].tolist(), self._sums[block].tolist(), strict=True
            ):
                if zlib.crc32(self._data[start:end]) != expected:
                    rows = f"rows {block * BLOCK_ROWS} to {min((block + 1) * BLOCK_ROWS, self.rows)}"
                    raise self._damaged(f"{rows} of table {self.table!r} differ from their checksum")
            self._unchecked[block] = False
        self._is_checked = not self._unchecked.any()

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(f"the run {self._name} of the state is damaged: {reason}", hint=REMEDY)


def _integers(column: pa.Array) -> Ints:
    """Return a column of whole numbers or instants without nulls as integers."""
    whole = column.view(pa.int64()) if pa.types.is_temporal(column.type) else column
    found: Ints = whole.to_numpy().astype(np.int64, copy=False)
    return found


def _frame(batch: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(pa.Table.from_batches([batch]))
    assert isinstance(frame, pl.DataFrame)
    return frame
