"""Purges: requests to erase the bytes of erased rows, and their progress.

A request is a revision: all erasures up to it. The worker records the last revision it is done with.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import delete, make_url, select, update

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog
from umbel.catalog.engine import explained
from umbel.catalog.snapshots import PATIENCE
from umbel.state.failpoints import reach

REQUESTED, PROGRESS = "purge-requested", "purge"
"""The settings with the last requested revision, and with the progress."""
PAUSE, RETRY = 5.0, 30.0
"""Seconds until the next try of a purge that has to wait for something, and of one that failed."""
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """The progress of the worker.

    Args:
        revision: the last revision whose erasures are purged.
        at: when the last purge ended, in seconds since the epoch; 0 for none.
        step: what is being done, or what is waited for; empty when nothing is.
        error: why the last try failed; empty if it did not.
        tried: when that was, or when it was last found that something has to be waited for.
        notes: what was done, and what is left, of the last purge.
        left: the number of places that still have bytes.
    """

    revision: int = 0
    at: float = 0.0
    step: str = ""
    error: str = ""
    tried: float = 0.0
    notes: tuple[str, ...] = ()
    left: int = 0


class Purges:
    """The purges of a deployment, in its catalog.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def request(self, revision: int) -> None:
        """Request the purge of all erasures up to a revision."""
        if revision > self.requested:
            self._catalog.note(REQUESTED, revision)

    @property
    def requested(self) -> int:
        """The last requested revision, 0 for none."""
        return int(self._catalog.noted(REQUESTED) or 0)

    @property
    def progress(self) -> PurgeProgress:
        """The progress of the worker."""
        found: Mapping[str, Any] = self._catalog.noted(PROGRESS) or {}
        return PurgeProgress(**{**found, "notes": tuple(found.get("notes", ()))})

    def note(self, progress: PurgeProgress) -> None:
        """Record the progress."""
        self._catalog.note(PROGRESS, asdict(progress))

    @property
    def is_open(self) -> bool:
        """True while a requested purge is not done."""
        requested = self.requested
        return bool(requested) and requested > self.progress.revision

    def is_due(self) -> bool:
        """Return True if a requested purge is to be tried now.

        It is if the last try is in the future: the clock was set back.
        """
        if not self.is_open:
            return False
        progress = self.progress
        pause = RETRY if progress.error else PAUSE if progress.step else 0.0
        return not 0.0 <= time.time() - progress.tried < pause

    def replace_keys(self, revision: int, packed: Callable[[t.Erasure], bytes | None]) -> int:
        """Replace the keys of erasures; return how many were replaced.

        Args:
            revision: the last one.
            packed: returns what replaces the keys of an erasure, None for nothing.
        """
        with self._catalog.sessions.begin() as session:
            rows = session.scalars(select(t.Erasure).where(t.Erasure.revision <= revision)).all()
            found = {row.id: data for row in rows if (data := packed(row)) is not None}
            for number, data in found.items():
                session.execute(update(t.Erasure).where(t.Erasure.id == number).values(keys=data))
        return len(found)

    def keys(self, revision: int) -> list[tuple[str, bytes]]:
        """Return the keys of all erasures up to a revision, with their datasets."""
        with self._catalog.sessions() as session:
            rows = session.scalars(select(t.Erasure).where(t.Erasure.revision <= revision)).all()
            return [(row.dataset, row.keys) for row in rows]

    def delete_letters(self, datasets: Iterable[str], is_of: Callable[[bytes], bool]) -> int:
        """Delete dead letters; return how many.

        Args:
            datasets: their names in the graph.
            is_of: returns whether a text of a letter has an erased key.
        """
        deleted, last, names = 0, 0, list(datasets)
        row = t.DeadLetterRow
        while True:
            with self._catalog.sessions.begin() as session:
                chosen = select(row).where(row.dataset.in_(names), row.id > last).order_by(row.id).limit(_AT_ONCE)
                found = session.scalars(chosen).all()
                gone = [
                    each.id for each in found if is_of(each.raw) or is_of(f"{each.reason} {each.position}".encode())
                ]
                if gone:
                    session.execute(delete(row).where(row.id.in_(gone)))
            if not found:
                return deleted
            deleted, last = deleted + len(gone), found[-1].id

    def erase_free_pages(self) -> str:
        """Rewrite the database without deleted rows; return the remaining task, empty for none.

        Raises:
            Damaged: the database is damaged.
            Transient: its disk has no room for another copy, or others use it.
        """
        import sqlite3

        url = make_url(self._catalog.url)
        if url.get_backend_name() != "sqlite" or not url.database:
            return "the catalog's database still has the deleted rows until they are vacuumed there: VACUUM FULL"
        with explained(), closing(sqlite3.connect(url.database, timeout=PATIENCE, isolation_level=None)) as database:
            database.execute("VACUUM")
            reach("vacuumed")
            deadline = time.monotonic() + PATIENCE
            while database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() > deadline:
                    return "the write-ahead log of the catalog is being read; it is emptied when its readers are done"
                time.sleep(0.05)
        return ""


class Mentions:
    """Recognises erased keys in text: whole words, in JSON or not.

    Args:
        keys: the values of each key.
    """

    def __init__(self, keys: Iterable[tuple[object, ...]]) -> None:
        found = (tuple(pattern for value in each for pattern in _patterns(value)) for each in keys)
        self._keys = [each for each in found if each]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __call__(self, text: bytes) -> bool:
        """Return whether a text has all values of a key."""
        return any(all(part.search(text) for part in each) for each in self._keys)


def _patterns(value: object) -> Iterator[re.Pattern[bytes]]:
    """Yield the patterns of a value, of each inner one where it is nested."""
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _patterns(each)
    elif value is not None:
        found = b"|".join(sorted(each.encode("utf-8", "surrogatepass") for each in _spellings(value)))
        yield re.compile(rb"(?<![0-9A-Za-z_\x80-\xff])(?:" + found + rb")(?![0-9A-Za-z_\x80-\xff])")


def _spellings(value: object) -> set[str]:
    """Return expressions for the texts of a value, in JSON or for people."""
    if isinstance(value, Decimal):
        whole, _, fraction = f"{value:f}".partition(".")
        rest = fraction.rstrip("0")
        return {rf"{re.escape(whole)}\.{rest}0*" if rest else rf"{re.escape(whole)}(?:\.0*)?"}
    if isinstance(value, datetime):
        return {re.escape(f"{value:%Y-%m-%d}") + "[T ]" + re.escape(f"{value:%H:%M:%S}") + r"(?:\.[0-9]+)?Z?"}
    if isinstance(value, bytes):
        texts = {value.hex(), base64.b64encode(value).decode()}
    else:
        texts = {str(value).lower() if isinstance(value, bool) else str(value)}
    forms = {form for text in texts for form in (text, text.replace("/", r"\/"))}
    forms |= {json.dumps(each, ensure_ascii=is_ascii)[1:-1] for each in texts for is_ascii in (True, False)}
    return {re.escape(each) for each in forms}
