"""Folders of Spark's temporary files, each of one process."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TextIO

LOCK = "lock"

_own = secrets.token_hex(4)
_claims: dict[Path, TextIO] = {}


def name() -> str:
    """Return the name of this process's folder, which no process of another container has."""
    return f"{os.getpid()}-{_own}"


def claim(folder: Path) -> None:
    """Make a folder for this process; remove those beside it of processes that ended.

    A lock tells, and not the process number: processes of two containers, or machines, with one volume do not see each
    other, and each container's first process has the number 1.
    """
    if folder in _claims:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / LOCK).open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a folder just made is not locked yet
        for each in folder.parent.iterdir():
            if each.is_dir() and not _is_claimed(each):
                shutil.rmtree(each, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        file = (folder / LOCK).open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        _claims[folder] = file


def release() -> None:
    """Remove the folders that this process has claimed."""
    while _claims:
        folder, file = _claims.popitem()
        shutil.rmtree(folder, ignore_errors=True)
        file.close()


def _is_claimed(folder: Path) -> bool:
    with suppress(FileNotFoundError), (folder / LOCK).open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
