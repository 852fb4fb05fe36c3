"""The cut of a backup: a deployment's files as of one instant.

That is between the ends of two batches. While the cut is taken nobody can write the catalog, so no batch can finish; batches go
on reading and writing. The last finished batch is therefore the same for every part of the cut, and what the batch after it has
done so far is replaced when that batch runs again. Files are pinned by hard links, and are copied when the catalog is free again.
The order, and why it suffices, is in docs/decisions/0034-backups.md.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol
from uuid import uuid4

from umbel.catalog.snapshots import unwritten
from umbel.errors import Damaged, NotSupported, Transient
from umbel.log.features import ENDING
from umbel.log.segments import OLDEST, SUFFIX
from umbel.runtime.deployment import JOB, Deployment
from umbel.state.description import NAME as STORE_FILE
from umbel.state.file import FileStore
from umbel.state.runs.capture import CapturedFile, capture, capture_objects
from umbel.state.runs.files import LocalFiles
from umbel.state.s3 import BucketStore

if TYPE_CHECKING:
    from umbel.state.runs.files import ShardFiles
    from umbel.state.runs.object_files import ObjectFiles

LINKS = ".backup"
"""The folder of pinned files, in the deployment's; of state on another disk, in that of the state."""
CATALOG = "catalog.db"
LONGEST = 30.0
"""Seconds for which the catalog may be locked: those who write it wait for twice as long."""
SHARDS_AT_ONCE = 8
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}


class Readable(Protocol):
    """Bytes that are read one after another."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer at the end."""
        ...


@dataclass(frozen=True, slots=True)
class CutFile:
    """A file of a cut.

    Args:
        name: in the deployment's folder.
        path: where it is pinned.
        size: in bytes; the pinned file may have grown since.
        head: the bytes it begins with instead of those of the pinned file.
    """

    name: str
    path: Path
    size: int
    head: bytes = b""

    @property
    def stat(self) -> tuple[int, int]:
        """Inode and modification time, by which the next backup knows the file."""
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file behind its head."""
        with self.path.open("rb") as file:
            file.seek(len(self.head))
            yield file


@dataclass(frozen=True, slots=True)
class CutObject:
    """An object of a cut, in the bucket of the state.

    Args:
        name: in the deployment's folder, if the state were there.
        size: in bytes.
        key: bucket and path.
        files: of its shard.
        inside: its name there.
        stat: what the next backup knows it by: its tag and time.
    """

    name: str
    size: int
    key: str
    files: ObjectFiles
    inside: str
    stat: tuple[int, int]
    head: bytes = b""

    @contextmanager
    def opened(self) -> Iterator[Readable]:
        """Open the object.

        Raises:
            ObjectGone: it has been deleted.
        """
        yield _Ranges(self)


@dataclass(slots=True)
class _Ranges:
    """Reads an object range by range."""

    of: CutObject
    at: int = 0

    def read(self, size: int, /) -> bytes:
        end = min(self.at + size, self.of.size)
        if self.at >= end:
            return b""
        try:
            data = self.of.files.read(self.of.inside, self.at, end)
        except FileNotFoundError as error:
            raise ObjectGone(f"{self.of.key} was deleted during the backup", hint="try again") from error
        self.at += len(data)
        return data


class ObjectGone(Transient):
    """An object of a cut was deleted, by an erasure."""


@dataclass(slots=True)
class Cut:
    """The files of a deployment as of one instant.

    Args:
        files: by name.
        batch: the last finished batch, None for none.
        at: when the cut was taken, in seconds since the epoch.
        seconds: for which the catalog could not be written.
        is_in_bucket: True if the state is in a bucket, and its files are objects.
        mark: in the bucket, the key of an object that nobody else has, and its content.
    """

    files: dict[str, CutFile | CutObject] = field(default_factory=dict)
    batch: int | None = None
    at: float = 0.0
    seconds: float = 0.0
    is_in_bucket: bool = False
    mark: tuple[str, bytes] = ("", b"")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files.values())


@contextmanager
def cut(deployment: Deployment) -> Iterator[Cut]:
    """Take a cut, and pin its files for a block.

    One process at a time may take one.

    Args:
        deployment: the deployment; it may be running.

    Raises:
        NotSupported: its state is not in files.
        Transient: the catalog cannot be locked, or for too long.
    """
    store = _store_of(deployment)
    with ExitStack() as stack:
        links, *others = [stack.enter_context(_emptied(each)) for each in folders_of_links(deployment)]
        state = others[0] if others else links
        found, copy = Cut(is_in_bucket=isinstance(store, BucketStore)), links / CATALOG
        if isinstance(store, BucketStore):
            found.mark = _pinned(store, stack)
        with unwritten(deployment.catalog_url) as snapshot:
            begun, found.at = time.monotonic(), time.time()
            _Pins(found, links, state, begun + LONGEST).pin_all(deployment, store)
            snapshot.copy(copy)
            found.seconds = time.monotonic() - begun
        _Pins(found, links, state).pin_features(deployment.directory)
        found.files[CATALOG] = CutFile(CATALOG, copy, copy.stat().st_size)
        yield found


def folders_of_links(deployment: Deployment) -> list[Path]:
    """Return the folders of pinned files; state on another disk has its own."""
    folders = [deployment.directory]
    store = deployment.store
    if isinstance(store, FileStore) and store.directory.is_dir() and _device(store.directory) != _device(folders[0]):
        folders.append(store.directory)
    return [each / LINKS for each in folders]


def discard_links(deployment: Deployment) -> None:
    """Delete the pinned files of a killed backup; the lock of backups is held."""
    for each in folders_of_links(deployment):
        shutil.rmtree(each, ignore_errors=True)


def _device(folder: Path) -> int:
    return folder.stat().st_dev


@contextmanager
def _emptied(links: Path) -> Iterator[Path]:
    """Make a folder of pinned files for a block."""
    shutil.rmtree(links, ignore_errors=True)  # of a backup that was killed
    links.mkdir(mode=0o700)
    try:
        yield links
    finally:
        shutil.rmtree(links, ignore_errors=True)


def _store_of(deployment: Deployment) -> FileStore | BucketStore:
    store, noted = deployment.store, deployment.noted_store
    if not isinstance(store, FileStore | BucketStore):
        raise NotSupported(
            "umbel backs up state in a folder or a bucket only", hint="--store file:///folder, s3://bucket/folder"
        )
    if noted is not None and store.identity != noted:
        what = "is not the one that the catalog tells of" if store.identity else "is missing"
        raise Damaged(
            f"the state in {store.root} {what}", hint="name the store of the worker: --store; umbel check tells more"
        )
    return store


def _pinned(store: BucketStore, stack: ExitStack) -> tuple[str, bytes]:
    """Pin all objects of a store until a stack ends.

    Returns the key of a pin, and its content.
    """
    content = uuid4().hex.encode()
    for files in _objects_of(store.files()):
        name = stack.enter_context(files.pinned(content))
    return f"{store.location}/shard-{store.shards - 1:03d}/{name}", content


def _objects_of(files: Sequence[ShardFiles]) -> list[ObjectFiles]:
    from umbel.state.runs.object_files import ObjectFiles

    return [each for each in files if isinstance(each, ObjectFiles)]


@dataclass(slots=True)
class _Pins:
    """Pins the files of a cut, in the order that its consistency needs.

    Args:
        cut: gets the files.
        links: the folder of pinned files.
        state_links: that of those of the state, on its disk.
        deadline: as of `time.monotonic`.
    """

    cut: Cut
    links: Path
    state_links: Path
    deadline: float = inf

    def pin_all(self, deployment: Deployment, store: FileStore | BucketStore) -> None:
        """Pin the results of batches, then their inputs."""
        last = deployment.catalog.progress(JOB, sys.maxsize)
        self.cut.batch = last.number if last else None
        root = deployment.directory
        if last is not None:  # before the first batch's end there is nothing but what its sources have
            if isinstance(store, BucketStore):
                self._bucket(store)
            else:
                for folder in sorted(store.directory.glob("shard-[0-9]*")):
                    self._shard(folder)
                self._some("store", store.directory, [STORE_FILE])
            for folder in _folders(root / "changes"):
                self._change_log(folder)
            self._some("plans", root / "plans", _names(root / "plans", ".json"))
        for folder in _folders(root / "staged"):
            self._some(f"staged/{folder.name}", folder, ["state.json"])
            self._some(f"staged/{folder.name}", folder, _names(folder, ".rows"))
        for name, endpoint in ingest_logs(root):
            self._some(name, endpoint, _names(endpoint, SUFFIX))
            self._some(name, endpoint, [OLDEST, *_names(endpoint, ".idx")])

    def pin_features(self, root: Path) -> None:
        """Pin the feature log; nothing refers to it, so no batch has to wait."""
        for folder, _, names in os.walk(root / "features"):
            name = Path(folder).relative_to(root).as_posix()
            self._some(name, Path(folder), [each for each in names if each.endswith(ENDING)])

    def _shard(self, folder: Path) -> None:
        def pin(each: CapturedFile) -> None:
            self._pin(f"store/{folder.name}/{each.name}", folder / each.name, each.size, each.head)

        capture(LocalFiles(folder), pin)

    def _bucket(self, store: BucketStore) -> None:
        """List the objects of all shards, which are pinned; copy those that are not."""
        if store.identity is None:
            return
        self._data(f"store/{STORE_FILE}", store.root.read(STORE_FILE))
        files = _objects_of(store.files())
        with ThreadPoolExecutor(SHARDS_AT_ONCE, thread_name_prefix="backup") as pool:
            captured = list(pool.map(capture_objects, files))
        for number, (shard, objects) in enumerate(zip(files, captured, strict=True)):
            for each in objects:
                name = f"shard-{number:03d}/{each.name}"
                if each.data is not None:
                    self._data(f"store/{name}", each.data)
                    continue
                stat = int.from_bytes(hashlib.sha256(each.tag.encode()).digest()[:7]), each.changed
                self.cut.files[f"store/{name}"] = CutObject(
                    f"store/{name}", each.size, f"{store.location}/{name}", shard, each.name, stat
                )

    def _data(self, name: str, data: bytes) -> None:
        target = self.links / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self.cut.files[name] = CutFile(name, target, len(data))

    def _change_log(self, folder: Path) -> None:
        """Pin a change log: what has left its tail meanwhile is in its table."""
        name = f"changes/{folder.name}"
        self._some(f"{name}/_tail", folder / "_tail", _names(folder / "_tail", ".arrow"))
        commits = folder / "_delta_log"
        last = max(_names(commits, ".json"), default="")
        # A second look finds all commits up to the last one of the first.
        self._some(f"{name}/_delta_log", commits, [each for each in _names(commits, ".json") if each <= last])
        self._some(f"{name}/_delta_log", commits, [*_names(commits, ".parquet"), "_last_checkpoint"])
        for month in _folders(folder):
            if month.name not in ("_tail", "_delta_log"):
                self._some(f"{name}/{month.name}", month, _names(month, ".parquet"))
        self._some(name, folder, ["_sums.json"])

    def _some(self, name: str, folder: Path, names: Iterable[str]) -> None:
        """Pin files of a folder; those that have been deleted meanwhile are not needed."""
        for each in names:
            with suppress(FileNotFoundError):
                self._pin(f"{name}/{each}", folder / each)

    def _pin(self, name: str, path: Path, size: int | None = None, head: bytes = b"") -> None:
        if time.monotonic() > self.deadline:
            raise Transient("the files of the deployment could not be pinned in time", hint="try again")
        target = (self.state_links if name.startswith("store/") else self.links) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(path, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copyfile(path, target)
            shutil.copystat(path, target)
        self.cut.files[name] = CutFile(name, target, target.stat().st_size if size is None else size, head)


def ingest_logs(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the ingest logs of a deployment: name and folder."""
    for webhook in _folders(directory / "ingest"):
        for endpoint in _folders(webhook):
            yield f"ingest/{webhook.name}/{endpoint.name}", endpoint


def _folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def _names(path: Path, ending: str) -> list[str]:
    """Return the names of a folder's files with an ending, sorted, without drafts."""
    try:
        return sorted(each for each in os.listdir(path) if each.endswith(ending) and not each.startswith("."))  # noqa: PTH208
    except FileNotFoundError:
        return []
