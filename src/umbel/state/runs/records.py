"""Records of a shard's journal: the writes of one transaction, as bytes.

A record is `magic · checksum of the header · length · checksum of the payload · place · payload`. The payload is JSON, padded
to 8 bytes, and the frames as Arrow IPC streams. The place is a checksum of the shard's name and the record's position: a record
that was copied from elsewhere is no record. Those of older versions have 0 there, and are read anywhere. One that is an object of
its own has the mark of its store, too, in its JSON; where many are in a file, the file has it.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from umbel.state.arrow import table_of
from umbel.state.port import Stamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RECORD = struct.Struct("<4sIQII")
_EXTENT = struct.Struct("<4sQII")
_BEGIN = b"URec"
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
RECORD_BYTES = _RECORD.size
"""Bytes of a record before its payload."""
UNREADABLE = (pa.ArrowException, OSError)
"""The errors of a payload that is as it was written, and not readable."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """The writes of one transaction.

    Args:
        stamp: the batch.
        state_ids: the operators written; each gets the stamp.
        frames: the sorted rows of each table.
        horizons: of tables, in µs.
        undo: False if a batch that is run again cannot replace it.
        orders: for each table that replaces or collects its entries the names of its order, None for other rules.
        mark: of the store it was read from, as `store_mark` returns it; empty if it has none.
    """

    stamp: Stamp
    state_ids: tuple[str, ...]
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    horizons: Mapping[str, int] = field(default_factory=dict)
    undo: bool = True
    orders: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    mark: bytes = field(default=b"", compare=False)
    _packed: list[bytearray] = field(default_factory=list, init=False, repr=False, compare=False)

    def pack(self, place: int = 0, mark: bytes = b"") -> memoryview:
        """Return the bytes of the record, valid until the next call.

        The payload is made once.

        Args:
            place: where it will be, as `place_of` returns it.
            mark: of the store, if it is to be in the record; of the first call.
        """
        if not self._packed:
            self._packed.append(self._bytes(mark))
        _put_in_place(self._packed[0], place)
        return memoryview(self._packed[0])

    def _bytes(self, mark: bytes) -> bytearray:
        streams = {table: _stream(frame) for table, frame in self.frames.items()}
        meta = {
            "stamp": [self.stamp.epoch, self.stamp.batch, self.stamp.step],
            "state_ids": self.state_ids,
            "frames": {table: len(stream) for table, stream in streams.items()},
            "horizons": dict(self.horizons),
            "undo": self.undo,
            "orders": dict(self.orders),
            **({"store": mark.hex()} if mark else {}),
        }
        text = json.dumps(meta).encode()
        size, padding = struct.pack("<I", len(text)), b"\0" * (-(4 + len(text)) % 8)
        made = bytearray().join((bytes(RECORD_BYTES), size, text, padding, *streams.values()))
        payload = memoryview(made)[RECORD_BYTES:]
        _RECORD.pack_into(made, 0, _BEGIN, 0, len(payload), zlib.crc32(payload), 0)
        return made

    @classmethod
    def unpack(cls, payload: bytes) -> JournalRecord:
        """Return the record of a payload that has passed its checksum."""
        (length,) = struct.unpack_from("<I", payload)
        meta = json.loads(payload[4 : 4 + length])
        at, frames = 4 + length + (-(4 + length) % 8), {}
        buffer = pa.py_buffer(payload)
        for table, size in meta["frames"].items():
            frame = pl.from_arrow(pa.ipc.open_stream(buffer.slice(at, size)).read_all())
            assert isinstance(frame, pl.DataFrame)
            frames[table] = frame
            at += size
        stamp, state_ids = Stamp(*meta["stamp"]), tuple(meta["state_ids"])
        mark = bytes.fromhex(meta.get("store", ""))
        return cls(stamp, state_ids, frames, meta["horizons"], meta["undo"], meta["orders"], mark)


def _stream(frame: pl.DataFrame) -> memoryview:
    sink = pa.BufferOutputStream()
    arrow = table_of(frame)
    with pa.ipc.new_stream(sink, arrow.schema, options=_COMPRESSED) as writer:
        writer.write_table(arrow)
    return memoryview(sink.getvalue())


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A record with its place in the journal."""

    number: int
    start: int
    end: int
    record: JournalRecord


def place_of(shard: str, number: int, start: int) -> int:
    """Return what a record has of its place: a checksum, never 0.

    Args:
        shard: the name of the shard, empty for one that has none.
        number: of the journal's file.
        start: offset of the record.
    """
    return zlib.crc32(f"{shard}/{number}/{start}".encode()) or 1


def moved(record: bytes, place: int) -> bytes:
    """Return the bytes of a record for another place."""
    made = bytearray(record)
    _put_in_place(made, place)
    return bytes(made)


def _put_in_place(record: bytearray, place: int) -> None:
    magic, _, length, crc, _ = _RECORD.unpack_from(record)
    check = zlib.crc32(_EXTENT.pack(magic, length, crc, place))
    _RECORD.pack_into(record, 0, magic, check, length, crc, place)


def payload_at(data: bytes, at: int, place: int) -> bytes | None:
    """Return the payload of a record; None if cut, damaged or from elsewhere.

    Args:
        data: bytes of the journal.
        at: offset of the record in them.
        place: of the record in the journal, as `place_of` returns it.
    """
    if len(data) - at < _RECORD.size:
        return None
    magic, check, length, crc, found = _RECORD.unpack_from(data, at)
    start = at + _RECORD.size
    if magic != _BEGIN or zlib.crc32(_EXTENT.pack(magic, length, crc, found)) != check or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if zlib.crc32(payload) == crc and found in (0, place) else None
