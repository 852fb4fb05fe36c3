"""Reading the changes of a table from the binary log.

At first the rows that are there are read in a snapshot whose place in the log is known; then the changes after it follow. They
are staged, durably, transaction by transaction.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.lag import SourceLag
from umbel.connectors.mysql.binlog import DISTRIBUTED, REPLACED, STATEMENT, BinlogDecoder
from umbel.connectors.mysql.columns import frame, read_as
from umbel.connectors.mysql.positions import MariaDBHistory, MySQLHistory
from umbel.connectors.mysql.reading import MySQLSource, pieces
from umbel.connectors.mysql.server import MySQLDescription, describe, may, quote, rows
from umbel.connectors.mysql.stream import BinlogStream, StreamError
from umbel.connectors.mysql.tables import TableMaps
from umbel.connectors.polling import Poller
from umbel.connectors.sql.following import ANEW, DELAY, PART_ROWS, FollowedSource
from umbel.connectors.sql.rows import UNSENT
from umbel.errors import InvalidValue, Terminal, Transient, UmbelError

if TYPE_CHECKING:
    from pymysql import Connection

log = logging.getLogger("umbel.work")

SESSION = 600.0
"""Seconds after which a stream is begun anew, and what the server needs is checked again: a server searches its log then."""
SAVE = 5.0
"""Seconds between two records of the position while the table does not change."""
LOCK_WAIT = 5
"""Seconds that MySQL waits for writers of the table before the first copy."""
REQUIRED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
OF_MYSQL = {"gtid_mode": "ON", "binlog_row_value_options": ""}
CODECS = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf-8"),
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis-620",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
}
"""The Python names of character sets, where they differ."""
_PURGED = ("purged", "too old", "Could not find first log file")
_CASCADE = re.compile(
    r"CONSTRAINT\s+`[^`]*`\s+FOREIGN KEY.*?ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)", re.IGNORECASE
)


@dataclass(frozen=True)
class BinlogSource(MySQLSource, FollowedSource):
    """A table whose changes are read."""

    position_fact: ClassVar[str] = "gtid"
    refused: ClassVar[Mapping[str, str]] = {
        UNSENT: "the log lacks values of the row; on the server: SET GLOBAL binlog_row_image = 'FULL'",
        REPLACED: "the table {table} was dropped, renamed or replaced: the rows read before stay in the dataset; "
        + ANEW,
        STATEMENT: "rows of {table} were changed by a statement that was logged without them; on the server: SET GLOBAL "
        "binlog_format = 'ROW', and in no session another one; " + ANEW,
        DISTRIBUTED: "a row was changed by an XA transaction in two phases, which is not applied",
    }

    def examine(self) -> None:
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            table.require(self.title, names := self.names(table))
            listed = ", ".join(map(quote, names))
            rows(connection, f"SELECT {listed} FROM {table.name} LIMIT 0")  # noqa: S608  names are quoted
            for problem, hint in self._problems(connection, table):
                raise InvalidValue(f"{self.title}: {problem}", hint=hint)

    # ---- what the server needs -------------------------------------------------------------------------------------

    def _problems(self, connection: Connection[Any], table: MySQLDescription) -> Iterator[tuple[str, str]]:
        """Yield what keeps the changes of the table from being read, and the remedies."""
        if table.is_view:
            yield f"{table.name} is a view, and only tables have changes", "read it by a cursor"
        if self.options.is_keyed and self.options.keys is None:
            yield "a key of the dataset is computed, so that deletions cannot be followed", "read the keys from columns"
        engine = re.search(r"\bENGINE=(\w+)", table.definition)
        if engine and engine[1].lower() not in {"innodb", "rocksdb"}:
            yield (
                f"{table.name} has the engine {engine[1]}, which has no transactions",
                f"ALTER TABLE {table.name} ENGINE = InnoDB",
            )
        if (found := _CASCADE.search(table.definition)) is not None:
            yield (
                f"changes that foreign keys make are not in the binary log, and {table.name} has: {found[0]}",
                "make the constraint RESTRICT and delete or change these rows by statements, or read the table by a cursor",
            )
        yield from self._settings(connection)
        if not may(connection, "REPLICATION SLAVE", "REPLICATION REPLICA"):
            yield "the user may not replicate", f"GRANT REPLICATION SLAVE ON *.* TO {self.server.login}"

    def _settings(self, connection: Connection[Any]) -> Iterator[tuple[str, str]]:
        required = REQUIRED if _is_mariadb(connection) else {**REQUIRED, **OF_MYSQL}
        listed = ", ".join(f"'{name}'" for name in required)
        query = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})"
        found = {str(name): str(value) for name, value in rows(connection, query)}
        for name, value in required.items():
            actual = found.get(name, value if name in OF_MYSQL and not value else None)
            if actual is None:
                yield (
                    f"the server has no {name}",
                    "changes are read from MariaDB 10.5 or MySQL 8.0 on; read the table by a cursor",
                )
            elif actual.upper() != value:
                line = f"{name} = {value}" if value != "ON" or name != "log_bin" else "log_bin"
                where = f"in the server's configuration: {line}; then restart it"
                yield (
                    f"{name} of the server is '{actual}'",
                    where if name in {"log_bin", "gtid_mode"} else f"SET GLOBAL {name} = '{value}', and {where}",
                )

    # ---- the rows that are there at first --------------------------------------------------------------------------

    def load(self, poller: Poller) -> None:
        state = self.stage.state()
        replica, token = state.get("replica") or 1 + secrets.randbelow((1 << 32) - 2), secrets.token_hex(4)
        self.stage.save({"replica": replica})
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            table.require(self.title, names := self.names(table))
            for problem, hint in self._problems(connection, table):
                raise Terminal(f"{self.title}: {problem}", hint=hint)
            columns = {name: table.columns[name] for name in names}
            with self._snapshot(connection, table) as gtid:
                pass
            listed = ", ".join(read_as(column, quote(name)) for name, column in columns.items())
            found = pieces(connection, f"SELECT {listed} FROM {table.name}")  # noqa: S608  names are quoted
            frames = (frame(each, list(columns.values())) for each in found)
            if not self.stage_copy(frames, columns, token, poller):
                raise Transient(f"{self.title}: the first copy was interrupted")
        self.stage.save({"replica": replica, "gtid": gtid, "at": 0, "part": 0, "snapshot": token, "loaded": True})

    @contextmanager
    def _snapshot(self, connection: Connection[Any], table: MySQLDescription) -> Iterator[str]:
        """Begin a snapshot; return the transactions that it has."""
        rows(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if _is_mariadb(connection):
            rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = {str(name): value for name, value in rows(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
            file, offset = (status[f"Binlog_snapshot_{each}"] for each in ("file", "position"))
            (found,) = rows(connection, f"SELECT BINLOG_GTID_POS('{file}', {int(offset)})")[0]
            if found is None:
                raise Transient(
                    f"{self.title}: the snapshot was not found in the binary log: it was purged meanwhile, or has an event above "
                    "max_allowed_packet",
                    hint="FLUSH BINARY LOGS",
                )
            yield found
            return
        with self.server.connect() as other:  # its lock keeps others from changing the table meanwhile
            rows(other, f"SET lock_wait_timeout = {LOCK_WAIT}")
            rows(other, f"LOCK TABLES {table.name} READ")
            rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            yield str(rows(other, "SELECT @@global.gtid_executed")[0][0])

    # ---- the changes after that ------------------------------------------------------------------------------------

    def follow(self, poller: Poller) -> None:
        state = self.stage.state()
        gtid, at = self._position(state)
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            for problem, hint in self._problems(connection, table):
                raise Terminal(f"{self.title}: {problem}", hint=hint)
            is_mariadb = _is_mariadb(connection)
            history = MariaDBHistory(gtid) if is_mariadb else MySQLHistory(gtid)
            self._check_history(connection, history)
            is_folded = rows(connection, "SELECT @@lower_case_table_names")[0][0] != "0"
            maps = TableMaps(self.title, table, self.names(table), _codecs(connection), is_folded=is_folded)
        with self.server.connect() as connection:
            try:
                stream = BinlogStream(connection, history, state["replica"])
                decoder = BinlogDecoder(
                    maps, self.options.keys or (), self.deletions, history, at, lambda: stream.server_time
                )
                self._receive(stream, decoder, poller)
            except StreamError as error:
                raise self._translated(error) from None

    def _receive(self, stream: BinlogStream, decoder: BinlogDecoder, poller: Poller) -> None:
        until, saved, due = time.monotonic() + SESSION, time.monotonic(), None
        while True:
            for event in stream.next(DELAY if decoder.has_changes else 1.0):
                decoder.feed(event)
                if decoder.rows >= PART_ROWS and not decoder.is_open:
                    self._stage(decoder)
                age = stream.server_time - 1 - event.timestamp if event.timestamp else 0.0
                poller.progressed(SourceLag(seconds=max(0.0, age)))
            now = time.monotonic()
            if not stream.has_more and not decoder.has_changes:
                poller.progressed(SourceLag(seconds=0.0))
            due = (due or now + DELAY) if decoder.has_changes else None
            if due is not None and now >= due:
                self._stage(decoder)
                due = None
            if not decoder.has_changes and now > saved + SAVE:
                self._save(decoder)
                saved = now
            if decoder.has_changes or (decoder.is_open and not poller.is_stopping):
                continue
            if now > until or poller.is_stopping or not self.has_room(poller):
                return

    def _stage(self, decoder: BinlogDecoder) -> None:
        for batch in decoder.batches():
            columns = [column.plain for column in batch.columns.values()]
            self.stage.append(batch.rows, {"columns": columns, "gtid": batch.history, "at": batch.at})

    def _save(self, decoder: BinlogDecoder) -> None:
        """Note the position: transactions of other tables may be forgotten by the server."""
        state, last = self.stage.state(), self.last_changes()
        part = last.number if last else 0
        self.stage.save({**state, "gtid": decoder.history.text, "at": decoder.at, "part": part})

    def _position(self, state: Mapping[str, Any]) -> tuple[str, int]:
        """Return the transactions that have been read, and the instant of the last change."""
        last = self.last_changes()
        facts = last.facts if last and last.number > state["part"] else state
        return facts["gtid"], facts["at"]

    # ---- what may have happened to the server ----------------------------------------------------------------------

    def _check_history(self, connection: Connection[Any], history: MariaDBHistory | MySQLHistory) -> None:
        """Refuse a server that lacks transactions that were read."""
        if isinstance(history, MariaDBHistory):
            (now,) = rows(connection, "SELECT @@global.gtid_binlog_pos")[0]
            missing = history.missing_in(MariaDBHistory(now))
        else:
            missing, now = rows(
                connection, "SELECT GTID_SUBTRACT(%s, @@global.gtid_executed), @@global.gtid_executed", history.text
            )[0]
        if missing:
            raise self._other_server(f"it is at {now or 'the beginning'}, and lacks {missing}, which was read already")

    def _other_server(self, what: str) -> Terminal:
        return Terminal(
            f"{self.title}: the server has another history than the rows came from: {what}. Its binary log was reset, it was "
            "restored from a backup, or it is another server",
            hint=f"correct host=, or {ANEW}",
        )

    def _translated(self, error: StreamError) -> UmbelError:
        text = " ".join(error.message.split())
        if "same server" in text or error.code != _FATAL:
            return Transient(f"{self.title}: the stream ended: {text}")
        if any(each in text for each in _PURGED):
            return Terminal(
                f"{self.title}: the position in the binary log is lost: the server deleted changes that were not read: {text}",
                hint=f"raise binlog_expire_logs_seconds on the server; {ANEW}",
            )
        if "not in the master's binlog" in text or "has more GTIDs" in text:
            return self._other_server(text)
        return Terminal(f"{self.title}: the server cannot send its binary log: {text}", hint=ANEW)


_FATAL = 1236
"""The error of a server that cannot send its log from the position on."""


def _is_mariadb(connection: Connection[Any]) -> bool:
    return "MariaDB" in str(rows(connection, "SELECT VERSION()")[0][0])


def _codecs(connection: Connection[Any]) -> dict[int, str]:
    """Return the Python names of character sets, by the numbers of their collations."""
    import codecs

    import pymysql

    found = list(
        rows(connection, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL")
    )
    try:
        query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        found += rows(connection, f"{query} WHERE ID IS NOT NULL")
    except pymysql.MySQLError:
        pass  # only MariaDB has these, for collations that several character sets share
    known = dict[int, str]()
    for number, name in found:
        try:
            known[int(number)] = codecs.lookup(CODECS.get(str(name), str(name))).name
        except LookupError:
            continue
    return known
