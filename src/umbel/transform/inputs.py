"""Inputs of the transformation, cut into parts of whole lines."""

from __future__ import annotations

import glob
import os
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from select import select
from typing import Any, BinaryIO

from umbel.errors import InvalidValue
from umbel.formats.chunks import MAX_ROW, chunks, last_line, next_line
from umbel.formats.stored import PACKED, LocalFile
from umbel.transform.parts import Lines, changed, identity_of

PART_BYTES = 2 << 20
"""Bytes of a part: several thousand records, which a worker transforms at once."""
RANGE_BYTES = 3 << 20
"""Bytes of a part that the worker reads itself: it is never in more than one process."""
SHOWN_BYTES = 1 << 10
"""Bytes of a line that is too long which its dead letter has."""
PARQUET_ROWS = 8192
PAUSE, LONGEST = 0.2, 0.5
"""Seconds between two looks for more of a stream, and within which what has come of it is a part."""
ENDINGS = (".json", ".ndjson", ".jsonl", ".parquet")
STDIN = "-"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to transform, or standard input.

    Args:
        path: the file; `-` is standard input.
    """

    path: Path

    @property
    def size(self) -> int:
        """Its size in bytes, 0 if unknown."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def parts(self, advance: Callable[[int], None]) -> Iterator[Lines]:
        """Yield its lines in parts; of a stream, pauses between them.

        Args:
            advance: called with the numbers of bytes read.
        """
        if str(self.path) == STDIN:
            if sys.stdin is None:
                raise InvalidValue("standard input is closed", hint="give files: -f FILE")
            yield from _without_mark(_stream(sys.stdin.buffer, "standard input"))
        elif ending(self.path) == ".parquet":
            with _not_cut(self.path):
                yield from _parquet(self.path, advance)
        elif ending(self.path) in PACKED:
            with _not_cut(self.path):
                yield from _without_mark(_unpacked(self.path))
            advance(self.size)
        elif self.path.is_file():
            yield from _ranges(self.path, advance)
        else:  # a pipe
            with self.path.open("rb") as file:
                yield from _without_mark(_stream(file, str(self.path)))


def inputs(names: list[str]) -> list[InputFile]:
    """Return the files of some names, in order, each once.

    A name is of a file, a folder with all of its files, or a pattern of files and folders.

    Raises:
        InvalidValue: there is none for a name, or one has an ending that is not read.
    """
    found: dict[Path, InputFile] = {}
    for each in (path for name in names or [STDIN] for path in _files_of(name)):
        check_ending(each)
        found.setdefault(each if str(each) == STDIN else each.resolve(), InputFile(each))
    return [*found.values()]


def _files_of(name: str) -> list[Path]:
    """Return the files of a name, in order; of a pattern, some twice."""
    path = Path(name)
    if name == STDIN or (path.exists() and not path.is_dir()):
        return [path]
    files = sorted(_listed(path) if path.is_dir() else _matched(name))
    if not files:
        raise InvalidValue(
            f"there is no file {name}", hint=f"a file, a folder with files in {', '.join(ENDINGS)}, or a pattern"
        )
    return files


def _listed(folder: Path) -> Iterator[Path]:
    """Yield the files with records in a folder."""
    files = (each for inner in _folders(folder) for each in inner.iterdir())
    return (each for each in files if each.is_file() and _is_records(each, folder))


def _folders(root: Path) -> Iterator[Path]:
    """Yield a folder and those in it, each once; not hidden ones."""
    seen, left = set[str](), [root]
    while left:
        for name, inner, _ in os.walk(left.pop(0)):
            if (real := os.path.realpath(name)) in seen:
                inner.clear()
                continue
            seen.add(real)
            inner[:] = sorted(each for each in inner if not each.startswith("."))
            left += (each for each in (Path(name, each) for each in inner) if each.is_symlink())
            yield Path(name)


def _matched(pattern: str) -> Iterator[Path]:
    """Yield the files of a pattern, and of the folders it matches; some twice."""
    for each in _names(Path(pattern)):
        if each.is_file():
            yield each
        elif each.is_dir() and not each.name.startswith("_"):
            yield from _listed(each)


def _names(pattern: Path) -> Iterator[Path]:
    """Yield the files and folders of a pattern; some twice."""
    if "**" not in (parts := pattern.parts):
        yield from map(Path, glob.glob(str(pattern)))  # noqa: PTH207  of any root
        return
    at = parts.index("**")  # by itself, `glob` follows links that lead around without end
    for root in _names(Path(*parts[:at])) if at else [Path()]:
        for folder in _folders(root):
            yield from _names(Path(glob.escape(str(folder)), *(parts[at + 1 :] or "*")))


def check_ending(path: Path) -> None:
    """Check that a name is not of Parquet that is compressed as a whole.

    Raises:
        InvalidValue: it is.
    """
    if ending(path) in PACKED and ending(path.with_suffix("")) == ".parquet":
        hint = f"use .parquet without {path.suffix}: it compresses its columns itself"
        raise InvalidValue(f"{path}: Parquet that is compressed as a whole is neither read nor written", hint=hint)


def ending(path: Path) -> str:
    """Return the last ending of a name, in lower case."""
    return path.suffix.lower()


def _is_records(path: Path, folder: Path) -> bool:
    """Return True unless a file is of another kind, hidden or unfinished.

    Spark writes into folders such as `_temporary` until it ends.
    """
    plain = path.with_suffix("") if ending(path) in PACKED else path
    is_hidden = any(name.startswith((".", "_")) for name in path.relative_to(folder).parts)
    return ending(plain) in ENDINGS and not is_hidden


def _without_mark(parts: Iterator[Lines]) -> Iterator[Lines]:
    """Leave out the byte order mark that an input may begin with, as Spark does."""
    for part in parts:
        yield replace(part, data=part.data.removeprefix(BOM_UTF8))
        if not part.is_pause:
            break
    yield from parts


@contextmanager
def _not_cut(path: Path) -> Iterator[None]:
    """Check at the end of a block that a file has not become shorter.

    Raises:
        Transient: it has.
    """
    before = path.stat()
    yield
    with suppress(FileNotFoundError):  # a file that is removed is read to its end
        now = path.stat()
        if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) and now.st_size < before.st_size:
            raise changed(str(path.absolute()), "became shorter")


def _unpacked(path: Path) -> Iterator[Lines]:
    """Yield the lines of a compressed file, of which small pieces come, in parts."""
    for chunk in chunks(LocalFile(path), 0, None, last_line, RANGE_BYTES):
        yield Lines(str(path), chunk.data, error=chunk.error or "")


def _ranges(path: Path, advance: Callable[[int], None]) -> Iterator[Lines]:
    """Yield ranges of a file, which the workers read themselves.

    Raises:
        Transient: it became shorter.
    """
    size, name, whole = path.stat().st_size, str(path), str(path.absolute())
    with path.open("rb") as file:
        begin = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        identity = identity_of(file)
    while begin < size:
        middle = min(begin + RANGE_BYTES, size)
        end = next_line(LocalFile(path), middle)
        if end < middle:
            raise changed(whole, "became shorter")
        if end - middle <= MAX_ROW:
            yield Lines(name, path=whole, begin=begin, end=end, identity=identity)
        else:
            yield from _around_long_line(path, begin, middle, end)
        advance(end - begin)
        begin = end


def _around_long_line(path: Path, begin: int, middle: int, end: int) -> Iterator[Lines]:
    """Yield the lines of a range whose last one is too long to be read.

    Args:
        path: the file.
        begin: the start of the range.
        middle: a byte of the line that is too long.
        end: the end of the line.
    """
    name, head = str(path), bytes(Lines("", path=str(path), begin=begin, end=middle).read())
    start, is_ended = last_line(head), Lines("", path=str(path), begin=end - 1, end=end).read() == b"\n"
    if start:
        yield Lines(name, head[:start])
    yield Lines(name, head[start:][:SHOWN_BYTES], error=_too_long(end - begin - start - is_ended))


def _too_long(size: int) -> str:
    return f"a record of {size} bytes is longer than {MAX_ROW}"


def _stream(file: BinaryIO, name: str) -> Iterator[Lines]:
    """Yield the lines of a stream in parts, and pauses between them.

    At a pause there is no more for now: results need not wait for it.
    """
    unread = b""
    while True:
        while not _is_ready(file):
            yield Lines(name)
        piece = _piece(file)
        if not piece:
            break
        is_short = len(piece) < PART_BYTES
        unread += piece
        del piece  # while a part is processed there is no other copy of it
        whole = last_line(unread)
        if whole:
            part, unread = Lines(name, unread[:whole]), unread[whole:]
            yield part
        elif len(unread) > 2 * MAX_ROW:
            begin = unread[:SHOWN_BYTES]
            size, unread = _skipped(file, len(unread))
            yield Lines(name, begin, error=_too_long(size))
        if is_short:
            yield Lines(name)
    if unread:
        yield Lines(name, unread)


def _is_ready(file: BinaryIO) -> bool:
    """Return True if a stream has bytes or has ended, now or soon."""
    try:
        return bool(select([file], [], [], PAUSE)[0])
    except ValueError:  # it has no descriptor, or a high one
        return True


def _piece(file: Any) -> bytes:
    """Return the next bytes of a stream, those that come within a while.

    Unlike one `read`, an interrupt ends it between any two packets.
    """
    pieces, size, begun = list[bytes](), 0, time.monotonic()
    while size < PART_BYTES and (piece := file.read1(PART_BYTES - size)):
        pieces.append(piece)
        size += len(piece)
        if time.monotonic() > begun + LONGEST or not _is_ready(file):
            break
    return b"".join(pieces)


def _skipped(file: BinaryIO, size: int) -> tuple[int, bytes]:
    """Skip the rest of a line; return its size, and the bytes read behind it.

    Args:
        file: the stream.
        size: the bytes of the line that have been read.
    """
    while piece := _piece(file):
        rest, newline, behind = piece.partition(b"\n")
        size += len(rest)
        if newline:
            return size, behind
    return size, b""


def _parquet(path: Path, advance: Callable[[int], None]) -> Iterator[Lines]:
    import pyarrow as pa

    from umbel.formats.parquet import opened, streamed
    from umbel.transform.rows import check_columns, parts_of

    try:
        file = opened(path)
        rows = max(1, file.metadata.num_rows)
        try:
            check_columns(file.schema_arrow)
        except InvalidValue as error:
            error.message = f"{path}: {error.message}"
            raise
        for batch in streamed(file, path, file.schema_arrow.names).iter_batches(PARQUET_ROWS):
            yield from parts_of(str(path), batch)
            advance(path.stat().st_size * batch.num_rows // rows)
    except (pa.ArrowException, OSError) as error:
        yield Lines(str(path), error=f"not a readable Parquet file: {error}")
