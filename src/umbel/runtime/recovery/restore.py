"""Restoring a backup into a new folder, which appears whole and verified."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from sqlalchemy import make_url

from umbel.catalog.catalog import Catalog
from umbel.catalog.copies import load
from umbel.errors import Damaged, InvalidValue, Transient
from umbel.processes.locks import alone
from umbel.runtime.home import adopt
from umbel.runtime.recovery import checkpoint
from umbel.runtime.recovery.backup import Progress
from umbel.runtime.recovery.cut import CATALOG
from umbel.runtime.recovery.listing import BackupList, FileEntry
from umbel.runtime.recovery.repository import Repository
from umbel.state import disk
from umbel.state.failpoints import reach

READERS = 4


def restore(
    repository: Repository,
    directory: Path,
    backup: str | None = None,
    *,
    catalog_url: str | None = None,
    progress: Progress = lambda *_: None,
) -> BackupList:
    """Restore a backup into a folder; return its list.

    Args:
        repository: of the backups.
        directory: a folder that is empty, or not there.
        backup: its id or number; the newest when None.
        catalog_url: of an empty database for the catalog; it is in the folder when None.
        progress: called with the bytes that are done, and all bytes.

    Raises:
        InvalidValue: the folder or the database is not empty, or cannot be made.
        UnknownName: there is no such backup.
        Damaged: a file of the backup is damaged or missing; nothing was restored.
    """
    directory = directory.absolute()
    _check_empty(directory)
    _check_catalog(catalog_url)
    found = repository.read_list(repository.chosen(backup))
    with _drafted(directory) as draft:
        done, lost = 0, list[str]()
        for error, size in _written(repository, found, draft):
            lost += [error] if error else []
            progress(done := done + size, found.size)
        if lost:
            raise _damaged(found, lost)
        _finish(draft)
        reach("restored")
        _check_empty(directory)
        if catalog_url is not None:
            _move_catalog(draft, catalog_url)
        _appear(draft, directory)
    return found


def verify(repository: Repository, backup: str | None = None, *, progress: Progress = lambda *_: None) -> BackupList:
    """Read all files of a backup, and verify their checksums; return its list.

    Raises:
        UnknownName: there is no such backup.
        Damaged: a file is damaged or missing.
    """
    found = repository.read_list(repository.chosen(backup))
    done, lost = 0, list[str]()
    for error, size in _written(repository, found, None):
        lost += [error] if error else []
        progress(done := done + size, found.size)
    if lost:
        raise _damaged(found, lost)
    return found


def _damaged(found: BackupList, lost: list[str]) -> Damaged:
    more = f"; and {len(lost) - 5} more" if len(lost) > 5 else ""
    return Damaged(
        f"backup {found.id} is damaged: {len(lost)} of its {len(found.files)} files: {'; '.join(lost[:5])}{more}",
        hint="nothing was restored; use another backup: umbel backup URL --list",
    )


def _check_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidValue(
            f"{directory} is not empty: a backup is restored into a new folder", hint="name another one: --dir"
        )


@contextmanager
def _drafted(directory: Path) -> Iterator[Path]:
    """Yield a draft of a folder beside it, deleted afterwards."""
    beside = directory.with_name(f".{directory.name}.restoring")
    try:
        beside.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidValue(f"{beside} cannot be made: {error.strerror}", hint="name another folder: --dir") from error
    with alone(beside, "restore"):
        draft = beside / "folder"
        try:
            shutil.rmtree(draft, ignore_errors=True)  # of a restore that was killed
            draft.mkdir(mode=0o700)
            yield draft
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _written(repository: Repository, found: BackupList, draft: Path | None) -> Iterator[tuple[str, int]]:
    """Write the files below a folder; yield the error and the size of each."""

    def one(item: tuple[str, FileEntry]) -> tuple[str, int]:
        name, entry = item
        try:
            _write_file(repository, entry, None if draft is None else draft / _safe(name))
        except ValueError as error:
            return f"{name}: {error}", entry.size
        return "", entry.size

    with ThreadPoolExecutor(READERS, thread_name_prefix="restore") as pool:
        yield from pool.map(one, sorted(found.files.items()))


def _safe(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("it is no name of a file in the folder")
    return path


def _write_file(repository: Repository, entry: FileEntry, path: Path | None) -> None:
    if len(entry.head) + sum(part.size for part in entry.parts) != entry.size:
        raise ValueError("its parts are not all listed")
    if path is None:
        for part in entry.parts:
            repository.read_part(part)
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with path.open("wb") as file:
            file.write(entry.head)
            for part in entry.parts:
                file.write(repository.read_part(part))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Transient(f"{path} cannot be written: {error.strerror}", hint="nothing was restored") from error


def _finish(draft: Path) -> None:
    """Check the catalog, and write Spark's checkpoint from it."""
    catalog = Catalog(f"sqlite:///{draft / CATALOG}")
    try:
        catalog.check()
        checkpoint.write(catalog, draft)
    finally:
        catalog.close()
    # The last connection has taken its files with it: one that stays open would write to files that nobody else finds.
    assert not (draft / f"{CATALOG}-wal").exists()
    for folder, _, _ in os.walk(draft):
        disk.sync_directory(Path(folder))


def _check_catalog(url: str | None) -> None:
    if url is not None and make_url(url).get_backend_name() == "sqlite":
        raise InvalidValue(
            "--catalog: a catalog in SQLite is restored into the folder", hint="leave --catalog and UMBEL_CATALOG out"
        )


def _move_catalog(draft: Path, url: str) -> None:
    """Move the catalog of a draft into another database, as that of this folder."""
    file = f"sqlite:///{draft / CATALOG}"
    catalog = Catalog(file)
    try:
        adopt(draft, catalog)
    finally:
        catalog.close()
    load(file, url)
    for each in draft.glob(f"{CATALOG}*"):
        each.unlink()
    disk.sync_directory(draft)


def _appear(draft: Path, directory: Path) -> None:
    try:
        draft.replace(directory)
        disk.sync_directory(directory.parent)
    except OSError as error:
        raise InvalidValue(
            f"{directory} cannot be made: {error.strerror}", hint="name a folder below it: --dir"
        ) from error
