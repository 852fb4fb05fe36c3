"""The events of the binary log: decoded to the changes of one table.

Format: "Binary log event" of MySQL's source documentation, and the pages on replication of MariaDB's manual.
"""

from __future__ import annotations

import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from umbel.connectors.mysql.copying import CopiedRanges
from umbel.connectors.mysql.positions import History
from umbel.connectors.mysql.stream import FORMAT, MARIADB_GTID, Event, lenenc
from umbel.connectors.mysql.tables import Layout, MappedTable, TableMaps
from umbel.connectors.sql.changes import Deletions, Relation, Transactions, Values
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import DELETE, INSERT, REDUCED, TRUNCATE, UNSENT, UPDATE
from umbel.errors import Terminal

REPLACED, STATEMENT, DISTRIBUTED = "r", "s", "x"
"""Kinds of changes that cannot be applied: the table was dropped or renamed, rows were changed by a statement that was logged as
such, and rows were changed by a transaction in two phases."""
QUERY, XID, TABLE_MAP, INCIDENT, GTID, ANONYMOUS, XA, PARTIAL, TAGGED = 2, 16, 19, 26, 33, 34, 38, 39, 42
QUERY_COMPRESSED = 165
_OPS = {
    **dict.fromkeys((23, 30, 166, 169), INSERT),
    **dict.fromkeys((24, 31, 167, 170), UPDATE),
    **dict.fromkeys((25, 32, 168, 171), DELETE),
}
_COMPRESSED = frozenset({166, 167, 168, 169, 170, 171})
_WITH_EXTRA = frozenset({30, 31, 32, 169, 170, 171})
_STANDALONE = 1
_COMMENT = re.compile(r"/\*(?!!|M!).*?\*/|/\*M?!\d*|\*/|--\s[^\n]*|#[^\n]*", re.DOTALL)
_REMOVAL = re.compile(r"truncate\b", re.IGNORECASE)
_REDUCTION = re.compile(r"alter\b.*\b(drop|truncate|exchange|convert)\s+partition\b", re.IGNORECASE | re.DOTALL)
_REPLACEMENT = re.compile(
    r"drop\s+(table|database|schema)\b|rename\s+table\b|create\s+or\s+replace\s+table\b|alter\b.*\brename\s+(?!column|index|key)",
    re.IGNORECASE | re.DOTALL,
)
_MANIPULATION = re.compile(r"(insert|update|delete|replace|load|merge|with|call)\b", re.IGNORECASE)
_SAVEPOINT = re.compile(r"(savepoint|rollback\s+to(?:\s+savepoint)?)\s+(.*)", re.IGNORECASE | re.DOTALL)
_NO_RELATION = Relation((), lambda _, values: pl.Series(values), is_full=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of whole transactions, under one description of the table.

    Args:
        rows: the changes.
        columns: the columns of the table.
        history: the transactions that have been read after them.
        at: the instant of the last of them.
    """

    rows: pl.DataFrame
    columns: Mapping[str, Column]
    history: str
    at: int


class BinlogDecoder(Transactions):
    """Decodes events.

    Args:
        maps: the descriptions of the table in the stream.
        keys: the names of the columns of the dataset's keys; none for a keyless one.
        deletions: the last ones before.
        history: the transactions that have been read.
        at: the instant of the last change before.
        clock: returns the time by the server's clock.
        copied: the changes that the first copy has already, which are left out.
    """

    def __init__(
        self,
        maps: TableMaps,
        keys: Sequence[str],
        deletions: Deletions,
        history: History,
        at: int = 0,
        clock: Callable[[], float] = time.time,
        copied: CopiedRanges | None = None,
    ) -> None:
        super().__init__(keys, deletions)
        self._copied = copied
        self._maps, self._clock, self.history, self.at = maps, clock, history, at
        self._current: MappedTable | None = None
        self._sealed: list[Batch] = []
        self._identifier: tuple[bytes, int] | None = None
        self._is_alone, self._committed = False, 0
        self._savepoints: dict[str, int] = {}

    @property
    def has_changes(self) -> bool:
        """True if changes wait to be taken."""
        return bool(self.rows or self._sealed)

    def batches(self) -> list[Batch]:
        """Return the changes that wait, and forget them."""
        self._seal()
        found, self._sealed = self._sealed, []
        return found

    def feed(self, event: Event) -> None:
        """Decode one event.

        Raises:
            Terminal: it cannot be decoded, and nothing after it either.
        """
        kind = event.kind
        if kind in _OPS:
            table = self._maps.table(event.data)
            if table is not None:
                self._rows(_OPS[kind], event, table)
        elif kind == TABLE_MAP:
            self._maps.add(event.data)
        elif kind in {GTID, ANONYMOUS, MARIADB_GTID}:
            self._begin(event)
        elif kind == XID:
            self._end(event)
        elif kind in {QUERY, QUERY_COMPRESSED}:
            self._query(event)
        elif kind == XA:
            if not event.data[0]:
                self.refuse(DISTRIBUTED)
            self._end(event)
        elif kind == FORMAT:
            self._maps.forget()
        elif kind in _HOPELESS:
            message, hint = _HOPELESS[kind]
            raise Terminal(message, hint=hint)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> None:
        self.begin()
        self._savepoints = {}
        self._identifier = None if event.kind == ANONYMOUS else (event.data, event.server_id)
        if event.kind == MARIADB_GTID:
            self._is_alone, self._committed = bool(event.data[12] & _STANDALONE), 0
        else:
            # until a BEGIN follows; the µs of the commit are in servers of MySQL since 8.0
            self._is_alone = True
            self._committed = (
                int.from_bytes(event.data[42:49], "little") & (1 << 55) - 1 if len(event.data) >= 49 else 0
            )

    def _end(self, event: Event) -> None:
        """Commit the open transaction."""
        if self._copied is not None and self._identifier is not None and self._open:
            self._open = self._copied.without(self._open, self._identifier[0])
        if self._open:
            self._change_table()
            self.at = max(self._instant(event), self.at + 1)
        self.commit(self.at)
        if self._identifier is not None:
            self.history.add(*self._identifier)

    def _change_table(self) -> None:
        """Seal what waits if the open transaction has the table under another description."""
        tables = (relation for _, relation, _ in self._open if isinstance(relation, MappedTable))
        table = next(tables, None)
        if table is not None and table is not self._current:
            if self._current is not None and table.described != self._current.described:
                self._seal()
            self._current = table

    def _seal(self) -> None:
        if self.rows:
            columns = self._current.described if self._current is not None else {}
            self._sealed.append(Batch(self.take(columns), columns, self.history.text, self.at))

    def _instant(self, event: Event) -> int:
        """Return the instant of a commit; most servers tell the second only."""
        now = int(self._clock() * 1_000_000)
        if self._committed:
            return min(self._committed, now + _HOUR)
        second = event.timestamp * 1_000_000
        return min(max(second, now), second + 999_999, now + _HOUR)

    def update(self, op: str, relation: Relation, former: Values, values: Values) -> None:
        if self._copied is not None and self._identifier is not None and not self._keys:
            self._copied.check_update(relation, former, values, self._identifier[0])
        super().update(op, relation, former, values)

    # ---- statements ------------------------------------------------------------------------------------------------

    def _query(self, event: Event) -> None:
        database, sql = _statement(event)
        word = sql[:9].upper()
        if word.startswith(("BEGIN", "START TRA", "XA START")):
            self._is_alone = False
        elif word.startswith("COMMIT"):
            self._end(event)
        elif word == "ROLLBACK" and not sql[8:].strip(" ;"):
            self.undo()
            self._end(event)
        elif (found := _SAVEPOINT.match(sql)) is not None:
            if found[1].lower() == "savepoint":
                self._savepoints[found[2]] = len(self._open)
            else:
                del self._open[self._savepoints.get(found[2], len(self._open)) :]
        else:
            self._judge(database, sql)
            if self._is_alone:
                self._end(event)

    def _judge(self, database: str, sql: str) -> None:
        """Note a statement that changes the table, or its rows without events of rows."""
        self._maps.note_versioning(sql, database)
        kinds = (
            (_REMOVAL, TRUNCATE),
            (_REDUCTION, REDUCED),
            (_REPLACEMENT, REPLACED),
            (_MANIPULATION, STATEMENT),
        )
        kind = next((kind for form, kind in kinds if form.match(sql)), None)
        if kind is not None and self._maps.is_named_in(sql, database):
            self.add(kind, _NO_RELATION, ())

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _rows(self, op: str, event: Event, table: MappedTable) -> None:
        data, at = event.data, 8
        if event.kind in _WITH_EXTRA:
            at += struct.unpack_from("<H", data, at)[0]
        count, at = lenenc(data, at)
        size, images = (count + 7) // 8, 2 if op == UPDATE else 1
        layouts = [table.layout(data[at + size * each : at + size * (each + 1)]) for each in range(images)]
        at += size * images
        if event.kind in _COMPRESSED:
            data, at = inflated(data[at:]), 0
        is_complete = layouts[-1].is_complete
        rows = _rows_of(data, at, layouts)
        if op != UPDATE:
            for values in rows:
                if not table.is_past(values):  # the former values of a row, or their removal
                    self.add(op if is_complete else UNSENT, table, values)
            return
        for former in rows:
            values = next(rows)
            if not is_complete:
                values = layouts[-1].filled(former, values)
            is_whole = is_complete or layouts[0].is_complete
            self._updated(UPDATE if is_whole else UNSENT, table, former, values)

    def _updated(self, op: str, table: MappedTable, former: Values, values: Values) -> None:
        """Add an update, which ends or begins a row in a table with system versioning."""
        was_past, is_past = table.is_past(former), table.is_past(values)
        if not was_past and not is_past:
            self.update(op, table, former, values)
        elif not was_past:
            self.add(DELETE, table, former)
        elif not is_past:
            self.add(INSERT if op == UPDATE else op, table, values)


def _rows_of(data: bytes, at: int, layouts: Sequence[Layout]) -> Iterator[Values]:
    """Yield the rows of an event, whose layouts take turns."""
    end = len(data)
    while at < end:
        for layout in layouts:
            nulls = int.from_bytes(data[at : at + layout.null_bytes], "little")
            at += layout.null_bytes
            values: list[Any] = [None] * layout.width
            if nulls:
                for bit, (place, decode) in enumerate(layout.readers):
                    if not nulls >> bit & 1:
                        values[place], at = decode(data, at)
            else:
                for place, decode in layout.readers:
                    values[place], at = decode(data, at)
            yield values


def inflated(data: bytes) -> bytes:
    """Return data that MariaDB compressed: the bytes of the length, the length, and the data."""
    return zlib.decompress(data[1 + (data[0] & 7) :])


def _statement(event: Event) -> tuple[str, str]:
    """Return the default database and the text of a statement, without comments."""
    _, _, length, _, status = struct.unpack_from("<IIBHH", event.data)
    begin = 13 + status
    database, text = event.data[begin : begin + length], event.data[begin + length + 1 :]
    if event.kind == QUERY_COMPRESSED:
        text = inflated(text)
    return database.decode(errors="replace"), _COMMENT.sub(" ", text.decode(errors="replace")).strip()


_HOUR = 3_600_000_000
_HOPELESS = {
    INCIDENT: (
        "the server reports that its binary log lacks changes (an incident)",
        "commit the dataset as a new version",
    ),
    PARTIAL: (
        "changes of JSON values are logged in parts",
        "SET GLOBAL binlog_row_value_options = ''; then commit a new version",
    ),
    TAGGED: (
        "a transaction has an identifier with a tag, which cannot be read",
        "do not set gtid_next to AUTOMATIC:tag",
    ),
}
"""Events that cannot be read, as messages and hints."""
