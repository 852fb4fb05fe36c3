"""File operations used for durability.

Tests replace them by versions that lose unsynced data.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from umbel.errors import Transient, UmbelError

READ, WRITE = os.O_RDONLY | os.O_CLOEXEC, os.O_RDWR | os.O_CLOEXEC
CREATE, NEW = WRITE | os.O_CREAT, WRITE | os.O_CREAT | os.O_EXCL
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk, a quota or a limit that takes no more."""
_REMEDIES = {
    **dict.fromkeys(FULL, "free some disk space"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM), "let the account that runs umbel own it and all in umbel's folder: chown -R"
    ),
    errno.EROFS: "mount the disk so that it can be written to",
}


def remedy_of(number: int | None, otherwise: str = "check the disk") -> str:
    """Return the remedy of an error of a disk, by its `errno`."""
    return _REMEDIES.get(number or 0, otherwise)


_IN_TEXT = re.compile(r"\(os error (\d+)\)")
"""The number of an error of a library in Rust, which has it in its text only."""


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Name a place in errors of its disk, which libraries leave out.

    Raises:
        Transient: the disk does not take what is written.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, UmbelError):
            raise
        in_text = _IN_TEXT.search(str(error))
        number = int(in_text[1]) if in_text else error.errno
        reason = os.strerror(number) if number else error
        raise Transient(f"{place} cannot be written: {reason}", hint=remedy_of(number)) from error


def open_file(path: Path | str, flags: int = WRITE) -> int:
    """Open a file; return its descriptor."""
    return os.open(path, flags, 0o644)


def write(file: int, data: bytes | memoryview, at: int) -> None:
    """Write all of the data at an offset, on disk only after a `sync`."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def cut(file: int, size: int) -> None:
    """Truncate a file."""
    os.ftruncate(file, size)


def sync(file: int) -> None:
    """Sync a file's content to disk.

    The file's name is on disk only after `sync_directory`.
    """
    os.fdatasync(file)


def close(file: int) -> None:
    """Close a file."""
    os.close(file)


def rename(path: Path, name: Path) -> None:
    """Rename a file; an existing file of that name is replaced."""
    path.rename(name)


def link(path: Path, name: Path) -> None:
    """Give a file a second name.

    Raises:
        FileExistsError: there is a file of that name.
    """
    os.link(path, name)


def remove(path: Path) -> None:
    """Delete a file, if it exists."""
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming and removal of files in a directory durable."""
    file = os.open(directory, READ)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a file under a new name, durably.

    Of one that cannot be written, as on a full disk, nothing is left.
    """
    make_folder(path.parent)
    try:
        _written(path, data)
    except OSError:
        remove(path)
        raise
    sync_directory(path.parent)


def replace(path: Path, data: bytes | memoryview) -> None:
    """Replace a file atomically and durably.

    A reader finds the old content or the new one, whenever the machine stops.
    """
    make_folder(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    _written(fresh, data)
    rename(fresh, path)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Sync the content of a file to disk."""
    file = open_file(path, READ)
    try:
        sync(file)
    finally:
        close(file)


def _written(path: Path, data: bytes | memoryview) -> None:
    file = open_file(path, CREATE)
    try:
        cut(file, 0)
        write(file, data, 0)
        sync(file)
    except OSError as error:  # of a descriptor: it does not know the name
        error.filename = error.filename or str(path)
        raise
    finally:
        close(file)
