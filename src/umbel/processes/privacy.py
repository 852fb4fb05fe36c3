"""Permissions of umbel's folder: private to its account.

The folder is 0700, files in it are 0600.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER, FILE = 0o700, 0o600
OTHERS = 0o077
OWN = (
    *("catalog.db", "catalog.db-wal", "catalog.db-shm", "catalog.db.lock", "secret.key", "token"),
    *("store", "changes", "plans", "features", "offline", "ingest", "checkpoint", "logs", "spark", "running"),
    *(
        "worker.lock",
        "supervisor.lock",
        "backup.lock",
        ".backup",
        "staged",
        "server.log",
        "work.json",
        "work-failures.json",
    ),
)
"""Names of umbel's own files and folders in its folder."""

VOLUME = "lost+found"
"""The folder that a file system has at its root, and that belongs to root."""

log = logging.getLogger("umbel")


_found: list[int] = []


def private_by_default() -> None:
    """Make new files of this process and its children private to this account."""
    before = os.umask(OTHERS)
    _found.append(before)


@contextmanager
def as_the_user_wants() -> Iterator[None]:
    """Make new files inside the block with the permissions the process was started with.

    They are the user's own, such as a project.
    """
    private = os.umask(_found[0]) if _found else None
    try:
        yield
    finally:
        if private is not None:
            os.umask(private)


def make_private(folder: Path) -> None:
    """Create umbel's folder as private to this account; make an existing one private.

    A folder with other files in it as well retains its permissions: only umbel's files become private.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER)
    if not _is_open(folder):
        return
    names = {each.name for each in os.scandir(folder)}
    for name in names & set(OWN):
        _tighten(folder / name)
    strange = sorted(name for name in names - {*OWN, VOLUME} if not name.startswith("."))
    if strange:
        log.warning("%s can be read by others, and is left so because it has %s in it", folder, strange[0])
    elif _change(folder, FOLDER):
        log.warning("%s could be read by others; it cannot any more", folder)


def _tighten(path: Path) -> None:
    """Remove the permissions of others from a file, or recursively from a folder.

    Links are not followed.
    """
    if path.is_symlink():
        return
    if not path.is_dir():
        _change(path, FILE)
        return
    _change(path, FOLDER)
    for root, folders, files in os.walk(path):
        for name in folders:
            _change(Path(root, name), FOLDER)
        for name in files:
            _change(Path(root, name), FILE)


def _change(path: Path, mode: int) -> bool:
    """Remove the permissions of others from a path.

    Logs a warning if the path belongs to another account. Returns True if the permissions changed.
    """
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or not found.st_mode & OTHERS:
            return False
        path.chmod(mode | (found.st_mode & 0o100))
    except FileNotFoundError:
        return False
    except PermissionError:
        log.warning("%s can be read by others and belongs to another account: chmod %o %s", path, mode, path)
        return False
    return True


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & OTHERS)
