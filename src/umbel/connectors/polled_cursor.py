"""Reading a source from a cursor on, once per `every`, for all kinds of databases.

A read begins before the highest cursor read so far: rows that were committed late with an earlier cursor are found, and so are
rows with the very same one. Rows that were read before are recognised by a digest and left out.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import polars as pl

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller, seconds_left
from umbel.connectors.staged_source import IDENTITY, StagedSource
from umbel.connectors.staging import OWN, StagedPart, decoded, encoded

MOST_POLLS = 100
"""Statements within `disorder` that are retained to begin at."""
_TIMES, _BEFORE, _AGAIN = f"{OWN}times", f"{OWN}before", f"{OWN}again"
Poll: TypeAlias = Mapping[str, Any]
"""The mark of a statement, with the highest cursor and the last part after it."""


class View(Protocol):
    """The source as one statement finds it."""

    @property
    def mark(self) -> Poll:
        """The statement's place among others, in the database's own terms: plain JSON."""

    @property
    def earlier(self) -> Poll | None:
        """The highest cursor and its mark before the first statement, None if unknown."""


class Start(Protocol):
    """The cursor from which on rows are read."""

    @property
    def high(self) -> str | None:
        """The highest cursor read so far, None for none."""

    def reaches(self, part: StagedPart) -> bool:
        """Return whether a part may have rows that are read again; all later parts may."""


class PolledCursor(StagedSource):
    """A source that is read by a cursor.

    Args:
        cursor: the column, or the field.
    """

    cursor: str

    @property
    def loads_unordered(self) -> bool:
        return self.cursor != self.options.timestamp

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Any]:
        """Return a context with the `View` of one read."""

    @abstractmethod
    def start(self, view: Any, polls: Sequence[Poll]) -> Any:
        """Return the `Start` of a read.

        Args:
            view: of the read.
            polls: of earlier reads.
        """

    @abstractmethod
    def copy(self, view: Any, start: Any, poller: Poller) -> bool:
        """Stage the new rows; return whether all of them were read."""

    @abstractmethod
    def closed(self, polls: Sequence[Poll]) -> int | None:
        """Return the place of the earlier statement whose highest cursor the next one begins at.

        Args:
            polls: of earlier statements, the marks with the highest cursors.
        """

    def relevant(self, polls: Sequence[Poll]) -> Sequence[Poll]:
        """Return the statements that a later one may begin at."""
        return polls[self.closed(polls) or 0 :]

    def read_on(self, poller: Poller) -> float:
        """Read the new rows if it is time to; return the seconds until then."""
        state, every = self.stage.state(), self.options.every / 1e6
        wait = seconds_left(state.get("polled_at", 0.0), every)
        poller.lag = SourceLag(seconds=max(0.0, -wait) if state.get("loaded") else None)
        if wait > 0 and state.get("loaded"):
            return wait
        with self.snapshot() as view:
            start = self.start(view, state.get("polls", []))
            self.note(polled_at=time.time())
            polls = list(state.get("polls") or filter(None, [view.earlier]))
            # the mark after the copy: one that stopped may have closed the connection
            mark = view.mark if self.copy(view, start, poller) else None
        if mark is not None:
            last = self.last_data()
            done = {**mark, "high": last and last.facts["high"], "part": last.number if last else 0}
            self.note(loaded=True, polls=list(self.relevant([*polls, done])))
            poller.lag = SourceLag(seconds=0.0)
            self.stage.expire(min(poller.consumed + 1, *(number for number in self.covering(start)), 1 << 62))
        return every

    def note(self, **facts: Any) -> None:
        """Save facts in the state of the reader, durably."""
        self.stage.save({**self.stage.state(), **facts})

    def last_data(self) -> StagedPart | None:
        """Return the last part that has rows."""
        return next(self._parts(), None)

    def seen(self, start: Start) -> SeenRows:
        """Return the rows that a read may find again."""
        return SeenRows.of(self.stage.read(number, [IDENTITY])[IDENTITY] for number in self.covering(start))

    def _parts(self) -> Iterator[StagedPart]:
        """Yield the parts that have rows, last ones first."""
        parts = (self.stage.part(number) for number in reversed(self.stage.numbers()))
        return (part for part in parts if "high" in part.facts)

    def covering(self, start: Start) -> list[int]:
        """Return the numbers of the parts that may have rows from a cursor on."""
        found = list[int]()
        for part in self._parts():
            if not start.reaches(part):
                break
            found.append(part.number)
        return found


class PatientCursor(PolledCursor):
    """A source whose server does not tell which writes are under way.

    A write takes `disorder` at most.
    """

    def closed(self, polls: Sequence[Poll]) -> int | None:
        """Return the place of the newest statement that was `disorder` before the last one.

        A write that takes less than that has ended at the last one, which so has read its rows.
        """
        patience = self.options.disorder / 1e6
        found = [at for at, each in enumerate(polls) if polls[-1]["begun"] - each["begun"] >= patience]
        return found[-1] if found else None

    def relevant(self, polls: Sequence[Poll]) -> Sequence[Poll]:
        """Return the statements that a later one may begin at, with a gap between them.

        An earlier one will do as well: else a short `every` and a long `disorder` would retain a million.
        """
        gap, found = self.options.disorder / 1e6 / MOST_POLLS, list[Poll]()
        *before, last = super().relevant(polls)
        for each in before:
            if not found or not 0 <= each["begun"] - found[-1]["begun"] < gap:
                found.append(each)
        return [*found, last]


class SeenRows:
    """The digests of the rows read before, each as often as it was read.

    Args:
        left: digests with counts.
        digests: returns those of rows, if they are others than the rows have with them.
    """

    def __init__(self, left: pl.DataFrame, digests: Callable[[pl.DataFrame], pl.Series] | None = None) -> None:
        self._left, self._digests = left, digests

    @classmethod
    def of(cls, parts: Iterator[pl.Series], digests: Callable[[pl.DataFrame], pl.Series] | None = None) -> SeenRows:
        """Return the digests of some parts."""
        found = list(parts)
        rows = pl.concat(found) if found else pl.Series(IDENTITY, [], dtype=pl.UInt64)
        return cls(rows.to_frame(IDENTITY).group_by(IDENTITY).len(_TIMES), digests)

    def fresh_of(self, content: bytes, height: int) -> tuple[bytes, int]:
        """Return the encoded rows that were not read before, and their number."""
        if not self._left.height:
            return content, height
        fresh = self.fresh(decoded(content))
        return encoded(fresh), fresh.height

    def fresh(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that were not read before."""
        if not self._left.height:
            return rows
        digests = (rows[IDENTITY] if self._digests is None else self._digests(rows)).to_frame(IDENTITY)
        numbered = digests.with_columns(pl.int_range(pl.len()).over(IDENTITY).alias(_BEFORE))
        known = numbered.join(self._left, on=IDENTITY, how="left", maintain_order="left")
        again = digests.group_by(IDENTITY).len(_AGAIN)
        left = self._left.join(again, on=IDENTITY, how="left").with_columns(pl.col(_AGAIN).fill_null(0))
        left = left.filter(pl.col(_TIMES) > pl.col(_AGAIN))
        self._left = left.select(IDENTITY, pl.col(_TIMES) - pl.col(_AGAIN))
        return rows.filter(known[_BEFORE] >= known[_TIMES].fill_null(0))
