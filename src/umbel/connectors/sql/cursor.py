"""Reading a table by a cursor column, with one statement per `every`.

    SELECT columns FROM table WHERE cursor >= low ORDER BY cursor

`low` lies before the highest cursor read: rows that committed late with an earlier cursor are found, and so are rows with the
very same one. What was read before is recognised by a digest of the row and left out. For instants and dates `low` is `disorder`
before the highest; for other types, whose values are no times, it is the highest cursor as of an earlier statement, which each
database chooses in its own way.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import polars as pl

from umbel.connectors.polled_cursor import Poll, PolledCursor, SeenRows, View
from umbel.connectors.polling import Poller
from umbel.connectors.sql.columns import DATE, FLOAT, INT, NUMERIC, TEXT, TIMES, Column
from umbel.connectors.sql.following import ANEW
from umbel.connectors.sql.parallel import read_ranges
from umbel.connectors.sql.ranges import Range, connections
from umbel.connectors.sql.rows import TableSource
from umbel.connectors.sql.server import TableDescription, TableServer
from umbel.connectors.staged_source import IDENTITY
from umbel.connectors.staging import OWN, StagedPart, encoded
from umbel.errors import InvalidValue
from umbel.state.keys import encode_columns

log = logging.getLogger("umbel.work")

NUMBERS, _TEXTS = frozenset({INT, FLOAT, NUMERIC}), frozenset({TEXT})
ORDERED = NUMBERS | _TEXTS
NEWER = f"{OWN}newer"
"""The column of a read that tells whether a row's cursor is above the highest one before, as the database compares."""


class Snapshot(View, Protocol):
    """One state of a table, in a transaction."""

    @property
    def table(self) -> TableDescription:
        """The description of the table."""

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
class CursorSource(TableSource, PolledCursor):
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

    def start(self, view: Snapshot, polls: Sequence[Poll]) -> Low:
        cursor, last = self.columns_of(view.table)[self.cursor], self.last_data()
        high = last.facts["high"] if last else None
        if last is not None and _order(former := _columns(last)[self.cursor]) != _order(cursor):
            raise InvalidValue(
                f"{self.title}: the cursor '{self.cursor}' was of type {former.type}, and is of {cursor.type}, which has "
                "another order",
                hint=ANEW,
            )
        if cursor.kind in TIMES:
            return Low(cursor, high, high, lookback=self.options.disorder, instant=self.instant, last=last)
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

    # ---- reading ---------------------------------------------------------------------------------------------------

    def copy(self, view: Snapshot, start: Low, poller: Poller) -> bool:
        columns, ranges = self.columns_of(view.table), self._ranges(view, start)
        seen = self._seen(start, columns)
        high, facts = start.high, {"columns": [column.plain for column in columns.values()]}
        reader = CursorRanges(self, view.table, columns, start)
        if len(ranges) > 1:
            parts = read_ranges(reader.portable(), ranges, connections(), lambda: poller.is_stopping)
        else:
            parts = ((encoded(frame), frame.height, facts) for frame, facts in reader.of(view, None))
        for content, height, found in parts:
            high = found["high"] or high
            body, count = seen.fresh_of(content, height)
            if count:
                self.stage.append_encoded(body, count, {**facts, "high": high})
            if not self.has_room(poller):
                return False
        return not (ranges and poller.is_stopping)

    def _seen(self, start: Low, columns: Mapping[str, Column]) -> SeenRows:
        """Return the rows that a read may find again.

        Rows of a keyless dataset that were read before the table was altered are recognised by values: the text of a value, or
        the columns of a row, may be others than before.
        """
        parts = (
            {} if self.options.is_keyed else {each: _columns(self.stage.part(each)) for each in self.covering(start)}
        )
        if all(each == columns for each in parts.values()):
            return self.seen(start)
        common, names = set(columns).intersection(*parts.values()), set(self.identity(columns))
        chosen = sorted(common if names - common else names)

        def digests(rows: pl.DataFrame, described: Mapping[str, Column]) -> pl.Series:
            typed = (self.typed(rows[name], described[name], None) for name in chosen)
            return _digests(pl.DataFrame([_values(each) for each in typed]), chosen)

        before = (digests(self.stage.read(number), described) for number, described in parts.items())
        return SeenRows.of(before, lambda rows: digests(rows, columns))

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


def _columns(part: StagedPart) -> dict[str, Column]:
    """Return the columns of the table as they were when a part was staged."""
    return {each["name"]: Column(**each) for each in part.facts["columns"]}


def _order(cursor: Column) -> frozenset[str]:
    """Return the kinds that have the same order as a cursor."""
    return next((kinds for kinds in (TIMES, NUMBERS) if cursor.kind in kinds), _TEXTS)


def _values(column: pl.Series) -> pl.Series:
    """Return values as texts that are the same for all types that have them."""
    return pl.Series(column.name, [_text(each) for each in column.to_list()], dtype=pl.String)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float | Decimal):
        digits = f"{Decimal(str(int(value) if isinstance(value, bool) else value)):f}"
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return str(value)


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
        last: the part whose highest cursor it is; for times.
    """

    cursor: Column
    high: str | None
    start: str | None
    lookback: int = 0
    part: int = -1
    instant: Callable[[str, Column], datetime] | None = None
    last: StagedPart | None = None

    def reaches(self, part: StagedPart) -> bool:
        """Return whether a part may have rows that are read again.

        All later parts may.
        """
        if self.start is None:
            return True
        if self.cursor.kind == INT:  # highest cursors only grow
            return Decimal(part.facts["high"] or self.start) >= Decimal(self.start)
        if part.number > self.part >= 0:
            return True
        if self.cursor.kind not in TIMES:
            return str(part.facts["high"]).rstrip(" ") == self.start.rstrip(" ")  # some databases compare so
        return self._instant(part) >= self._first

    @cached_property
    def begin(self) -> datetime:
        """The instant from which on rows are read; for times."""
        earliest = datetime.min.replace(tzinfo=UTC)
        start = self._instant(self.last) if self.last is not None and self.start else earliest
        return start - min(timedelta(microseconds=self.lookback), start - earliest)

    def _instant(self, part: StagedPart) -> datetime:
        """Return the highest cursor of a part, by the column's type of that time."""
        assert self.instant is not None
        return self.instant(part.facts["high"], _columns(part)[self.cursor.name])

    @property
    def _first(self) -> datetime:
        """An instant before which no row is read; a date stands for its whole day."""
        day = timedelta(days=1) if self.cursor.kind == DATE else timedelta()
        return self.begin - min(day, self.begin - datetime.min.replace(tzinfo=UTC))
