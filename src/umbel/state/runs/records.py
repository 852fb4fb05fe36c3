"""Records of a shard's journal: the writes of one transaction, as bytes.

A record is `magic · checksum of the header · length · checksum of the payload · payload`. The payload is JSON, padded to 8
bytes, and the frames as Arrow IPC streams.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from umbel.state.port import Stamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RECORD = struct.Struct("<4sIQII")
_EXTENT = struct.Struct("<4sQII")
_BEGIN = b"URec"
_PLAIN = pl.CompatLevel.oldest()
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
RECORD_BYTES = _RECORD.size
"""Bytes of a record before its payload."""


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
    """

    stamp: Stamp
    state_ids: tuple[str, ...]
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    horizons: Mapping[str, int] = field(default_factory=dict)
    undo: bool = True
    orders: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    _packed: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    def pack(self) -> bytes:
        """Return the bytes of the record, made once."""
        if not self._packed:
            self._packed.append(self._bytes())
        return self._packed[0]

    def _bytes(self) -> bytes:
        streams = {table: _stream(frame) for table, frame in self.frames.items()}
        meta = {
            "stamp": [self.stamp.epoch, self.stamp.batch, self.stamp.step],
            "state_ids": self.state_ids,
            "frames": {table: len(stream) for table, stream in streams.items()},
            "horizons": dict(self.horizons),
            "undo": self.undo,
            "orders": dict(self.orders),
        }
        text = json.dumps(meta).encode()
        payload = b"".join((struct.pack("<I", len(text)), text, b"\0" * (-(4 + len(text)) % 8), *streams.values()))
        extent = _EXTENT.pack(_BEGIN, len(payload), zlib.crc32(payload), 0)
        return _RECORD.pack(_BEGIN, zlib.crc32(extent), len(payload), zlib.crc32(payload), 0) + payload

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
        return cls(stamp, state_ids, frames, meta["horizons"], meta["undo"], meta["orders"])


def _stream(frame: pl.DataFrame) -> memoryview:
    sink = pa.BufferOutputStream()
    arrow = frame.to_arrow(compat_level=_PLAIN)
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


def payload_at(data: bytes, at: int) -> bytes | None:
    """Return the payload of the record at an offset; None if cut or damaged."""
    if len(data) - at < _RECORD.size:
        return None
    magic, check, length, crc, spare = _RECORD.unpack_from(data, at)
    start = at + _RECORD.size
    if magic != _BEGIN or zlib.crc32(_EXTENT.pack(magic, length, crc, spare)) != check or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if zlib.crc32(payload) == crc else None
