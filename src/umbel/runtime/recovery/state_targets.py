"""Targets of restored state: an empty folder, or an empty prefix of a bucket.

Either takes the state of either: the journal and the manifest are translated.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from uuid import uuid4

from umbel.errors import Damaged, InvalidValue, NotSupported, Transient, UmbelError
from umbel.runtime.recovery.listing import BackupList, FileEntry
from umbel.runtime.recovery.repository import Repository
from umbel.state import disk
from umbel.state.description import NAME as STORE_FILE
from umbel.state.failpoints import reach
from umbel.state.file import FileStore
from umbel.state.passwords import masked
from umbel.state.port import JournalEnd
from umbel.state.runs.conversion import as_files, as_objects
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.inspection import inspect
from umbel.state.runs.journal import HEADER_BYTES
from umbel.state.runs.manifest import Manifest
from umbel.state.runs.shard import lacks, shortened
from umbel.state.s3 import BucketStore
from umbel.state.urls import open_store

if TYPE_CHECKING:
    from umbel.state.runs.files import ShardFiles
    from umbel.state.runs.object_files import ObjectFiles

STATE = "store/"
"""The prefix of the state's files in a backup."""
MARK = "restoring"
"""The object by which the objects of a restore that was killed are known; it begins with the id of the restored folder."""
UNWRITTEN = f".{MARK}.new"
"""The file of a mark that is being written."""
_SAME = ("a folder, without --store", "a bucket: --store")
"""Where the state of a backup is restored as it was, in a folder or in a bucket."""
_OWN = re.compile(r"probes/\w+|shard-\d{3,}/(runs|journal|manifest)/[\w.-]+")
_TRANSLATED = re.compile(r"store/(shard-\d{3,})/(journal|manifest)/([\w.-]+)")


class StateTarget(Protocol):
    """The target of restored state.

    Attributes:
        is_in_bucket: True if the journal has to be objects.
    """

    is_in_bucket: bool

    def filled(self) -> AbstractContextManager[None]:
        """Have it filled during a block; after an error nothing is left there.

        Raises:
            InvalidValue: there is something already.
        """
        ...

    def write(self, name: str, entry: FileEntry, repository: Repository) -> None:
        """Write a file of a backup, verified.

        Raises:
            ValueError: it is damaged or missing.
        """
        ...

    def write_data(self, name: str, data: bytes) -> None:
        """Write a small file."""
        ...

    def complete(self, description: bytes) -> None:
        """Write the description of the state, after all its other files."""
        ...

    def shards(self, number: int) -> Sequence[ShardFiles]:
        """Return the files of each shard."""
        ...


@dataclass(slots=True)
class FolderState:
    """State in a folder.

    Args:
        folder: the folder.
        own_id: of the restored folder, as in `target_of`.
        is_own: True if it is a part of the restored folder, which is empty, and appears as a whole.
    """

    folder: Path
    own_id: str
    is_own: bool = False
    is_in_bucket: bool = False

    @contextmanager
    def filled(self) -> Iterator[None]:
        if self.is_own:
            yield
            return
        left = {each.name for each in self.folder.iterdir()} if self.folder.is_dir() else set()
        mark = (self.folder / MARK).read_bytes() if MARK in left else b""
        if (self.folder.exists() and not self.folder.is_dir()) or _is_taken(left - {UNWRITTEN}, mark, self.own_id):
            raise _not_empty(str(self.folder))
        try:
            disk.replace(self.folder / MARK, self.own_id.encode())
            self._clear()
            yield
        except BaseException:
            self._clear()
            (self.folder / MARK).unlink(missing_ok=True)
            raise
        with suppress(OSError):  # all is there: beside a description the mark means nothing
            (self.folder / MARK).unlink()

    def _clear(self) -> None:
        for each in self.folder.glob("shard-[0-9]*"):
            shutil.rmtree(each, ignore_errors=True)
        (self.folder / STORE_FILE).unlink(missing_ok=True)

    def write(self, name: str, entry: FileEntry, repository: Repository) -> None:
        write_file(self.folder / name, contents(repository, entry))

    def write_data(self, name: str, data: bytes) -> None:
        write_file(self.folder / name, [data])

    def complete(self, description: bytes) -> None:
        write_file(self.folder / STORE_FILE, [description])
        for folder, _, _ in os.walk(self.folder):
            disk.sync_directory(Path(folder))

    def shards(self, number: int) -> Sequence[ShardFiles]:
        return [LocalFiles(self.folder / f"shard-{shard:03d}") for shard in range(number)]


@dataclass(slots=True)
class BucketState:
    """State in a bucket, below a prefix that has none.

    Args:
        store: the store that is made.
        repository: of the backup.
        own_id: of the restored folder, as in `target_of`.
        is_in_bucket: always True.
    """

    store: BucketStore
    repository: Repository
    own_id: str
    is_in_bucket: bool = True
    _mark: bytes = field(init=False)
    _copied: Mapping[str, int] = field(default_factory=dict)
    """The objects that can be copied within the storage, with their sizes."""

    def __post_init__(self) -> None:
        self._mark = f"{self.own_id} {uuid4().hex}".encode()

    @contextmanager
    def filled(self) -> Iterator[None]:
        left = self._names()
        mark = self._root.read(MARK) if MARK in left else b""
        if _is_taken({name.partition("/")[0] for name in left}, mark, self.own_id):
            raise _not_empty(str(self.store.root))
        try:
            self._root.put_uncached(MARK, self._mark)
            self._clear(left)
            self._root.check_puts()
            if self.repository.reads(f"{self.store.location}/{MARK}", self._mark):
                self._copied = self.repository.objects()
            yield
        except BaseException:
            with suppress(UmbelError):
                self._clear(self._names())
                self._root.delete(MARK)
            raise
        with suppress(UmbelError):  # all is there: beside a description the mark means nothing
            self._root.delete(MARK)

    @property
    def _root(self) -> ObjectFiles:
        return cast("ObjectFiles", self.store.root)

    def _names(self) -> set[str]:
        return {name for name, _, _ in self._root.listed("")}

    def _clear(self, names: Iterable[str]) -> None:
        """Delete what a restore writes, and nothing else that may be in the bucket."""
        for name in names:
            if _OWN.fullmatch(name) or name == STORE_FILE:
                self._root.delete(name)

    def write(self, name: str, entry: FileEntry, repository: Repository) -> None:
        if not _OWN.fullmatch(name):
            raise ValueError("it is no name of a file of the state")
        parts, objects = contents(repository, entry), {each.object for each in entry.parts}
        if len(objects) != 1 or entry.size != self._copied.get(min(objects)):
            self._root.put_uncached(name, parts)
            return
        for _ in parts:  # verified before it is copied
            pass
        repository.copy_out(min(objects), f"{self.store.location}/{name}", entry.size)

    def write_data(self, name: str, data: bytes) -> None:
        self._root.put_uncached(name, data)

    def complete(self, description: bytes) -> None:
        self._root.put_uncached(STORE_FILE, description)

    def shards(self, number: int) -> Sequence[ShardFiles]:
        return self.store.files()[:number]


def _is_taken(names: set[str], mark: bytes, own_id: str) -> bool:
    """Return whether there is more than a restore that was killed has left.

    With a description the state is complete, and may be in use, unless it is of the folder that has not appeared yet.

    Args:
        names: of what is there.
        mark: the content of the mark.
        own_id: of the folder.
    """
    return bool(names) and (MARK not in names or (STORE_FILE in names and not mark.startswith(own_id.encode())))


def _not_empty(title: str) -> InvalidValue:
    return InvalidValue(f"{title} is not empty: state is restored into a new place", hint="name another one: --store")


def target_of(url: str | None, draft: Path, own_id: str, found: BackupList, repository: Repository) -> StateTarget:
    """Return where the state of a backup is restored to.

    Args:
        url: of a store, None for the restored folder.
        draft: that folder.
        own_id: its id, the same when a restore that was killed is repeated, until the folder appears.
        found: the backup.
        repository: of the backup.

    Raises:
        InvalidValue: the URL is not one of a store that can be used.
        NotSupported: such stores have no backups.
    """
    if url is None:
        return FolderState(draft / STATE, own_id, is_own=True)
    store = open_store(url, shards_of(found, repository) or 1)
    if isinstance(store, BucketStore):
        return BucketState(store, repository, own_id)
    if isinstance(store, FileStore):
        return FolderState(store.directory, own_id)
    raise NotSupported(
        f"state cannot be restored into {masked(url)}", hint="--store file:///folder, s3://bucket/folder"
    )


def shards_of(found: BackupList, repository: Repository) -> int:
    """Return the number of shards of a backup's state, 0 if it has none.

    Raises:
        Damaged: the description of the state is damaged or missing.
    """
    if f"{STATE}{STORE_FILE}" not in found.files:
        return 0
    return int(json.loads(_content(found, repository, f"{STATE}{STORE_FILE}"))["shards"])


def finish(target: StateTarget, found: BackupList, repository: Repository, ends: Sequence[JournalEnd]) -> None:
    """Write translated journals and manifests, and verify the state.

    Its description is not there yet.

    Args:
        target: where the state is restored to.
        found: the backup.
        repository: of the backup.
        ends: how far each shard was written at least.

    Raises:
        Damaged: a file is damaged or missing, or they do not fit each other.
    """
    number = shards_of(found, repository)
    for shard in range(number) if found.is_in_bucket != target.is_in_bucket else ():
        name = f"shard-{shard:03d}"
        least = ends[shard] if shard < len(ends) else JournalEnd()
        for each, data in _translated(found, repository, name, target, least).items():
            target.write_data(f"{name}/{each}", data)
    reach("state written")
    for files in target.shards(number):
        left = inspect(files, deep=False)
        if left.lost or left.journal or left.damaged:
            what = [*left.damaged, left.journal, *(error for errors in left.runs.values() for error in errors)]
            raise Damaged(f"backup {found.id} is damaged: the state in {files}: {'; '.join(filter(None, what)):.500}")


def complete(target: StateTarget, found: BackupList, repository: Repository) -> None:
    """Write the description of the state, if the backup has any.

    A restore that is killed before can be repeated.
    """
    if shards_of(found, repository):
        target.complete(_content(found, repository, f"{STATE}{STORE_FILE}"))


def is_translated(name: str, found: BackupList, target: StateTarget) -> bool:
    """Return True if a file of a backup is written by `finish` or `complete`."""
    is_other = found.is_in_bucket != target.is_in_bucket
    return name == f"{STATE}{STORE_FILE}" or (is_other and _TRANSLATED.fullmatch(name) is not None)


def _translated(
    found: BackupList, repository: Repository, shard: str, target: StateTarget, least: JournalEnd
) -> dict[str, bytes]:
    """Return manifest and journal of a shard in the other form.

    What is translated ends elsewhere: whether it ends too early can be told here only.
    """
    manifest, journals = Manifest(), dict[int, bytes]()
    for name in found.files:
        matched = _TRANSLATED.fullmatch(name)
        if matched is None or matched[1] != shard:
            continue
        data = _content(found, repository, name)
        if matched[2] == "manifest":
            manifest = Manifest.unpack(data, matched[3])
        else:
            journals[int(matched[3].partition(".")[0])] = data
    if lacks(least, end := _end(manifest, journals, is_in_bucket=found.is_in_bucket)):
        raise Damaged(
            f"backup {found.id} is damaged: the state in {shard}: {shortened(least, end)}",
            hint=f"use another backup: umbel backup URL --list; or restore it into {_SAME[found.is_in_bucket]}, "
            "and let umbel check --repair mend what can be mended",
        )
    translated = as_objects if target.is_in_bucket else as_files
    return translated(manifest, journals, shard)


def _end(manifest: Manifest, journals: Mapping[int, bytes], *, is_in_bucket: bool) -> JournalEnd:
    """Return the end of a shard in a backup."""
    last, at = max(journals, default=0), manifest.position
    size = len(journals.get(last, b"")) + HEADER_BYTES * is_in_bucket
    return JournalEnd(*max((at.number, at.offset), (last, size)), manifest.version)


def _content(found: BackupList, repository: Repository, name: str) -> bytes:
    try:
        return b"".join(contents(repository, found.files[name]))
    except UmbelError:  # of the storage, not of the file
        raise
    except ValueError as error:
        raise Damaged(f"backup {found.id} is damaged: {name}: {error}") from error


def contents(repository: Repository, entry: FileEntry) -> Iterator[bytes]:
    """Yield the bytes of a file part by part, verified.

    Raises:
        ValueError: one is damaged or missing.
    """
    if len(entry.head) + sum(part.size for part in entry.parts) != entry.size:
        raise ValueError("its parts are not all listed")
    if entry.head:
        yield entry.head
    for part in entry.parts:
        yield repository.read_part(part, is_alone=len(entry.parts) == 1)


def write_file(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file durably, with its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("wb") as file:
            for data in parts:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Transient(
            f"{path} cannot be written: {error.strerror}",
            hint=f"nothing was restored; {disk.remedy_of(error.errno)}, and restore again",
        ) from error
