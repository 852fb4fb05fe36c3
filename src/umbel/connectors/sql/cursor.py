"""Reading a table by a cursor column, with one statement per `every`.

    SELECT columns FROM table WHERE cursor >= low ORDER BY cursor

`low` lies before the highest cursor read: rows that committed late with an earlier cursor are found, and so are rows with the
very same one. What was read before is recognised by a digest of the row and left out. For instants and dates `low` is `disorder`
before the highest; for other types, whose values are no times, it is the highest cursor as of an earlier statement, which each
database chooses in its own way.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import polars as pl

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller
from umbel.connectors.sql.columns import DATE, FLOAT, INT, NUMERIC, TEXT, TIMES, Column
from umbel.connectors.sql.parallel import read_ranges
from umbel.connectors.sql.ranges import Range, connections
from umbel.connectors.sql.rows import TableSource
from umbel.connectors.sql.server import TableDescription, TableServer
from umbel.connectors.staged_source import IDENTITY
from umbel.connectors.staging import StagedPart, decoded, encoded
from umbel.errors import InvalidValue
from umbel.state.keys import encode_columns

log = logging.getLogger("umbel.work")

ORDERED = frozenset({INT, FLOAT, NUMERIC, TEXT})
NEWER = "_newer"
"""The column of a read that tells whether a row's cursor is above the highest one before, as the database compares."""
Poll = Mapping[str, Any]


class Snapshot(Protocol):
    """One state of a table, in a transaction."""

    @property
    def table(self) -> TableDescription:
        """The description of the table."""

    @property
    def mark(self) -> Poll:
        """The statement's place among transactions, in the database's own terms: plain JSON."""

    @property
    def earlier(self) -> Poll | None:
        """The highest cursor and its mark before the first statement, None if unknown."""

    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`.

        Args:
            columns: those to read.
            low: the cursor.
            within: a range of cursors besides.
        """

    def ranges(self, low: Low, count: int) -> list[Range] | str:
        """Return ranges of cursors for several connections, or the reason against.

        Args:
            low: the cursor that is read from.
            count: of the connections.
        """


@dataclass(frozen=True)
class CursorSource(TableSource):
    """A table read by a cursor column.

    Args:
        cursor: the column.
    """

    cursor: str

    server: TableServer

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Begin a transaction that reads one state of the table."""

    @abstractmethod
    def present(self, connection: Any, table: TableDescription) -> Snapshot:
        """Return the table as each statement of a connection finds it."""

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
        wait: float = min(every, state.get("polled_at", 0.0) + every - time.time())
        poller.lag = SourceLag(seconds=max(0.0, -wait) if state.get("loaded") else None)
        if wait > 0 and state.get("loaded"):
            return wait
        with self.snapshot() as snapshot:
            columns = self.columns_of(snapshot.table)
            state["polled_at"] = time.time()
            self.stage.save(state)
            polls = list(state.get("polls") or filter(None, [snapshot.earlier]))
            low = self._low(columns[self.cursor], state.get("polls", []))
            is_complete = self._copy(snapshot, columns, low, poller)
            mark = snapshot.mark
        if is_complete:
            last = self._last_data()
            done = {**mark, "high": last and last.facts["high"], "part": last.number if last else 0}
            state |= {"loaded": True, "polls": list(self.relevant([*polls, done]))}
            self.stage.save(state)
            poller.lag = SourceLag(seconds=0.0)
            self.stage.expire(min(poller.consumed + 1, *(number for number in self._covering(low)), 1 << 62))
        return every

    def columns_of(self, table: TableDescription) -> dict[str, Column]:
        """Return the columns to read; refuse a cursor that cannot be one."""
        names = self.names(table, self.cursor)
        table.require(self.title, names)
        cursor = table.columns[self.cursor]
        if cursor.is_array or cursor.kind not in TIMES | ORDERED:
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type {cursor.type} cannot be a cursor",
                hint="a cursor is a timestamp, a date, a number or text that grows with every change of a row",
            )
        return {name: table.columns[name] for name in names}

    # ---- where to begin --------------------------------------------------------------------------------------------

    def _last_data(self) -> StagedPart | None:
        return next(self._parts(), None)

    def _parts(self) -> Iterator[StagedPart]:
        """Yield the parts that have rows, last ones first."""
        parts = (self.stage.part(number) for number in reversed(self.stage.numbers()))
        return (part for part in parts if "high" in part.facts)

    def _low(self, cursor: Column, polls: Sequence[Poll]) -> Low:
        last = self._last_data()
        high = last.facts["high"] if last else None
        if cursor.kind in TIMES:
            return Low(cursor, high, high, lookback=self.options.disorder, instant=self.instant)
        closed = self.closed(polls) if polls else None
        if closed is None:
            return Low(cursor, high, None)
        return Low(cursor, high, polls[closed]["high"], part=polls[closed]["part"])

    def instant(self, text: str, cursor: Column) -> datetime:
        """Return the instant that the text of a cursor is."""
        value = self.typed(pl.Series([text], dtype=pl.String), cursor, None)[0]
        if isinstance(value, date):
            return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
        raise InvalidValue(
            f"{self.title}: the highest '{self.cursor}' is {text}, no instant of the years 1 to 9999",
            hint="correct the row of the table, and commit the dataset as a new version to begin anew",
        )

    def _covering(self, low: Low) -> list[int]:
        """Return the numbers of the parts that may have rows from `low` on."""
        found = list[int]()
        for part in self._parts():
            if not low.reaches(part):
                break
            found.append(part.number)
        return found

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _copy(self, snapshot: Snapshot, columns: Mapping[str, Column], low: Low, poller: Poller) -> bool:
        """Stage the new rows; return whether all of them were read."""
        seen = _Seen.of(self.stage.read(number, [IDENTITY])[IDENTITY] for number in self._covering(low))
        high, facts = low.high, {"columns": [column.plain for column in columns.values()]}
        reader, ranges = CursorRanges(self, snapshot.table, columns, low), self._ranges(snapshot, low)
        if len(ranges) > 1:
            parts = read_ranges(reader.portable(), ranges, connections(), lambda: poller.is_stopping)
        else:
            parts = ((encoded(frame), frame.height, facts) for frame, facts in reader.of(snapshot, None))
        for content, height, found in parts:
            high = found["high"] or high
            body, count = seen.fresh_of(content, height)
            if count:
                self.stage.append_encoded(body, count, {**facts, "high": high})
            if not self.has_room(poller):
                return False
        return not (ranges and poller.is_stopping)

    def _ranges(self, snapshot: Snapshot, low: Low) -> list[Range]:
        """Return the ranges of a first read; none for one statement."""
        count = connections()
        found = snapshot.ranges(low, count) if count > 1 and self.is_loading else []
        if isinstance(found, str):
            log.info("%s: the rows that exist are read by one connection: %s", self.title, found)
            return []
        if found:
            log.info("%s: the rows that exist are read in %d ranges by %d connections", self.title, len(found), count)
        return found

    def identity(self, columns: Mapping[str, Column]) -> list[str]:
        """Return the columns whose digest tells each row from all others.

        A keyless dataset takes each row of a table once for each value of the cursor; a keyed one whenever it differs.
        """
        keys = [name for name, column in columns.items() if column.is_primary]
        return sorted({*keys, self.cursor} if keys and not self.options.is_keyed else columns)


@dataclass(frozen=True)
class CursorRanges:
    """Reads ranges of cursors.

    Args:
        source: the source.
        table: the description of the table.
        columns: those to read.
        low: the cursor to read from.
    """

    source: CursorSource
    table: TableDescription
    columns: Mapping[str, Column]
    low: Low

    def portable(self) -> CursorRanges:
        """Return the same for another process, which has no secrets of the deployment."""
        source = replace(self.source, server=self.source.server.revealed())
        return replace(self, source=source, low=replace(self.low, instant=source.instant))

    def connected(self) -> AbstractContextManager[Any]:
        """Connect for a block."""
        return self.source.server.connect()

    def parts(self, connection: Any, each: Range) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
        """Yield the rows of a range."""
        return self.of(self.source.present(connection, self.table), each)

    def of(self, snapshot: Snapshot, within: Range | None) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
        """Yield the rows of a snapshot with digests, and the highest newer cursor."""
        names = self.source.identity(self.columns)
        for rows in snapshot.rows(self.columns, self.low, within):
            newer = rows.filter(NEWER)[self.low.cursor.name]
            identity = _digests(rows, names)
            yield rows.drop(NEWER).with_columns(identity), {"high": newer[-1] if len(newer) else None}


def _digests(rows: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    encoded_rows = encode_columns(rows, names).to_list()
    digests = (int.from_bytes(blake2b(each, digest_size=8).digest(), "little") for each in encoded_rows)
    return pl.Series(IDENTITY, digests, dtype=pl.UInt64)


@dataclass(frozen=True)
class Low:
    """The cursor from which on rows are read.

    Args:
        cursor: the column.
        high: the highest cursor read so far, None for none.
        start: the cursor that the read begins at or before; None for the beginning of the table.
        lookback: how far before `start` it begins, in µs; for times.
        part: the last part staged when `start` was the highest cursor; -1 for times.
        instant: converts the text of a cursor; for times.
    """

    cursor: Column
    high: str | None
    start: str | None
    lookback: int = 0
    part: int = -1
    instant: Callable[[str, Column], datetime] | None = None

    def reaches(self, part: StagedPart) -> bool:
        """Return whether a part may have rows that are read again.

        All later parts may.
        """
        if self.start is None:
            return True
        if self.cursor.kind == INT:  # highest cursors only grow
            return int(part.facts["high"] or self.start) >= int(self.start)
        if part.number > self.part >= 0:
            return True
        if self.cursor.kind not in TIMES:
            return str(part.facts["high"]).rstrip(" ") == self.start.rstrip(" ")  # some databases compare so
        assert self.instant is not None
        return self.instant(part.facts["high"], self.cursor) >= self._first

    @cached_property
    def begin(self) -> datetime:
        """The instant from which on rows are read; for times."""
        assert self.instant is not None
        earliest = datetime.min.replace(tzinfo=UTC)
        start = self.instant(self.start, self.cursor) if self.start else earliest
        return start - min(timedelta(microseconds=self.lookback), start - earliest)

    @property
    def _first(self) -> datetime:
        """An instant before which no row is read; a date stands for its whole day."""
        day = timedelta(days=1) if self.cursor.kind == DATE else timedelta()
        return self.begin - min(day, self.begin - datetime.min.replace(tzinfo=UTC))


class _Seen:
    """The digests of the rows read before, each as often as it was read.

    Args:
        left: digests with counts.
    """

    def __init__(self, left: pl.DataFrame) -> None:
        self._left = left

    @classmethod
    def of(cls, parts: Iterator[pl.Series]) -> _Seen:
        """Return the digests of some parts."""
        found = list(parts)
        rows = pl.concat(found) if found else pl.Series(IDENTITY, [], dtype=pl.UInt64)
        return cls(rows.to_frame(IDENTITY).group_by(IDENTITY).len("_times"))

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
        numbered = rows.with_columns(pl.int_range(pl.len()).over(IDENTITY).alias("_before"))
        known = numbered.join(self._left, on=IDENTITY, how="left", maintain_order="left")
        again = rows.group_by(IDENTITY).len("_again")
        left = self._left.join(again, on=IDENTITY, how="left").with_columns(pl.col("_again").fill_null(0))
        left = left.filter(pl.col("_times") > pl.col("_again"))
        self._left = left.select(IDENTITY, pl.col("_times") - pl.col("_again"))
        return known.filter(pl.col("_before") >= pl.col("_times").fill_null(0)).drop("_before", "_times")
