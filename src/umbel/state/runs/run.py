"""Runs: immutable files of one table's rows, sorted by address, mapped and read without decompressing.

A run has two sections: the keys, each once with its hash and the end of its rows, and the rows, with all other columns. A
trailer follows: the table and its schema, the packing of columns, and the checksums of the blocks. Nothing unchecked is ever
returned: a block is checked the first time it is read by a process, the trailer when the file is opened.
"""

from __future__ import annotations

import json
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from umbel.errors import Damaged
from umbel.state.runs.addresses import Flags, Hashes, Ints, beginnings
from umbel.state.runs.key_index import END, KeyIndex
from umbel.state.runs.packing import (
    Ordinals,
    PackedNumbers,
    Packing,
    array_of,
    packed_columns,
    unpacked,
    with_fixed_width,
)
from umbel.state.runs.rules import HASH, KEY, REMOVED
from umbel.state.runs.section import BLOCK_ROWS, PackedSection, Section, StoredArrays, pack_section
from umbel.state.runs.stored_columns import StoredColumn, width_of
from umbel.state.runs.stored_lists import StoredLists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FOOTER = struct.Struct("<QIII8s")
_MAGIC = b"umbelrn2"
_ONE_SECTION = b"umbelrn1"
"""Magic of the runs of older versions: one section, in which each row has its hash and key, and nothing is packed."""
_ALIGNED = 64
_Places = Ints | slice
_PLAIN = pl.CompatLevel.oldest()
REMEDY = "restore umbel's folder as a whole from one backup, or rebuild the state from the logs: umbel check tells more"


def pack_run(rows: pl.DataFrame, table: str, order: Sequence[str] | None = None, name: str = "") -> memoryview:
    """Return the bytes of a run.

    Args:
        rows: sorted by address, with `_hash`; not empty.
        table: the table's name.
        order: the names of the table's order, if it replaces its entries.
        name: of the file: under another one it is not read.
    """
    rows = rows.rechunk()
    (batch,) = rows.to_arrow(compat_level=_PLAIN).combine_chunks().to_batches()
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    stored, packings = packed_columns({name: each for name, each in columns.items() if name not in (HASH, KEY)})
    own = pack_section(stored, rows.height)
    del stored  # as large as the section
    starts = np.flatnonzero(beginnings(rows, (HASH, KEY)))
    hashes = columns[HASH].to_numpy()
    keys, arrays = _packed_keys(hashes, columns[KEY], starts)
    arrays += [hashes[::BLOCK_ROWS].tobytes(), keys.arrays, own.arrays, batch.schema.serialize().to_pybytes()]
    start = -(-len(keys.data) // _ALIGNED) * _ALIGNED
    sections = [{**keys.meta, "start": 0, "size": len(keys.data)}, {**own.meta, "start": start, "size": len(own.data)}]
    meta = {"table": table, "rows": rows.height, "order": None if order is None else list(order), "name": name}
    meta |= {"sections": sections, "packings": {name: each.described() for name, each in packings.items()}}
    described = json.dumps(meta).encode()
    trailer = described + b"".join(arrays)
    sizes = (start + len(own.data), len(trailer), len(described))
    footer = _FOOTER.pack(*sizes, zlib.crc32(struct.pack("<QII", *sizes) + trailer), _MAGIC)
    return memoryview(b"".join((keys.data, bytes(start - len(keys.data)), own.data, trailer, footer)))


def _packed_keys(hashes: Hashes, keys: pa.Array, starts: Ints) -> tuple[PackedSection, list[bytes]]:
    """Return the section of the keys, and the arrays by which its blocks are found.

    Args:
        hashes: of all rows.
        keys: of all rows.
        starts: the first row of each key.
    """
    rows = len(hashes)
    if len(starts) == rows:
        found = pack_section({HASH: pa.array(hashes), KEY: with_fixed_width(keys)}, rows)
        return found, [hashes[::BLOCK_ROWS].tobytes()]
    once = hashes[starts]
    ends = np.append(starts[1:], rows).astype(np.uint32 if rows < 2**32 else np.uint64)
    each = with_fixed_width(keys.take(pa.array(starts)))
    found = pack_section({HASH: pa.array(once), KEY: each, END: pa.array(ends)}, len(starts))
    return found, [once[::BLOCK_ROWS].tobytes(), starts[::BLOCK_ROWS].astype(np.int64).tobytes()]


class RunFile:
    """A run opened for reading. May be used by several threads.

    Args:
        data: the file's bytes, mapped.
        name: the file's name.
        error: returns the error of damage from the name and a reason.

    Raises:
        Damaged: the file is cut, its description fails its checksum, or it was written under another name.
    """

    def __init__(self, data: pa.Buffer, name: str, error: Callable[[str, str], Damaged] | None = None) -> None:
        whole, self._name, self._damaged = memoryview(data), name, partial(error or damaged, name)
        self.size = len(whole)
        """Bytes of the file."""
        if self.size < _FOOTER.size:
            raise self._damaged("it is cut")
        size, trailer, meta, crc, magic = _FOOTER.unpack_from(whole, self.size - _FOOTER.size)
        if magic not in (_MAGIC, _ONE_SECTION) or size + trailer + _FOOTER.size != self.size:
            raise self._damaged("it is cut, or its end is overwritten")
        described = bytes(whole[size : size + trailer])
        if zlib.crc32(struct.pack("<QII", size, trailer, meta) + described) != crc:
            raise self._damaged("its description differs from its checksum")
        self._describe(json.loads(described[:meta]))
        arrays = StoredArrays(described[meta:])
        if magic == _MAGIC:
            self._open(data, arrays)
        else:
            self._open_one(data.slice(0, size), arrays)
        self._others = [name for name in self._schema.names if name not in (HASH, KEY)]
        self._columns: dict[str, StoredColumn] = {}
        self._lists: dict[str, StoredLists] = {}
        self._ordinals: dict[str, Ints | Ordinals] = {}

    def _describe(self, meta: dict[str, Any]) -> None:
        self._meta, self.table, self.rows = meta, str(meta["table"]), int(meta["rows"])
        self.order: list[str] | None = meta["order"]
        """The names of the table's order, if it replaces its entries."""
        written_as = meta.get("name", "")  # older versions did not write it
        if written_as not in ("", self._name):
            raise self._damaged(f"it was written as {written_as}")

    def _open(self, data: pa.Buffer, arrays: StoredArrays) -> None:
        keys, own = self._meta["sections"]
        blocks = -(-keys["rows"] // BLOCK_ROWS)
        hashes = arrays.read(np.uint64, blocks)
        firsts = arrays.read(np.int64, blocks) if keys["rows"] < self.rows else None
        self.samples: Hashes = arrays.read(np.uint64, -(-self.rows // BLOCK_ROWS))
        """The hash of the first row of each block."""
        self._keys, self._rows = (
            Section(data.slice(each["start"], each["size"]), each, arrays, (what, self.table), self._damaged)
            for what, each in (("keys", keys), ("rows", own))
        )
        self._index = KeyIndex(self._keys, hashes, firsts, self.rows)
        self._schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(arrays.rest()))
        self._packings = {name: Packing(*each) for name, each in self._meta["packings"].items()}

    def _open_one(self, data: pa.Buffer, arrays: StoredArrays) -> None:
        self.samples = arrays.read(np.uint64, -(-self.rows // BLOCK_ROWS))
        self._keys = self._rows = Section(data, self._meta, arrays, ("rows", self.table), self._damaged)
        self._index = KeyIndex(self._keys, self.samples, None, self.rows)
        self._schema, self._packings = self._rows.schema, {}

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The stored columns, name and type."""
        found = pl.from_arrow(self._schema.empty_table())
        assert isinstance(found, pl.DataFrame)
        return dict(found.schema)

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return the range of rows of each hash, as first rows and ends."""
        low, high = self._index.find(hashes)
        self._rows.check_ranges(low, high)
        return low, high

    def take(self, rows: Ints) -> pl.DataFrame:
        """Return some rows, in the order given."""
        self._rows.check_rows(rows)
        numbers = self._index.numbers(rows)
        made = {HASH: pl.Series(HASH, self._index.hashes(numbers)), KEY: self._index.keys(numbers)}
        taken = self._rows.take(rows, [name for name in self._others if name not in self._packings])
        # A frame made of columns one by one does not wake the threads of Polars: what a point lookup waits for.
        made |= {name: pl.Series(name, column) for name, column in zip(taken.schema.names, taken, strict=True)}
        made |= {name: pl.Series(name, self._unpacked(name, rows)) for name in self._packings}
        return pl.DataFrame([made[name] for name in self._schema.names])

    def slice(self, low: int, high: int, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows of a range, all columns or some."""
        self._rows.check_range(low, high)
        names = self._schema.names if names is None else names
        made = self._index.columns_of_range(low, high) if HASH in names or KEY in names else {}
        for name in names:
            if name not in made:
                made[name] = pl.Series(name, self._range_of(name, low, high))
        return pl.DataFrame([made[name] for name in names])

    def _range_of(self, name: str, low: int, high: int) -> pa.Array:
        if pa.types.is_fixed_size_list(
            self._schema.field(name).type
        ):  # Polars refuses slices of such columns with nulls
            return self._rows.column(name).take(pa.array(np.arange(low, high)))
        return self.taken(name, slice(low, high))

    def keys(self, rows: Ints) -> pl.Series:
        """Return the encoded keys of some rows."""
        return self._index.keys(self._index.numbers(rows))

    def removed(self, rows: Ints) -> Flags:
        """Return a mask of the tombstones among some rows."""
        self._rows.check_rows(rows)
        found: Flags = self.column(REMOVED).values(rows) != 0
        return found

    def ordinals(self, name: str, low: Ints | int, high: Ints | int) -> Ints | Ordinals:
        """Return a whole column of the order as integers.

        Only the rows from `low` to `high` may be read.
        """
        if not self._rows.is_checked:
            self._rows.check_ranges(np.atleast_1d(low), np.atleast_1d(high))
        found = self._ordinals.get(name)
        if found is None:
            found = self._ordinals[name] = self._opened_ordinals(name)
        return found

    def _opened_ordinals(self, name: str) -> Ints | Ordinals:
        packing, numbers = self._packings.get(name), self.column(name).numbers
        if packing is not None and isinstance(numbers, PackedNumbers) and packing.other is None:
            return Ordinals(self._stored(name), packing.base, packing.scale)
        assert numbers is not None
        return numbers[: self.rows].astype(np.int64, copy=False)

    def find_key(self, at: np.uint64, key: bytes) -> tuple[int, int] | None:
        """Return the first row and the end of a key's rows, if any."""
        found = self._index.find_key(at, key)
        if found is not None:
            self._rows.check_range(*found)
        return found

    def is_removed(self, row: int) -> bool:
        """Return True if a row is a tombstone."""
        return self._rows.column(REMOVED)[row].as_py() is True

    def taken(self, name: str, rows: _Places) -> pa.Array:
        """Return a column at some rows, which were found; offsets may be short."""
        if name in self._packings:
            return self._unpacked(name, rows)
        column = self._rows.column(name)
        return (
            column.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else column.take(pa.array(rows))
        )

    def column(self, name: str) -> StoredColumn:
        """Return a column of fixed width; only rows that were found may be read."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._opened_column(name).sharing(list(self._columns.values()))
        return found

    def lists(self, name: str) -> StoredLists:
        """Return a list column; only rows that were found may be read."""
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = StoredLists(self._rows.column(name), self.columns[name])
        return found

    def _opened_column(self, name: str) -> StoredColumn:
        packing = self._packings.get(name)
        if packing is None:
            return StoredColumn(self._rows.column(name))
        kind = width_of(self._schema.field(name).type)
        assert kind is not None
        other = None if packing.other is None else self.column(packing.other).numbers
        if packing.is_constant:
            return StoredColumn(None, unpacked(None, packing, kind, self.rows, other))
        numbers = unpacked(self._stored(name), packing, kind, self.rows, other)
        return StoredColumn(self._rows.column(name), numbers)

    def _stored(self, name: str) -> Any:
        """Return the stored numbers of a packed column."""
        array = self._rows.column(name)
        return np.frombuffer(array.buffers()[1], width_of(array.type), len(array))

    def _unpacked(self, name: str, rows: _Places) -> pa.Array:
        column = self.column(name)
        nulls = column.nulls(rows) if column.has_nulls else None
        return array_of(self._schema.field(name).type, column.values(rows), nulls)

    def check(self) -> int:
        """Verify all blocks; return the number of rows.

        Raises:
            Damaged: a block differs from its checksum.
        """
        for section in (self._keys, self._rows):
            section.check_all()
        return self.rows


def damaged(name: str, reason: str) -> Damaged:
    """Return the error of a run.

    No method: a run that its own sections refer to would stay mapped until Python looks for cycles.
    """
    return Damaged(f"the run {name} of the state is damaged: {reason}", hint=REMEDY)
