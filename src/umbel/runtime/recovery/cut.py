"""The cut of a backup: a deployment's files as of one instant.

That is between the ends of two batches. While the cut is taken nobody can write the catalog, so no batch can finish; batches go
on reading and writing. The last finished batch is therefore the same for every part of the cut, and what the batch after it has
done so far is replaced when that batch runs again. Files are pinned by hard links, and are copied when the catalog is free again.
The order, and why it suffices, is in docs/decisions/0034-backups.md.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from umbel.catalog.snapshots import unwritten
from umbel.errors import NotSupported, Transient
from umbel.log.features import ENDING
from umbel.log.segments import OLDEST, SUFFIX
from umbel.runtime.deployment import JOB, Deployment
from umbel.state.description import NAME as STORE_FILE
from umbel.state.file import FileStore
from umbel.state.runs.capture import CapturedFile, capture
from umbel.state.runs.files import LocalFiles

LINKS = ".backup"
"""The folder of pinned files, in the deployment's."""
CATALOG = "catalog.db"
LONGEST = 30.0
"""Seconds for which the catalog may be locked: those who write it wait for twice as long."""
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}


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


@dataclass(slots=True)
class Cut:
    """The files of a deployment as of one instant.

    Args:
        files: by name.
        batch: the last finished batch, None for none.
        at: when the cut was taken, in seconds since the epoch.
        seconds: for which the catalog could not be written.
    """

    files: dict[str, CutFile] = field(default_factory=dict)
    batch: int | None = None
    at: float = 0.0
    seconds: float = 0.0

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
    store = _folder_of(deployment)
    links = deployment.directory / LINKS
    shutil.rmtree(links, ignore_errors=True)  # of a backup that was killed
    links.mkdir(mode=0o700)
    try:
        found, copy = Cut(), links / CATALOG
        with unwritten(deployment.catalog_url) as snapshot:
            begun, found.at = time.monotonic(), time.time()
            _Pins(found, links, begun + LONGEST).pin_all(deployment, store)
            snapshot.copy(copy)
            found.seconds = time.monotonic() - begun
        found.files[CATALOG] = CutFile(CATALOG, copy, copy.stat().st_size)
        yield found
    finally:
        shutil.rmtree(links, ignore_errors=True)


def _folder_of(deployment: Deployment) -> Path:
    if not isinstance(deployment.store, FileStore):
        raise NotSupported("umbel backs up state in files of this machine only: --store file:///folder")
    return deployment.store.directory


@dataclass(slots=True)
class _Pins:
    """Pins the files of a cut, in the order that its consistency needs."""

    cut: Cut
    links: Path
    deadline: float

    def pin_all(self, deployment: Deployment, store: Path) -> None:
        """Pin the results of batches, then their inputs."""
        last = deployment.catalog.progress(JOB, sys.maxsize)
        self.cut.batch = last.number if last else None
        root = deployment.directory
        if last is not None:  # before the first batch's end there is nothing but what its sources have
            for folder in sorted(store.glob("shard-[0-9]*")):
                self._shard(folder)
            self._some("store", store, [STORE_FILE])
            for folder in _folders(root / "changes"):
                self._change_log(folder)
            self._some("plans", root / "plans", _names(root / "plans", ".json"))
        for folder in _folders(root / "staged"):
            self._some(f"staged/{folder.name}", folder, ["state.json"])
            self._some(f"staged/{folder.name}", folder, _names(folder, ".rows"))
        for name, endpoint in ingest_logs(root):
            self._some(name, endpoint, _names(endpoint, SUFFIX))
            self._some(name, endpoint, [OLDEST, *_names(endpoint, ".idx")])
        for path in sorted((root / "features").rglob(f"*{ENDING}")):
            self._some(path.parent.relative_to(root).as_posix(), path.parent, [path.name])

    def _shard(self, folder: Path) -> None:
        def pin(each: CapturedFile) -> None:
            self._pin(f"store/{folder.name}/{each.name}", folder / each.name, each.size, each.head)

        capture(LocalFiles(folder), pin)

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
        target = self.links / name
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
