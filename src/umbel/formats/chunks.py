"""Reading of a file in chunks of whole records."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from umbel.formats.stored import StoredFile

MAX_ROW = 8 << 20
"""Maximum length of a row in bytes; a longer one is rejected."""

RAW_RETAINED = 64 << 10
"""Bytes retained of a row rejected unread."""

COMPRESSED = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"\x28\xb5\x2f\xfd")
"""Beginnings of what Polars takes for compressed by gzip, zlib or zstd, and decompresses unasked."""

CHUNK_BYTES = 4 << 20
"""Bytes of a chunk where little memory is to be taken."""

LARGE_CHUNK_BYTES = 16 << 20
"""Bytes of a chunk where each has costs of its own: JSON lines of 4 MiB at a time took 1.15 times as long."""
_PACKED_BYTES = 1 << 20
_ZSTD_BYTES = 64 << 10
_RETRIED = (64 << 10, 256, 1)

LastBreak = Callable[[bytes], int]
"""Returns the length of the whole records, in bytes; 0 when none is complete."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of bytes of a file.

    Args:
        offset: their first byte, in the uncompressed file.
        data: whole records; for a malformed piece its first bytes.
        error: the reason the piece is malformed, None for records.
    """

    offset: int
    data: bytes
    error: str | None = None


class _Damaged(Exception):
    """A compressed file cannot be read further."""


def chunks(
    stored: StoredFile, begin: int, end: int | None, last_break: LastBreak, size: int | None = None
) -> Iterator[Chunk]:
    """Yield the bytes between two offsets in chunks of whole records.

    Args:
        stored: the file; a name in `.gz` or `.zst` is decompressed, from its start to its end.
        begin: the first byte: the start of a record.
        end: the byte behind the last; None for the end of the file.
        last_break: finds the end of the last whole record.
        size: about how many bytes a chunk has, before its last record is cut; None for `CHUNK_BYTES`.
    """
    most = size or CHUNK_BYTES
    with stored.open() as file:
        unpack = _UNPACK.get(stored.suffix)
        pieces = _plain(file, begin, end) if unpack is None else unpack(file)
        yield from _cut(_gathered(pieces, most), begin, last_break)


def last_line(data: bytes) -> int:
    """Return the length of the whole lines, in bytes."""
    return data.rfind(b"\n") + 1


def next_line(stored: StoredFile, offset: int) -> int:
    """Return the start of the first line at or behind an offset."""
    if offset == 0:
        return 0
    with stored.open() as file:
        file.seek(offset - 1)
        while line := file.readline(CHUNK_BYTES):
            if line.endswith(b"\n"):
                break
        return file.tell()


def _plain(file: IO[bytes], begin: int, end: int | None) -> Iterator[bytes]:
    # Not a whole chunk at once: each read is a request to a bucket, which has to be answered in time over a slow line, too.
    file.seek(begin)
    left = (1 << 62) if end is None else end - begin
    while piece := file.read(min(CHUNK_BYTES, left)):
        yield piece
        left -= len(piece)


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Join small pieces; all that come before an error, such as damage, are yielded."""
    found, length = list[bytes](), 0
    try:
        for piece in pieces:
            found.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(found)
                found, length = [], 0
    except Exception:
        yield b"".join(found)
        raise
    yield b"".join(found)


def _gunzip(file: IO[bytes]) -> Iterator[bytes]:
    # Not gzip.open: it loses the bytes decompressed in the call that meets the damage.
    decoder, has_ended = None, False
    while packed := file.read(_PACKED_BYTES):
        if has_ended and decoder is None:
            packed = packed.lstrip(b"\0")  # padding
        while packed:
            decoder = decoder or zlib.decompressobj(wbits=31)
            before = decoder.copy()
            try:
                plain = decoder.decompress(packed, CHUNK_BYTES)
            except zlib.error as error:
                yield from _before_damage(before, packed)
                raise _Damaged(f"the gzip data is damaged: {error}") from error
            if plain:
                yield plain
            packed = decoder.unconsumed_tail
            if decoder.eof:
                packed, decoder, has_ended = decoder.unused_data.lstrip(b"\0"), None, True
    if decoder is not None:
        raise _Damaged("the gzip data breaks off before its end")


def _before_damage(decoder: Any, packed: bytes) -> Iterator[bytes]:
    """Yield the bytes before the damage, decompressed in ever smaller pieces.

    The call that meets damage loses all that it has decompressed.
    """
    for size in _RETRIED:
        while True:
            before = decoder.copy()
            try:
                plain = decoder.decompress(packed, size)
            except zlib.error:
                decoder = before
                break
            if not plain:
                return
            yield plain
            packed = decoder.unconsumed_tail


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
    done = 0
    try:
        for piece in _zstd_pieces(_SlowFile(file), done):
            yield piece
            done += len(piece)
    except _Damaged:
        slow_from = max(file.tell() - 2 * _ZSTD_BYTES, 0)
        file.seek(0)
        yield from _zstd_pieces(_SlowFile(file, slow_from), done)
        raise  # the file was replaced meanwhile


def _zstd_pieces(file: _SlowFile, done: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file behind the first `done` ones.

    Those of a slow file are yielded one by one. The call that meets damage loses all that it has read and decompressed.
    """
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") as plain:
            for start in range(0, done, _ZSTD_BYTES):
                plain.read(min(_ZSTD_BYTES, done - start))
            while piece := plain.read(1 if file.is_slow else _ZSTD_BYTES):
                yield piece
    except OSError as error:
        if error.errno is not None:  # of the disk, not of the content
            raise
        raise _Damaged(f"the zstd data is damaged, or breaks off before its end: {error}") from error


class _SlowFile(io.RawIOBase):
    """A file that gives single bytes from an offset on.

    Args:
        file: the file.
        slow_from: the offset; None for never.
    """

    def __init__(self, file: IO[bytes], slow_from: int | None = None) -> None:
        super().__init__()
        self._file, self._slow_from = file, slow_from

    @property
    def is_slow(self) -> bool:
        """True if it gives single bytes at its end."""
        return self._slow_from is not None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read at most so many bytes."""
        if self._slow_from is not None:
            before = self._slow_from - self._file.tell()
            size = min(size, before) if before > 0 else 1
        return self._file.read(size)


_UNPACK: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {".gz": _gunzip, ".zst": _unzstd}


def _cut(pieces: Iterator[bytes], offset: int, last_break: LastBreak) -> Iterator[Chunk]:
    unread, error = b"", None
    try:
        for piece in pieces:
            unread += piece
            whole = last_break(unread)
            if not whole and len(unread) > MAX_ROW:
                whole = last_line(unread)
            if whole:
                yield Chunk(offset, unread[:whole])
            elif len(unread) > MAX_ROW:
                chunk, unread, whole = _skip_row(unread, pieces, offset)
                yield chunk
                offset += whole
                continue
            unread, offset = unread[whole:], offset + whole
    except _Damaged as damage:
        error = str(damage)
    whole = len(unread) if error is None else last_break(unread)
    if whole:
        yield Chunk(offset, unread[:whole])
    if error is not None:
        yield Chunk(offset + whole, unread[whole:][:RAW_RETAINED], error)


def _skip_row(unread: bytes, pieces: Iterator[bytes], offset: int) -> tuple[Chunk, bytes, int]:
    """Skip an oversized row; return an error chunk, the remaining bytes, the row's size.

    The remaining bytes are those of the last piece behind the row.
    """
    start, size, rest = unread[:RAW_RETAINED], len(unread), b""
    for piece in pieces:
        line = piece.find(b"\n") + 1
        size += line or len(piece)
        if line:
            rest = piece[line:]
            break
    return Chunk(offset, start, f"a row of {size} bytes is longer than {MAX_ROW}"), rest, size
