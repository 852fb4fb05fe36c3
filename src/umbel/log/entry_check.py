"""Check of all entries of an environment of LMDB, in a process of its own.

The environment may be in use, and a damaged page may end the process that reads it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb

from umbel.log.environments import HARM, MappedEnvironment, unsealed

_FILE, _HARMED = "data.mdb", 3
_MANY = 1 << 16
_CRASHED = "reading them ends the process"


def damage_of(folder: Path, size: int, lock: AbstractContextManager[object], tables_beside: bytes = b"") -> str:
    """Return what is wrong with the entries of an environment, empty if nothing is.

    Args:
        folder: of its file.
        size: of its values in bytes, except for tables in it, whose keys have none.
        lock: within which nobody writes.
        tables_beside: the only key that is no name of a table, where there are tables in it.
    """
    with TemporaryDirectory(prefix="umbel-check-") as copied:
        with lock:
            try:
                shutil.copyfile(folder / _FILE, Path(copied, _FILE))
            except FileNotFoundError:
                return ""
        command = [sys.executable, "-m", __spec__.name, copied, str(size), tables_beside.decode()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in (0, _HARMED):
        return done.stdout.strip()
    return _CRASHED


def _verify(folder: Path, size: int, tables_beside: bytes) -> None:
    """Read all entries.

    Raises:
        HARM: one is damaged.
    """
    environment = MappedEnvironment(folder, tables=_MANY if tables_beside else 0)
    with environment.lmdb.begin() as transaction:
        names = _verify_table(transaction.cursor(), size, tables_beside)
    for name in names:
        try:
            table = environment.lmdb.open_db(name, create=False)
        except lmdb.Error as error:
            raise ValueError("a table is none") from error
        with environment.lmdb.begin() as transaction:
            _verify_table(transaction.cursor(table), 0)


def _verify_table(cursor: lmdb.Cursor, size: int, tables_beside: bytes = b"") -> list[bytes]:
    """Read the entries of a table; return the names of tables that are among them."""
    names, before = list[bytes](), b""
    for found, value in cursor:
        key = bytes(found)
        if key <= before:
            raise ValueError("entries are not in order")
        before = key
        if tables_beside and key != tables_beside:
            names.append(key)
        else:
            unsealed(key, value, size)
    return names


def _main(folder: str, size: str, tables_beside: str) -> int:
    try:
        _verify(Path(folder), int(size), tables_beside.encode())
    except HARM as error:
        sys.stdout.write(str(error))
        return _HARMED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
