"""Locks on umbel's folder: one worker, one supervisor, servers while nobody replaces the state.

A lock ends with its process, however the process ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from umbel.errors import Transient


@contextmanager
def alone(directory: Path, what: str) -> Iterator[None]:
    """Lock a folder for one `what` during a block.

    Args:
        directory: umbel's folder.
        what: `worker`, `supervisor`; `server` keeps them all out.

    Raises:
        Transient: another process has the lock, or the file system has none.
    """
    with _locked(directory, what, fcntl.LOCK_EX):
        yield


@contextmanager
def beside_others(directory: Path, what: str) -> Iterator[None]:
    """Lock a folder for one of several `what` during a block.

    Args:
        directory: umbel's folder.
        what: `server`.

    Raises:
        Transient: a process is `alone` there.
    """
    with _locked(directory, what, fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(directory: Path, what: str, kind: int) -> Iterator[None]:
    with (directory / f"{what}.lock").open("a+") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Transient(
                f"another {what} runs on {directory}: process {file.read().strip() or 'unknown'}",
                hint="stop it, or use another folder: --dir",
            ) from None
        except OSError as error:
            raise Transient(
                f"{directory} cannot be locked: {error.strerror}",
                hint="umbel needs a file system with locks: a disk of this machine, or a network mount that has them",
            ) from None
        with suppress(
            OSError
        ):  # such as of a full disk, on which one wants to free some: the lock holds without a number
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield
