"""The file port of a shard, and its implementation on a local folder.

A shard needs little of its storage: names below a prefix, whole files put at once, and a put that fails where the name is
taken. In a folder the journal's files are appended to, under a lock; in a bucket each record is an object of its own.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeGuard

import pyarrow as pa

from umbel.errors import Transient
from umbel.state import disk
from umbel.state.failpoints import reach
from umbel.state.runs.shard_names import KnownStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from umbel.state.runs.manifest import JournalPosition
    from umbel.state.runs.records import JournalRecord, PlacedRecord
    from umbel.state.runs.shard_names import StoreIdentity

_DRAFT = ".draft"


class ShardFiles(Protocol):
    """The files of one shard; names are relative, with `/` between folder and file.

    As text it is the name of the shard's folder, for messages.

    Attributes:
        has_locks: True if `locked` excludes other processes.
        grace: seconds within which a new file that no manifest names is not deleted.
        store: the identity of its store.
    """

    has_locks: bool
    grace: float
    store: StoreIdentity

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a range of a file; FileNotFoundError if there is none."""
        ...

    def size(self, name: str) -> int | None:
        """Return a file's size in bytes, None if there is none."""
        ...

    def map(self, name: str) -> pa.Buffer:
        """Return a file's content, mapped where the storage can; it stays readable after a `delete`."""
        ...

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write a whole file, durably; readers find it whole or not at all."""
        ...

    def put_new(self, name: str, data: bytes | memoryview) -> bool:
        """Write a whole file like `put`; False if the name is taken."""
        ...

    def check_puts(self) -> None:
        """Refuse a storage whose `put_new` does not fail where the name is taken.

        Raises:
            InvalidValue: it does not.
        """
        ...

    def list(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; unfinished ones are left out."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        ...

    def forget(self, name: str) -> None:
        """Delete the copy of a file on this machine, if it is one of several."""
        ...

    def is_cut(self, name: str, size: int) -> bool:
        """Return True if the copy of a file on this machine is cut.

        Args:
            name: of the file.
            size: of the file, in bytes.
        """
        ...

    def sweep(self, folder: str) -> None:
        """Delete unfinished files of dead writers; only for the one writer of a folder."""
        ...

    def deletable(self, folder: str) -> Sequence[str]:
        """Return the files of a folder that may be deleted if no manifest names them."""
        ...

    def is_pinned(self) -> bool:
        """Return True while somebody copies files that no manifest may name any more."""
        ...

    def journal(self, file_bytes: int) -> ShardJournal:
        """Return the shard's journal.

        Args:
            file_bytes: size from which on a file of it is followed by the next one.
        """
        ...

    @contextmanager
    def locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold an exclusive lock; yield False if it is taken and `wait` is False.

        In a bucket it excludes no other process: there, puts that fail where the name is taken decide.
        """
        ...


class AppendableFiles(ShardFiles, Protocol):
    """Files that can be appended to."""

    def append(self, name: str, at: int, data: bytes | memoryview) -> None:
        """Write at an offset of an existing file, durably."""
        ...

    def note(self, name: str, at: int, data: bytes) -> None:
        """Write at an offset of an existing file; durable with the next `append`."""
        ...

    def cut(self, name: str, size: int) -> None:
        """Truncate a file, durably."""
        ...


def is_appendable(files: ShardFiles) -> TypeGuard[AppendableFiles]:
    """Return whether files can be appended to: those of a folder can, objects cannot."""
    return files.has_locks


class ShardJournal(Protocol):
    """The journal of one shard: its records in order."""

    def create(self) -> None:
        """Create the journal, unless there is one. The writers' lock must be held."""
        ...

    def begin(self, number: int) -> JournalPosition:
        """Begin a new file, from which the journal goes on; return its beginning."""
        ...

    def since(self, at: JournalPosition) -> tuple[list[PlacedRecord], JournalPosition]:
        """Return the committed records after a position, and the end of the journal.

        Raises:
            Damaged: a record differs from its checksum.
            FileNotFoundError: the journal is not there.
        """
        ...

    def read(self, number: int, start: int, end: int) -> list[PlacedRecord]:
        """Return the committed records of a range of a file.

        Raises:
            Damaged: a record differs from its checksum.
        """
        ...

    def recover(self, at: JournalPosition) -> bool:
        """Commit or cut off an unfinished write; return True if a record was committed.

        The writers' lock must be held.

        Args:
            at: any position; the last file follows it.
        """
        ...

    def append(self, at: JournalPosition, record: JournalRecord) -> PlacedRecord:
        """Write a record durably.

        Args:
            at: the end of the journal.
            record: the writes.

        Raises:
            Transient: the storage fails, or another writer has written there.
        """
        ...

    def is_long(self, start: JournalPosition, end: JournalPosition) -> bool:
        """Return True if it takes long to read a range of it."""
        ...

    def delete(self, before: int, apart_from: set[int]) -> None:
        """Delete the files with lower numbers than `before`, apart from some."""
        ...

    def size(self) -> int:
        """Return the size of all files in bytes."""
        ...


class LocalFiles:
    """The files of a shard in a local folder.

    Args:
        root: the folder, made when something is written.
        is_synced: False leaves out all waiting for the disk, for tests: a crash of the machine may damage the files.
    """

    def __init__(self, root: Path, *, is_synced: bool = True) -> None:
        self.root, self._is_synced = root, is_synced
        self._prefix = f"{root}/"
        self.store: StoreIdentity = KnownStore()

    has_locks = True
    grace = math.inf

    def journal(self, file_bytes: int) -> ShardJournal:
        from umbel.state.runs.journal import Journal

        return Journal(self, file_bytes)

    def __str__(self) -> str:
        return "/".join(self.root.parts[-2:])

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        file = disk.open_file(self._prefix + name, disk.READ)
        try:
            length = (os.fstat(file).st_size if end is None else end) - start
            pieces = []
            while length > 0 and (piece := os.pread(file, length, start)):
                pieces.append(piece)
                start, length = start + len(piece), length - len(piece)
            return b"".join(pieces)
        finally:
            disk.close(file)

    def size(self, name: str) -> int | None:
        try:
            return os.stat(self._prefix + name).st_size  # noqa: PTH116 - once per snapshot, and twice as fast as Path.stat
        except FileNotFoundError:
            return None

    def map(self, name: str) -> pa.Buffer:
        try:
            with pa.memory_map(str(self.root / name)) as mapped:
                return mapped.read_buffer()
        except FileNotFoundError as error:  # which names no file
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.root / name)) from error

    def put(self, name: str, data: bytes | memoryview) -> None:
        path = self.root / name
        with _explained(path):
            draft = self._draft(path, data)
            reach("before a name")
            disk.rename(draft, path)
            reach("before a folder sync")
            self._sync_folder(path.parent)

    def put_new(self, name: str, data: bytes | memoryview) -> bool:
        path = self.root / name
        with _explained(path):
            draft = self._draft(path, data)
            reach("before a name")
            try:
                disk.link(draft, path)
            except FileExistsError:
                disk.remove(draft)
                return False
            disk.remove(draft)
            reach("before a folder sync")
            self._sync_folder(path.parent)
        return True

    def check_puts(self) -> None:
        """Do nothing: the link of a taken name fails."""

    def append(self, name: str, at: int, data: bytes | memoryview) -> None:
        with _explained(self.root / name):
            self._written(self.root / name, disk.WRITE, data, at)

    def note(self, name: str, at: int, data: bytes) -> None:
        with _explained(self.root / name):
            file = disk.open_file(self.root / name)
            try:
                reach("before a write")
                disk.write(file, data, at)
            finally:
                disk.close(file)

    def cut(self, name: str, size: int) -> None:
        with _explained(self.root / name):
            file = disk.open_file(self.root / name)
            try:
                reach("before a write")
                disk.cut(file, size)
                reach("before a sync")
                self._sync(file)
            finally:
                disk.close(file)

    def list(self, folder: str) -> list[str]:
        try:
            names = os.listdir(self._prefix + folder)  # noqa: PTH208 - once per snapshot, and a `Path` takes as long
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.endswith(_DRAFT))

    def forget(self, name: str) -> None:
        """Do nothing: the file is the only one."""

    def is_cut(self, name: str, size: int) -> bool:
        return False

    def delete(self, name: str) -> None:
        reach("before a removal")
        disk.remove(self.root / name)

    def sweep(self, folder: str) -> None:
        path = self.root / folder
        for draft in path.glob(f"*{_DRAFT}") if path.is_dir() else ():
            disk.remove(draft)

    def deletable(self, folder: str) -> Sequence[str]:
        return self.list(folder)  # the lock of maintenance is held: nobody else writes new ones

    def is_pinned(self) -> bool:
        return False  # copies are made of hard links, which outlive a deletion

    @contextmanager
    def locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        with _explained(self.root / name):
            disk.make_folder(self.root)
            file = os.open(self.root / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                # Closing alone would leave the lock to a child forked meanwhile.
                fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.close(file)

    def _draft(self, path: Path, data: bytes | memoryview) -> Path:
        disk.make_folder(path.parent)
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_DRAFT}")
        try:
            self._written(draft, disk.NEW, data, 0)
        except OSError:
            disk.remove(draft)
            raise
        return draft

    def _sync(self, file: int) -> None:
        if self._is_synced:
            disk.sync(file)

    def _sync_folder(self, folder: Path) -> None:
        if self._is_synced:
            disk.sync_directory(folder)

    def _written(self, path: Path, flags: int, data: bytes | memoryview, at: int) -> None:
        file = disk.open_file(path, flags)
        try:
            reach("before a write")
            disk.write(file, data, at)
            reach("before a sync")
            self._sync(file)
        finally:
            disk.close(file)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Translate errors of writes into umbel's."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        hint = f"{disk.remedy_of(error.errno)}; nothing of this write is seen"
        name = f"{path.parent.name}/{path.name}"
        raise Transient(f"the state file {name} cannot be written: {error.strerror}", hint=hint) from error
