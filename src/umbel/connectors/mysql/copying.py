"""First copies of tables by ranges of the primary key, each with a binlog position.

No transaction lasts as long as the copy: a range is read in a short snapshot whose position is known. Of the changes after the
first position a row's change is left out if the range of its key has it already, which is exact whatever the order of ranges and
changes: so a copy that is interrupted goes on after its last complete range.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.mysql.columns import frame, read_as
from umbel.connectors.mysql.dividing import LARGE, Division
from umbel.connectors.mysql.positions import History, MariaDBHistory, MySQLHistory
from umbel.connectors.mysql.reading import literal, pieces
from umbel.connectors.mysql.server import MySQLDescription, MySQLServer, quote, rows
from umbel.connectors.mysql.stream import StreamError, transactions_before
from umbel.connectors.sql.changes import Relation, Values
from umbel.connectors.sql.columns import BYTES, DATE, INSTANT, INT, NAIVE, NUMERIC, TIMES, Column
from umbel.connectors.sql.following import inserted
from umbel.connectors.sql.ranges import Range, ranges_between
from umbel.connectors.sql.rows import DELETE, INSERT, UNSENT, UPDATE
from umbel.errors import Transient

if TYPE_CHECKING:
    from pymysql import Connection

LOCK_WAIT = 5
"""Seconds that MySQL waits for writers of the table before a snapshot."""
SNAPSHOT_FOR = 5.0
"""Seconds after which a snapshot ends with the range that is read: statements that alter the table wait for its end."""
TIMES_COST = 50
"""How many times longer than its beginning a snapshot lasts: MariaDB reads its log from the start of the file for that."""
DIVISIBLE = frozenset({INT, NUMERIC, BYTES, DATE, INSTANT, NAIVE})
"""The kinds whose values are in the same order here as on the server; others have collations or are inexact."""
PRIMARY = """SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
             AND INDEX_NAME = 'PRIMARY' AND SEQ_IN_INDEX = 1 AND INDEX_TYPE = 'BTREE' AND SUB_PART IS NULL"""
_OF_ROWS = frozenset({INSERT, UPDATE, DELETE, UNSENT})


class CopyOutdated(Exception):
    """A change of the table that a copy by ranges cannot take.

    Args:
        reason: the change.
        is_whole: whether the next copy must be of one snapshot.
    """

    def __init__(self, reason: str, *, is_whole: bool = False) -> None:
        super().__init__(reason)
        self.is_whole = is_whole


@dataclass
class Copy:
    """A copy by ranges, as it is saved.

    Args:
        snapshot: the fact of the parts that belong to it.
        start: the position before it.
        column: whose values are divided.
        bounds: the lowest values of the ranges, except of the first one.
        rows: of the table, estimated.
        positions: of the ranges that are complete, in order.
        spans: the first and the last of the parts of these; several where a range was interrupted.
    """

    snapshot: str
    start: str
    column: Column
    bounds: Sequence[str]
    rows: int
    positions: list[str] = field(default_factory=list)
    spans: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Copy:
        """Return a saved copy."""
        return cls(**{**plain, "column": Column(**plain["column"])})

    @property
    def plain(self) -> dict[str, Any]:
        """The copy as JSON-compatible data."""
        return asdict(self)

    @property
    def left(self) -> list[Range]:
        """The ranges that are still to be read; the last one has no end."""
        return ranges_between(self.bounds, "")[len(self.positions) :]

    @property
    def rows_left(self) -> int:
        """The rows of these, estimated."""
        return self.rows * len(self.left) // (len(self.bounds) + 1)

    def complete(self, position: str, parts: Sequence[int]) -> None:
        """Note that a range is complete.

        Args:
            position: it is as of this one.
            parts: the numbers of its parts.
        """
        self.positions.append(position)
        for number in parts:
            if self.spans and self.spans[-1][1] == number - 1:
                self.spans[-1][1] = number
            else:
                self.spans.append([number, number])


def divided(
    connection: Connection[Any], table: MySQLDescription, keys: Sequence[str] | None, count: int
) -> tuple[Column, list[str], int] | str:
    """Return the column, bounds and estimated rows of ranges, or why there are none.

    Args:
        connection: to the server.
        table: the description of the table.
        keys: the columns of the dataset's keys, None for a keyless one. Rows with one key must be in one range.
        count: of the connections that read ranges.
    """
    found = rows(connection, PRIMARY, table.database, table.table)
    if not found:
        return "it has no primary key"
    column = table.columns[found[0][0]]
    if column.kind not in DIVISIBLE:
        return f"its primary key begins with {column.name} of type {column.type}"
    if keys is not None and column.name not in keys:
        return f"its primary key begins with {column.name}, which is no key of the dataset"
    dividing = Division(connection, table.name, column)
    if (size := dividing.estimated()) < LARGE:
        return f"it has less than {LARGE:,} rows"
    ranges = dividing.ranges(size, count)
    return ranges if isinstance(ranges, str) else (column, [each.low for each in ranges if each.low is not None], size)


def begin_snapshot(server: MySQLServer, connection: Connection[Any], table: str) -> str:
    """Begin a snapshot; return the transactions that it has.

    Args:
        server: for another connection, which MySQL needs.
        connection: whose transaction is the snapshot.
        table: its quoted name.
    """
    rows(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if is_mariadb(connection):
        rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = {str(name): value for name, value in rows(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
        file, offset = (status[f"Binlog_snapshot_{each}"] for each in ("file", "position"))
        (found,) = rows(connection, f"SELECT BINLOG_GTID_POS('{file}', {int(offset)})")[0]
        return _read_position(server, file, int(offset)) if found is None else str(found)
    with server.connect() as other:  # its lock keeps others from changing the table meanwhile
        rows(other, f"SET lock_wait_timeout = {LOCK_WAIT}")
        rows(other, f"LOCK TABLES {table} READ")
        rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return str(rows(other, "SELECT @@global.gtid_executed")[0][0])


def _read_position(server: MySQLServer, file: str, offset: int) -> str:
    """Return the transactions before an offset, from the log itself.

    The server does not find them in a file that has an event above its max_allowed_packet, which it sends all the same.
    """
    with server.connect() as other:
        try:
            return transactions_before(other, file, offset)
        except StreamError as error:
            raise Transient(
                f"{server.title}: the snapshot was not found in the binary log: {' '.join(error.message.split())}",
                hint="see that the log is not purged at once",
            ) from None


def is_mariadb(connection: Connection[Any]) -> bool:
    """Return whether the server is MariaDB, not MySQL."""
    return "MariaDB" in str(rows(connection, "SELECT VERSION()")[0][0])


@dataclass
class _Snapshot:
    """The snapshot of a connection, and until when it is used; None for none."""

    connection: Connection[Any]
    position: str = ""
    until: float | None = None


@dataclass(frozen=True)
class CopyReader:
    """Reads ranges of keys.

    Args:
        server: with a login that no vault is needed for.
        table: its quoted name.
        columns: those to read.
        column: whose values are divided; None to read all at once.
        snapshot_for: seconds that a snapshot is used for at least.
    """

    server: MySQLServer
    table: str
    columns: Mapping[str, Column]
    column: Column | None
    snapshot_for: float = field(default_factory=lambda: SNAPSHOT_FOR)

    @contextmanager
    def connected(self) -> Iterator[_Snapshot]:
        """Connect for a block."""
        with self.server.connect() as connection:
            yield _Snapshot(connection)

    def position(self, snapshot: _Snapshot) -> str:
        """Return the position that a connection reads as of."""
        if snapshot.until is None:
            begun = time.monotonic()
            snapshot.position = begin_snapshot(self.server, snapshot.connection, self.table)
            now = time.monotonic()
            snapshot.until = now + self.snapshot_for + (now - begun) * TIMES_COST
        return snapshot.position

    def parts(self, connection: _Snapshot, each: Range | None) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
        """Yield the rows of a range or of all, and last none with their position."""
        snapshot, position = connection, self.position(connection)
        listed = ", ".join(read_as(column, quote(name)) for name, column in self.columns.items())
        condition = " AND ".join(self._conditions(snapshot.connection, each))
        statement = f"SELECT {listed} FROM {self.table} WHERE {condition}"  # noqa: S608  names are quoted, values literals
        for found in pieces(snapshot.connection, statement):
            yield inserted(frame(found, list(self.columns.values()))), {}
        if snapshot.until is None or time.monotonic() >= snapshot.until:
            rows(snapshot.connection, "COMMIT")
            snapshot.until = None
        yield pl.DataFrame(), {"position": position}

    def _conditions(self, connection: Connection[Any], each: Range | None) -> Iterator[str]:
        yield "TRUE"
        if each is None or self.column is None:
            return
        name = quote(self.column.name)
        if each.low is not None:
            yield f"{name} >= {literal(connection, self.column, each.low)}"
        if not each.is_last:
            yield f"{name} < {literal(connection, self.column, each.high)}"


class CopiedRanges:
    """The changes that the ranges of a copy have already.

    Args:
        copy: it is complete.
        history: returns the transactions of a position.

    Raises:
        CopyOutdated: a range lacks transactions from before the copy.
    """

    def __init__(self, copy: Copy, history: Callable[[str], MariaDBHistory | MySQLHistory]) -> None:
        self._column, self._order = copy.column, _order(copy.column)
        self._bounds = [self._order(each) for each in copy.bounds]
        self.snapshot = copy.snapshot
        """The fact of the parts of the copy."""
        known: dict[str, Any] = {position: history(position) for position in copy.positions}
        self._positions: list[History] = [known[each] for each in copy.positions]
        self._known = self._ahead = list(known.values())
        start: Any = history(copy.start)
        if any(start.missing_in(each) for each in self._known):
            raise CopyOutdated("another server took over, which lacked transactions of the one before")

    def is_passed(self, history: Any) -> bool:
        """Return whether all changes have been read that a range may have."""
        self._ahead = [each for each in self._ahead if each.missing_in(history)]
        return not self._ahead

    def without(
        self, changes: Sequence[tuple[str, Relation, Values]], transaction: bytes
    ) -> list[tuple[str, Relation, Values]]:
        """Return the changes of a transaction that the copy lacks.

        Args:
            changes: kinds, descriptions of the table, and values.
            transaction: its identifier.

        Raises:
            CopyOutdated: the table was emptied or replaced while it was copied.
        """
        return [each for each in changes if not self._has(*each, transaction)]

    def _has(self, op: str, relation: Relation, values: Values, transaction: bytes) -> bool:
        if op in _OF_ROWS:
            return self._position(relation, values).has(transaction)
        if relation.columns:
            return False  # rows that cannot be applied are reported
        found = {each.has(transaction) for each in self._known}
        if len(found) > 1:
            raise CopyOutdated(
                "it was truncated, dropped or renamed, or changed by statements that were logged without rows"
            )
        return True in found

    def check_update(self, relation: Relation, former: Values, values: Values, transaction: bytes) -> None:
        """Check that an update does not move its row across the copy.

        Raises:
            CopyOutdated: else a keyless dataset would have the row twice, or never.
        """
        before, after = (self._position(relation, each) for each in (former, values))
        if before is not after and before.has(transaction) != after.has(transaction):
            raise CopyOutdated(f"a row got another {self._column.name}", is_whole=True)

    def _position(self, relation: Relation, values: Values) -> History:
        """Return the position of the range that a row is in."""
        name, described = self._column.name, getattr(relation, "described", {})
        if name not in described or described[name].kind != self._column.kind:
            raise CopyOutdated(f"column {name} has another type")
        value = values[relation.columns.index(name)]
        try:
            return self._positions[bisect_right(self._bounds, self._order(value))]
        except (TypeError, ValueError, AttributeError, InvalidOperation):
            raise CopyOutdated(f"a change has no {name}") from None


def _order(column: Column) -> Callable[[Any], Any]:
    """Return the sort key of values, whether from the log or as text."""
    if column.kind == INT:
        return int
    if column.kind == NUMERIC:
        return Decimal
    return _instant if column.kind in TIMES else _digits


def _instant(text: str) -> tuple[str, str]:
    """Return an instant and its fraction of a second, with six digits."""
    whole, _, fraction = text.partition(".")
    return whole, fraction.ljust(6, "0")


def _digits(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex().upper()
