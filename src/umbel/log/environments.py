"""Environments of LMDB: files that are mapped, with what can be made anew from others."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import lmdb

HARM = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.BadTxnError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    ValueError,
    struct.error,
)
"""Errors of damaged environments; those of a full disk, for instance, are not among them."""
_MAP_BYTES = 1 << 38


def open_environment(folder: Path, tables: int = 0) -> lmdb.Environment:
    """Open an environment, or make one.

    LMDB's own locks are not used: the caller sees to it that one process writes at a time, and none reads meanwhile.

    Args:
        folder: for its file.
        tables: how many named ones it may have.

    Raises:
        HARM: the file is damaged, or was cut: reading behind its end would kill the process.
    """
    environment = lmdb.open(str(folder), map_size=_MAP_BYTES, max_dbs=tables, lock=False)
    pages, size = environment.info()["last_pgno"] + 1, environment.stat()["psize"]
    if pages > 2 and (folder / "data.mdb").stat().st_size < pages * size:
        environment.close()
        raise ValueError(f"the file in {folder} was cut")
    return environment


def erase_environment(folder: Path) -> None:
    """Delete the files of an environment."""
    shutil.rmtree(folder, ignore_errors=True)
