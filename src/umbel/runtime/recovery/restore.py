"""Restoring a backup into a new folder, which appears whole and verified."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from uuid import uuid4

from sqlalchemy import make_url

from umbel.catalog.catalog import Catalog
from umbel.catalog.copies import load
from umbel.errors import Damaged, InvalidValue, UmbelError
from umbel.processes.locks import alone
from umbel.runtime.deployment import JOB
from umbel.runtime.home import adopt, is_of
from umbel.runtime.journal_ends import forget_ends, noted_ends
from umbel.runtime.recovery import checkpoint
from umbel.runtime.recovery.backup import Progress
from umbel.runtime.recovery.cut import CATALOG
from umbel.runtime.recovery.listing import BackupList, FileEntry
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.state_targets import (
    STATE,
    StateTarget,
    complete,
    contents,
    finish,
    is_translated,
    target_of,
    write_file,
)
from umbel.runtime.sink_ids import begin_lineage
from umbel.state import disk
from umbel.state.failpoints import reach
from umbel.state.port import JournalEnd

READERS = 4
_RESTORED = "nothing was restored; use another backup: umbel backup URL --list"
_VERIFIED = (
    "delete the objects named: the next backup writes them again; until then all backups with these files need them"
)


def restore(
    repository: Repository,
    directory: Path,
    backup: str | None = None,
    *,
    catalog_url: str | None = None,
    store_url: str | None = None,
    progress: Progress = lambda *_: None,
) -> BackupList:
    """Restore a backup into a folder; return its list.

    Args:
        repository: of the backups.
        directory: a folder that is empty, or not there.
        backup: its id or number; the newest when None.
        catalog_url: of an empty database for the catalog; it is in the folder when None.
        store_url: of an empty folder, or of an empty prefix in a bucket, for the state; it is in the folder when None.
        progress: called with the bytes that are done, and all bytes.

    Raises:
        InvalidValue: the folder, the database or the state's place is not empty or cannot be made, or the folder is a mount.
        UnknownName: there is no such backup.
        Damaged: a file of the backup is damaged or missing; nothing was restored.
    """
    directory = directory.resolve()
    _check_empty(directory)
    _check_catalog(catalog_url)
    found, repository = repository.read_list(repository.chosen(backup)), repository.reading_ahead()
    with _drafted(directory) as made, (target := target_of(store_url, *made, found, repository)).filled():
        draft, own_id = made
        _each(found, partial(_write, repository, found, draft, target), progress, _RESTORED)
        finish(target, found, repository, _ends(draft))
        _finish(draft, is_moved=found.is_in_bucket != target.is_in_bucket)
        _check_empty(directory)
        complete(target, found, repository)
        if catalog_url is not None:  # last: after an error nobody empties the database
            _move_catalog(draft, own_id, catalog_url)
        _appear(draft, directory)
    return found


def _write(
    repository: Repository, found: BackupList, draft: Path, target: StateTarget, name: str, entry: FileEntry
) -> None:
    """Write a file of a backup, verified; one that is translated later is verified only."""
    if is_translated(name, found, target):
        _read(repository, entry)
    elif name.startswith(STATE):
        target.write(_safe(name.removeprefix(STATE)), entry, repository)
    else:
        write_file(draft / _safe(name), contents(repository, entry))


def verify(repository: Repository, backup: str | None = None, *, progress: Progress = lambda *_: None) -> BackupList:
    """Read all files of a backup, and verify their checksums; return its list.

    Raises:
        UnknownName: there is no such backup.
        Damaged: a file is damaged or missing.
    """
    found, repository = repository.read_list(repository.chosen(backup)), repository.reading_ahead()
    _each(found, lambda _, entry: _read(repository, entry), progress, _VERIFIED)
    return found


def _read(repository: Repository, entry: FileEntry) -> None:
    for _ in contents(repository, entry):
        pass


def _damaged(found: BackupList, lost: list[str], hint: str) -> Damaged:
    more = f"; and {len(lost) - 5} more" if len(lost) > 5 else ""
    return Damaged(
        f"backup {found.id} is damaged: {len(lost)} of its {len(found.files)} files: {'; '.join(lost[:5])}{more}",
        hint=hint,
    )


def _check_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidValue(
            f"{directory} is not empty: a backup is restored into a new folder", hint="name another one: --dir"
        )
    if directory.is_mount():
        raise InvalidValue(
            f"{directory} is a mount point, which a restored folder cannot replace",
            hint="name a folder below it: --dir",
        )


@contextmanager
def _drafted(directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield a draft of a folder beside it, deleted afterwards, and the folder's id."""
    beside = directory.with_name(f".{directory.name}.restoring")
    try:
        beside.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidValue(f"{beside} cannot be made: {error.strerror}", hint="name another folder: --dir") from error
    with alone(beside, "restore"):
        try:
            draft = beside / "folder"
            yield draft, _emptied(draft)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _emptied(draft: Path) -> str:
    """Make a draft, or empty a killed restore's; return the folder's id.

    By the id a repeated restore knows what the killed one has left elsewhere. A draft that has become the folder is not
    there, and its id is not used again.
    """
    noted = draft.with_name("id")
    if not (draft.is_dir() and noted.is_file()):
        shutil.rmtree(draft, ignore_errors=True)
        disk.replace(noted, uuid4().hex.encode())
        draft.mkdir(mode=0o700)
    for each in draft.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return noted.read_text()


def _each(found: BackupList, write: Callable[[str, FileEntry], None], progress: Progress, hint: str) -> None:
    """Do something with each file of a backup.

    Raises:
        Damaged: files are damaged or missing.
    """

    def one(item: tuple[str, FileEntry]) -> tuple[str, int]:
        name, entry = item
        try:
            write(name, entry)
        except ValueError as error:
            if isinstance(error, UmbelError):  # of the storage, not of the file
                raise
            return f"{name}: {error}", entry.size
        return "", entry.size

    done, total, lost = 0, found.size, list[str]()
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore") as pool:
        for error, size in pool.map(one, sorted(found.files.items(), key=_place)):
            lost += [error] if error else []
            progress(done := done + size, total)
    if lost:
        raise _damaged(found, sorted(lost), hint)


def _place(item: tuple[str, FileEntry]) -> tuple[str, int]:
    """Return where the bytes of a file begin: in this order objects are read once."""
    parts = item[1].parts
    return (parts[0].object, parts[0].start) if parts else ("", 0)


def _safe(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("it is no name of a file in the folder")
    return name


def _ends(draft: Path) -> list[JournalEnd]:
    """Return how far each shard was written at least, as the catalog knows it."""
    with closing(Catalog(f"sqlite:///{draft / CATALOG}")) as catalog:
        return noted_ends(catalog, JOB)


def _finish(draft: Path, *, is_moved: bool) -> None:
    """Check the catalog, and write Spark's checkpoint from it.

    Args:
        draft: the folder.
        is_moved: True if the journals were translated, and end elsewhere.
    """
    catalog = Catalog(f"sqlite:///{draft / CATALOG}")
    try:
        catalog.check()
        if is_moved:
            forget_ends(catalog)
        begin_lineage(catalog)
        checkpoint.write(catalog, draft)
    finally:
        catalog.close()
    # The last connection has taken its files with it: one that stays open would write to files that nobody else finds.
    assert not (draft / f"{CATALOG}-wal").exists()
    for folder, _, _ in os.walk(draft):
        disk.sync_directory(Path(folder))
    reach("restored")


def _check_catalog(url: str | None) -> None:
    if url is not None and make_url(url).get_backend_name() == "sqlite":
        raise InvalidValue(
            "--catalog: a catalog in SQLite is restored into the folder", hint="leave --catalog and UMBEL_CATALOG out"
        )


def _move_catalog(draft: Path, own_id: str, url: str) -> None:
    """Move the catalog of a draft into another database, as that of this folder."""
    file = f"sqlite:///{draft / CATALOG}"
    with closing(Catalog(file)) as catalog, closing(Catalog(url)) as target:
        adopt(draft, catalog, own_id)
        is_repeated = is_of(own_id, target)
    load(file, url, is_repeated=is_repeated)
    for each in draft.glob(f"{CATALOG}*"):
        each.unlink()
    disk.sync_directory(draft)


def _appear(draft: Path, directory: Path) -> None:
    reach("complete")
    try:
        draft.replace(directory)
        disk.sync_directory(directory.parent)
    except OSError as error:
        raise InvalidValue(
            f"{directory} cannot be made: {error.strerror}", hint="name a folder below it: --dir"
        ) from error
