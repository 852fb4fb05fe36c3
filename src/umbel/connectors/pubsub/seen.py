"""Ids of staged messages, by which repeated deliveries are recognised.

Ids are forgotten two hours after the last delivery of their message. Only time in which messages are read counts: while no
worker runs nothing is forgotten, for what it had not acknowledged is delivered when the next one reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from umbel.errors import Transient
from umbel.log.environments import HARM, MappedEnvironment, entry_of, erase_environment, sealed, unsealed

BUCKET = 1800.0
"""Seconds of reading after which ids go to another table."""
BUCKETS = 5
"""Tables of ids: that of now, and those of two hours."""
TIMES = struct.Struct("<dQ")
"""Seconds for which messages have been read, and the last part."""
SEEN = "seen"
"""The name of their folder, beside the staged rows of the source."""
CLOCK = b"clock"
"""The key of how long messages have been read, and of the last part; other keys are the names of tables."""


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
            stored = transaction.get(CLOCK)
            names = [bytes(key) for key, _ in transaction.cursor() if key != CLOCK]
        self.is_new = stored is None
        try:
            self._clock, self.part = self._times(stored) if stored else (0.0, 0)
            if (names and not stored) or any(name > self._name(self._clock) for name in names):
                raise ValueError("a table is of another time")
            self._tables = {name: self._environment.lmdb.open_db(name, create=False) for name in names}
        except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
            self._environment.close()
            raise ValueError("a table is none") from error
        except BaseException:
            self._environment.close()
            raise

    part: int
    """The last part whose ids are among these."""
    is_new: bool
    """True if there were none before."""

    @staticmethod
    def _times(stored: bytes) -> tuple[float, int]:
        clock, part = TIMES.unpack(unsealed(CLOCK, stored, TIMES.size))
        return clock, part

    @staticmethod
    def _name(clock: float) -> bytes:
        """Return the name of the table of a time."""
        return b"%012d" % int(clock // BUCKET)

    def known(self, ids: Iterable[str]) -> set[str]:
        """Return those of some ids that are there."""
        self._check()
        with self._environment.lmdb.begin() as transaction:
            tables = [transaction.cursor(table) for _, table in sorted(self._tables.items(), reverse=True)]
            found = ((each, each.encode()) for each in ids)
            return {each for each, key in found if any(entry_of(table, key, 0) is not None for table in tables)}

    def add(self, ids: Iterable[str], part: int, elapsed: float) -> None:
        """Add the ids of messages, durably, and forget old ones.

        Args:
            ids: of messages that were delivered now, for the first time or again.
            part: the last part that has any of them.
            elapsed: seconds of reading since the last call.
        """
        self._check()
        clock = self._clock + elapsed
        name = self._name(clock)
        if name not in self._tables:
            self._tables[name] = self._environment.lmdb.open_db(name)
        old = sorted(self._tables)[:-BUCKETS]
        with self._environment.writing() as transaction:
            for each in ids:
                key = each.encode()
                transaction.put(key, sealed(key, b""), db=self._tables[name])
            for table in old:
                transaction.drop(self._tables[table])
            transaction.put(CLOCK, sealed(CLOCK, TIMES.pack(clock, max(part, self.part))))
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
