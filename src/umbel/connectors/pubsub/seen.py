"""Ids of staged messages, by which repeated deliveries are recognised.

Ids are forgotten two hours after the last delivery of their message. Only time in which messages are read counts: while no
worker runs nothing is forgotten, for what it had not acknowledged is delivered when the next one reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from umbel.errors import Transient
from umbel.log.environments import HARM, MappedEnvironment, erase_environment

BUCKET = 1800.0
"""Seconds of reading after which ids go to another table."""
BUCKETS = 5
"""Tables of ids: that of now, and those of two hours."""
_CLOCK = struct.Struct("<dQ")
_META = b"clock"


class SeenIds:
    """The ids of messages, in a folder. One process opens it at a time.

    Args:
        folder: for the tables.

    Raises:
        HARM: they are damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = MappedEnvironment(folder, tables=BUCKETS * 4)
        with self._environment.lmdb.begin() as transaction:
            stored = transaction.get(_META)
            names = [bytes(key) for key, _ in transaction.cursor() if key != _META]
        self.is_new = stored is None
        self._clock, self.part = _CLOCK.unpack(stored) if stored else (0.0, 0)
        self._tables = {name: self._environment.lmdb.open_db(name) for name in names}

    part: int
    """The last part whose ids are among these."""
    is_new: bool
    """True if there were none before."""

    def known(self, ids: Iterable[str]) -> set[str]:
        """Return those of some ids that are there."""
        self._check()
        with self._environment.lmdb.begin() as transaction:
            tables = sorted(self._tables.items(), reverse=True)
            found = ((each, each.encode()) for each in ids)
            return {
                each for each, key in found if any(transaction.get(key, db=table) is not None for _, table in tables)
            }

    def add(self, ids: Iterable[str], part: int, elapsed: float) -> None:
        """Add the ids of messages, durably, and forget old ones.

        Args:
            ids: of messages that were delivered now, for the first time or again.
            part: the last part that has any of them.
            elapsed: seconds of reading since the last call.
        """
        self._check()
        clock = self._clock + elapsed
        name = b"%012d" % int(clock // BUCKET)
        if name not in self._tables:
            self._tables[name] = self._environment.lmdb.open_db(name)
        old = sorted(self._tables)[:-BUCKETS]
        with self._environment.writing() as transaction:
            for each in ids:
                transaction.put(each.encode(), b"", db=self._tables[name])
            for table in old:
                transaction.drop(self._tables[table])
            transaction.put(_META, _CLOCK.pack(clock, max(part, self.part)))
        for table in old:
            del self._tables[table]
        self._clock, self.part = clock, max(part, self.part)

    def _check(self) -> None:
        if not self._environment.is_current():
            raise ValueError("their file was deleted")

    def close(self) -> None:
        """Close the tables."""
        self._environment.close()


@contextmanager
def undamaged(folder: Path, title: str) -> Iterator[None]:
    """Use ids for a block, and erase those that prove to be damaged.

    The next attempt begins anew.

    Args:
        folder: with the tables.
        title: of the source.

    Raises:
        Transient: they are damaged.
    """
    try:
        yield
    except HARM as error:
        erase_environment(folder)
        raise Transient(f"{title}: the ids of messages are damaged: {error}") from error
