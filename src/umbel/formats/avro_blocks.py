"""Avro container files, their blocks decompressed."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any

from umbel.errors import PackageError
from umbel.formats.avro_shape import MOST_EMPTY
from umbel.formats.stored import DamagedError

MOST_BLOCK = 512 << 20
"""The largest decompressed block in bytes."""
_SYNC = 16
_HEADER = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC}},
    ],
}


class Blocks(io.RawIOBase):
    """The blocks of a file, as the bytes of a file that is not compressed.

    Args:
        file: at its start.

    Raises:
        DamagedError: it does not begin as such a file does, or is of an unknown compression.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file, self._ahead, self._follows = file, io.BytesIO(), False
        try:
            self._header = avro().schemaless_reader(file, _HEADER, None)
        except EOFError as error:
            raise DamagedError("it has no header of an Avro file") from error
        meta = self._header["meta"]
        self._codec, self.schema = (
            meta.get("avro.codec", b"null").decode(errors="replace"),
            meta.get("avro.schema", b""),
        )
        if self._header["magic"] != b"Obj\x01":
            raise DamagedError("it has no header of an Avro file")
        if self._codec not in _CODECS:
            raise DamagedError(f"it is compressed by '{self._codec}', which is not one of {', '.join(_CODECS)}")
        self.data, self.count, self.done = b"", 0, 0

    @property
    def place(self) -> int:
        """The end of the last block, where the next one is; 0 for the first."""
        return self._file.tell() if self._follows else 0

    def readable(self) -> bool:
        return True

    def go_to(self, place: int) -> None:
        """Go to a block, before the first one is read."""
        if place:
            self._file.seek(place)
            self._follows = True

    def restart(self) -> None:
        """Begin anew with the header; the blocks read so far are left out."""
        plain = io.BytesIO()
        avro().schemaless_writer(plain, _HEADER, {**self._header, "meta": {"avro.schema": self.schema}})
        self._ahead = io.BytesIO(plain.getvalue())

    def read(self, size: int = -1) -> bytes:
        """Read at most so many bytes, of one block."""
        found = self._ahead.read(size)
        if not found and size and self.load():
            self._ahead = io.BytesIO(
                b"".join((_number(self.count), _number(len(self.data)), self.data, self._header["sync"]))
            )
            found = self._ahead.read(size)
        return found

    def load(self) -> bool:
        """Go on to the next block; return False at the end of the file."""
        if self._follows and self._file.read(_SYNC) != self._header["sync"]:
            self._follows = False
            raise DamagedError("the mark behind a block is missing")
        if (count := self._read_number()) is None:
            return False
        size = self._read_number()
        if size is None or count < 0 or not 0 <= size <= MOST_BLOCK:
            raise DamagedError(f"a block has {count} records, and a size of {size} bytes")
        packed = self._file.read(size)
        if len(packed) < size:
            raise DamagedError("the last block is cut")
        try:
            self.data = _CODECS[self._codec](packed)
        except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise DamagedError(f"a block compressed by {self._codec} is damaged: {error}") from error
        # More records than that there are not: rows are not numbered by what a damaged block says.
        self.count, self.done, self._follows = min(count, max(len(self.data), MOST_EMPTY) + 2), 0, True
        return True

    def _read_number(self) -> int | None:
        """Return the next number, None at the end of the file."""
        value = shift = 0
        while shift < 64:
            if not (byte := self._file.read(1)):
                if shift:
                    raise DamagedError("it is cut between two blocks")
                return None
            value |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise DamagedError("the size of a block has more than 64 bits")


def avro() -> Any:
    """Return the package that reads Avro.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        raise PackageError("files of Avro need the package fastavro", hint="pip install 'umbel[s3]'") from error
    return fastavro


def _number(value: int) -> bytes:
    """Return a number that is not negative as Avro writes it."""
    rest, found = value << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_BLOCK:
        raise ValueError(f"it has more than {MOST_BLOCK:,} bytes")
    return data


def _snappy(packed: bytes) -> bytes:
    """Decompress raw Snappy, which begins with its size, and check the CRC behind it."""
    import pyarrow as pa

    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > MOST_BLOCK:
        raise ValueError(f"it has more than {MOST_BLOCK:,} bytes")
    data: bytes = pa.decompress(packed[:-4], decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(data) != int.from_bytes(packed[-4:], "big"):
        raise ValueError("its checksum differs")
    return data


def _zstandard(packed: bytes) -> bytes:
    import pyarrow as pa

    with pa.input_stream(pa.BufferReader(packed), compression="zstd") as stream:
        return bytes(stream.read(MOST_BLOCK + 1))


def _lz4(packed: bytes) -> bytes:
    """Decompress a block of LZ4 behind its size in four bytes."""
    import pyarrow as pa

    size = int.from_bytes(packed[:4], "little")
    if size > MOST_BLOCK:
        raise ValueError(f"it has more than {MOST_BLOCK:,} bytes")
    data: bytes = pa.decompress(packed[4:], decompressed_size=size, codec="lz4_raw", asbytes=True)
    return data


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda packed: _bounded(zlib.decompressobj(-15).decompress(packed, MOST_BLOCK + 1)),
    "bzip2": lambda packed: _bounded(bz2.BZ2Decompressor().decompress(packed, MOST_BLOCK + 1)),
    "xz": lambda packed: _bounded(lzma.LZMADecompressor().decompress(packed, MOST_BLOCK + 1)),
    "snappy": _snappy,
    "zstandard": lambda packed: _bounded(_zstandard(packed)),
    "lz4": _lz4,
}
