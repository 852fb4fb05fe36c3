"""The tail of a change log: the batches that are not in its table yet.

`FileTail` stores it as a folder of files, one per batch.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from umbel.errors import Damaged
from umbel.log.nesting import stored_frame
from umbel.log.reading import RESTORE
from umbel.state import disk

BATCH = "_batch"
PORTION = 500_000
"""Changes that are moved to a table at once: the memory for it is some ten times that of their files."""
UNKNOWN = -(1 << 63)
"""The link to the batch before, if that is not known."""
_MAGIC, _STORELESS, _PLACELESS, _OLD = b"umbeltl3", b"umbeltl2", b"umbeltl1", b"ARROW1"
"""The first bytes of files with the identity of the store, of those whose checksum is also of their place, and of older ones."""
_CRC, _LINK, _LENGTH = struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<H")
_HEAD = len(_MAGIC) + _CRC.size + _LINK.size


class ChangeTail(Protocol):
    """The recent batches of a change log, before they are moved to its table."""

    def read(self, after: int, until: int | None = None) -> pl.DataFrame | None:
        """Return the changes of the batches in (after, until], with `_batch`; None if none."""

    def portions(self, after: int, until: int) -> Iterator[pl.DataFrame]:
        """Yield the same, at most `PORTION` changes at a time."""

    def forget(self, until: int) -> None:
        """Delete the batches up to `until`.

        Files that cannot be deleted now are deleted the next time.
        """


@dataclass(frozen=True, slots=True)
class FileTail:
    """The tail as files, one per batch.

    Args:
        folder: the folder of the files.
        store: returns the identity of the deployment's store, as that of a `ChangeLog`.
    """

    folder: Path
    store: Callable[..., str] = str

    def put(self, batch: int, changes: pl.DataFrame, before: int = UNKNOWN) -> None:
        """Store the changes of a batch durably; a repeated batch replaces its file.

        Args:
            batch: its number.
            changes: a frame of changes.
            before: the last batch that was put before it.
        """
        link, packed = _LINK.pack(before), _packed(changes, batch)
        path = self.folder / f"{batch:012d}.arrow"
        identity = self.store().encode()
        head = link + _LENGTH.pack(len(identity)) + identity
        checksum = _CRC.pack(zlib.crc32(packed, zlib.crc32(head, _place(path))))
        disk.replace(path, b"".join((_MAGIC, checksum, head, packed)))

    def missing(self, last: int, reached: int) -> int | None:
        """Return a required batch that is missing, None if none is.

        Args:
            last: the last batch that was put here.
            reached: the last batch that was moved to the table; those before it were moved, too.
        """
        while last > reached:
            try:
                with (self.folder / f"{last:012d}.arrow").open("rb") as file:
                    data = file.read(_HEAD)
            except FileNotFoundError:
                return last
            is_linked = data.startswith((_MAGIC, _STORELESS, _PLACELESS)) and len(data) == _HEAD
            before = _LINK.unpack(data[-_LINK.size :])[0] if is_linked else UNKNOWN
            if before >= last:
                return last  # the file of a later batch is in its place
            last = before
        return None

    def size(self) -> tuple[int, int]:
        """Return the number of files, and their bytes."""
        sizes = [path.stat().st_size for path in self._files()]
        return len(sizes), sum(sizes)

    def last(self) -> int:
        """Return the number of the last batch, -1 for none."""
        return max((int(path.stem) for path in self._files()), default=-1)

    def read(self, after: int, until: int | None = None) -> pl.DataFrame | None:
        """Return the changes of the batches in (after, until]."""
        return _together(self._frames(after, until))

    def portions(self, after: int, until: int) -> Iterator[pl.DataFrame]:
        """Yield the changes of the batches in (after, until], at most `PORTION` at a time."""
        portion, rows = list[pl.DataFrame](), 0
        for frame in self._frames(after, until):
            for part in frame.iter_slices(PORTION):
                if portion and rows + part.height > PORTION:
                    yield pl.concat(portion)
                    portion, rows = [], 0
                portion.append(part)
                rows += part.height
        if portion:
            yield pl.concat(portion)

    def forget(self, until: int) -> None:
        """Delete the files of the batches up to `until`."""
        for path in self._files():
            if int(path.stem) <= until:
                disk.remove(path)

    def undo(self, batch: int) -> None:
        """Delete the file of an unfinished batch, if it is there."""
        disk.remove(self.folder / f"{batch:012d}.arrow")

    def _frames(self, after: int, until: int | None) -> Iterator[pl.DataFrame]:
        for path in self._files():
            if _is_in(path, after, until):
                yield from self._opened(path)

    def _opened(self, path: Path) -> Iterable[pl.DataFrame]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return  # it was moved into the table, which the caller reads next
        if data.startswith(_OLD):
            yield pl.read_ipc(io.BytesIO(data))
            return
        magic, found = data[: len(_MAGIC)], data[len(_MAGIC) : len(_MAGIC) + 4]
        start = {_MAGIC: _place(path), _STORELESS: _place(path), _PLACELESS: 0}.get(magic)
        if start is None or found != _CRC.pack(zlib.crc32(data[len(_MAGIC) + 4 :], start)):
            raise _damaged(path, "is not as it was written")
        begin = _HEAD
        if magic == _MAGIC:
            begin += _LENGTH.size + _LENGTH.unpack_from(data, _HEAD)[0]
            identity = data[_HEAD + _LENGTH.size : begin].decode()
            if identity and self.store(identity) not in ("", identity):
                raise _damaged(path, "is that of another deployment, or from before `umbel rebuild --all`")
        yield pl.read_ipc(io.BytesIO(memoryview(data)[begin:]))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.arrow"))


def _is_in(path: Path, after: int, until: int | None) -> bool:
    return after < int(path.stem) and (until is None or int(path.stem) <= until)


def _damaged(path: Path, what: str) -> Damaged:
    position = "/".join(path.parts[-3:])
    return Damaged(f"the tail of a change log is damaged: {position} {what}", hint=RESTORE)


def _place(path: Path) -> int:
    """Return the start of a file's checksum, from its log and batch.

    So no other file fits there.
    """
    return zlib.crc32(f"{path.parent.parent.name}/{path.name}".encode())


def _packed(changes: pl.DataFrame, batch: int) -> memoryview:
    buffer = io.BytesIO()
    stored_frame(changes).with_columns(pl.lit(batch, pl.Int64).alias(BATCH)).write_ipc(buffer, compression="lz4")
    return buffer.getbuffer()


def _together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame | None:
    found = list(frames)
    return pl.concat(found) if found else None
