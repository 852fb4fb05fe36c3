"""Decompression of files that goes on at the end of the last piece.

A compressed file can be read from its start alone. What decompresses it is therefore retained for its next piece, in the same
process. In another one, or after a restart, all before the piece is decompressed again, a little at a time.
"""

from __future__ import annotations

import io
import os
import time
import zlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import IO, Any

from umbel.formats.stored import DamagedError, StoredFile

UNPACKED_BYTES = 4 << 20
"""The largest number of bytes decompressed at once."""
MOST_IDLE = 16
"""Files whose decompression may go on: threads read pieces of several sources at once."""
IDLE_SECONDS = 600
"""How long a file whose next piece does not come stays open."""
_PACKED_BYTES = 1 << 20
_ZSTD_BYTES = 64 << 10
_RETRIED = (64 << 10, 256, 1)


class Unpacked:
    """The bytes of a compressed file, in order.

    Args:
        stored: the file; its name tells the compression.
    """

    def __init__(self, stored: StoredFile) -> None:
        self.identity, self.offset, self.is_over = stored.identity, 0, False
        self._file, self._ahead, self._at = stored.open(), b"", 0
        self._pieces = _UNPACK[stored.suffix](self._file)

    @property
    def consumed(self) -> int:
        """The compressed bytes that were read so far, some of them ahead."""
        return self._file.tell()

    @property
    def is_at_end(self) -> bool:
        """True if no bytes are left.

        Raises:
            DamagedError: there might be some.
        """
        while self._at == len(self._ahead) and not self.is_over:
            self._load()
        return self._at == len(self._ahead)

    def read(self, most: int) -> bytes:
        """Return the next bytes, none at the end.

        Raises:
            DamagedError: the file is damaged here, or breaks off.
        """
        if self.is_at_end:
            return b""
        data = self._ahead[self._at : self._at + most]
        self._at += len(data)
        self.offset += len(data)
        return data

    def put_back(self, size: int) -> None:
        """Go back by some of the bytes that the last `read` returned."""
        self._at -= size
        self.offset -= size

    def skip_to(self, offset: int) -> None:
        """Go on to an offset.

        Raises:
            DamagedError: the file has fewer bytes.
        """
        while self.offset < offset:
            if not self.read(min(UNPACKED_BYTES, offset - self.offset)):
                raise DamagedError(
                    f"the file ends at byte {self.offset} of its content, and was planned from byte {offset} on"
                )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _load(self) -> None:
        try:
            self._ahead, self._at = next(self._pieces, b""), 0
            self.is_over = not self._ahead
        except BaseException:
            self._ahead, self._at, self.is_over = b"", 0, True
            raise


class IdleFiles:
    """Compressed files that were read up to the end of a piece."""

    def __init__(self) -> None:
        self._lock, self._idle, self._process = Lock(), list[tuple[float, Unpacked]](), os.getpid()

    def take(self, identity: Hashable, offset: int) -> Unpacked | None:
        """Return the file that was read farthest, but not beyond an offset; None for none."""
        with self._lock:
            if self._process != os.getpid():  # forked: the parent reads on from the same descriptors
                self._idle, self._process = [], os.getpid()
            found = [each for each in self._idle if each[1].identity == identity and each[1].offset <= offset]
            if identity is None or not found:
                return None
            chosen = max(found, key=lambda each: each[1].offset)
            self._idle.remove(chosen)
            return chosen[1]

    def add(self, file: Unpacked) -> None:
        """Add a file for its next piece; close those that wait for long."""
        with self._lock:
            now = time.monotonic()
            self._idle.append((now, file))
            left = [each for each in self._idle if each[0] > now - IDLE_SECONDS][-MOST_IDLE:]
            for each in self._idle:
                if each not in left:
                    each[1].close()
            self._idle = left


_IDLE = IdleFiles()


@contextmanager
def unpacked(stored: StoredFile, offset: int) -> Iterator[Unpacked]:
    """Open a compressed file at an offset of its content.

    Raises:
        DamagedError: it is damaged before, or breaks off.
        FileLostError: it was changed since it was planned.
    """
    file = _IDLE.take(stored.identity, offset)
    try:
        if file is None:
            file = Unpacked(stored)
        else:
            stored.open().close()  # which finds a change
        file.skip_to(offset)
        yield file
    except BaseException:
        if file is not None:
            file.close()
        raise
    if file.is_over or file.identity is None:
        file.close()
    else:
        _IDLE.add(file)


def unpacked_bytes(stored: StoredFile, begin: int, end: int | None) -> Iterator[bytes]:
    """Yield the content of a compressed file between two offsets, None for the end."""
    with unpacked(stored, begin) as file:
        last = (1 << 62) if end is None else end
        while file.offset < last and (data := file.read(last - file.offset)):
            yield data


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
                plain = decoder.decompress(packed, UNPACKED_BYTES)
            except zlib.error as error:
                yield from _before_damage(before, packed)
                raise DamagedError(f"the gzip data is damaged: {error}") from error
            if plain:
                yield plain
            packed = decoder.unconsumed_tail
            if decoder.eof:
                packed, decoder, has_ended = decoder.unused_data.lstrip(b"\0"), None, True
    if decoder is not None:
        raise DamagedError("the gzip data breaks off before its end")


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
    except DamagedError:
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
        raise DamagedError(f"the zstd data is damaged, or breaks off before its end: {error}") from error


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
