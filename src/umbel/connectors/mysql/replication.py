"""Reading the changes of a table from the binary log.

At first the rows that are there are read in snapshots whose places in the log are known; then the changes after them follow.
They are staged, durably, transaction by transaction.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.lag import SourceLag
from umbel.connectors.mysql.binlog import DISTRIBUTED, REPLACED, STATEMENT, BinlogDecoder
from umbel.connectors.mysql.charsets import codecs_of
from umbel.connectors.mysql.copying import (
    CopiedRanges,
    Copy,
    CopyOutdated,
    CopyReader,
    begin_snapshot,
    divided,
    is_mariadb,
)
from umbel.connectors.mysql.positions import MariaDBHistory, MySQLHistory
from umbel.connectors.mysql.reading import MySQLSource
from umbel.connectors.mysql.requirements import filter_problems, setting_problems, table_problems
from umbel.connectors.mysql.server import MySQLDescription, describe, may, quote, rows
from umbel.connectors.mysql.stream import BinlogStream, StreamError, new_replica
from umbel.connectors.mysql.tables import TableMaps
from umbel.connectors.polling import Poller
from umbel.connectors.sql.following import ANEW, DELAY, PART_ROWS, FollowedSource
from umbel.connectors.sql.parallel import read_ranges
from umbel.connectors.sql.ranges import connections
from umbel.connectors.sql.rows import UNSENT
from umbel.connectors.staging import encoded
from umbel.errors import InvalidValue, Terminal, Transient, UmbelError

if TYPE_CHECKING:
    from pymysql import Connection

log = logging.getLogger("umbel.work")

SESSION = 600.0
"""Seconds after which a stream is begun anew, and what the server needs is checked again: a server searches its log then."""
SAVE = 5.0
"""Seconds between two records of the position while the table does not change."""
MOST_COPIES = 3
"""Copies by ranges that may become outdated before one in one snapshot."""
_PURGED = ("purged", "too old", "Could not find first log file")


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
        if self.options.is_keyed and self.options.keys is None:
            yield "a key of the dataset is computed, so that deletions cannot be followed", "read the keys from columns"
        yield from table_problems(table)
        yield from setting_problems(connection)
        yield from filter_problems(connection, table)
        if not may(connection, "REPLICATION SLAVE", "REPLICATION REPLICA"):
            yield "the user may not replicate", f"GRANT REPLICATION SLAVE ON *.* TO {self.server.login}"

    # ---- the rows that are there at first --------------------------------------------------------------------------

    def load(self, poller: Poller) -> None:
        """Stage the rows of the table, by resumable ranges or in one snapshot."""
        state = self.stage.state()
        replica = state.get("replica") or new_replica()
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            table.require(self.title, names := self.names(table))
            for problem, hint in self._problems(connection, table):
                raise Terminal(f"{self.title}: {problem}", hint=hint)
            copy = self._resumed(connection, table, state)
            if copy is None:
                copy = self._begun(connection, table, {"replica": replica, "outdated": state.get("outdated", 0)})
        columns = {name: table.columns[name] for name in names}
        reader = CopyReader(self.server.revealed(), table.name, columns, None if copy is None else copy.column)
        if copy is None:
            self._load_whole(reader, replica, poller)
        else:
            self._load_ranges(reader, copy, poller)

    def _load_whole(self, reader: CopyReader, replica: int, poller: Poller) -> None:
        token, part, ends = secrets.token_hex(4), self._last_part(), dict[str, Any]()
        with reader.connected() as connection:

            def parts() -> Iterator[tuple[bytes, int]]:
                for found, facts in reader.parts(connection, None):
                    ends.update(facts)
                    if found.height:
                        yield encoded(found), found.height

            if not self.stage_encoded(parts(), reader.columns, token, poller):
                raise self._interrupted()
        position = {"gtid": ends["position"], "at": 0, "part": part}
        self.stage.save({"replica": replica, **position, "snapshot": token, "loaded": True})

    def _last_part(self) -> int:
        last = self.stage.last()
        return last.number if last else 0

    def _begun(self, connection: Connection[Any], table: MySQLDescription, state: Mapping[str, Any]) -> Copy | None:
        """Begin a copy by ranges, None for one in one snapshot."""
        self.stage.save(state)
        keys = self.options.keys if self.options.is_keyed else None
        changed = "it was changed while it was copied" if state["outdated"] >= MOST_COPIES else ""
        found = changed or divided(connection, table, keys, connections())
        if isinstance(found, str):
            log.info("%s: the rows that exist are read by one connection: %s", self.title, found)
            return None
        position = begin_snapshot(self.server, connection, table.name)
        copy = Copy(secrets.token_hex(4), position, *found)
        log.info(
            "%s: the rows that exist are read in %d ranges by %d connections", self.title, len(copy.left), connections()
        )
        self.stage.save({**state, "gtid": position, "at": 0, "part": self._last_part(), "copy": copy.plain})
        return copy

    def _resumed(self, connection: Connection[Any], table: MySQLDescription, state: Mapping[str, Any]) -> Copy | None:
        """Return the interrupted copy; None for none, or if it cannot be completed."""
        if "copy" not in state:
            return None
        copy = Copy.of(state["copy"])
        try:
            if table.columns.get(copy.column.name) != copy.column:
                raise CopyOutdated(f"column {copy.column.name} was changed")
            history = _history_of(connection)
            for position in {state["gtid"], *copy.positions}:
                self._check_history(connection, history(position))
            self._check_stream(history(self._position(state)[0]), state["replica"])
        except (CopyOutdated, Terminal) as error:
            log.warning("%s: the first copy begins anew: %s", self.title, error)
            return None
        log.info("%s: the first copy goes on with %d ranges", self.title, len(copy.left))
        return copy

    def _load_ranges(self, reader: CopyReader, copy: Copy, poller: Poller) -> None:
        """Stage the ranges that are left, then the changes since each of them."""
        self._copy_ranges(reader, copy, poller)
        try:
            self._stream(poller, copy)
        except CopyOutdated as error:
            state = self.stage.state()
            times = MOST_COPIES if error.is_whole else state["outdated"] + 1
            self.stage.save({"replica": state["replica"], "outdated": times})
            raise Transient(f"{self.title}: the first copy begins anew: {error}") from None
        state = self.stage.state()
        del state["copy"], state["outdated"]
        self.stage.save({**state, "snapshot": copy.snapshot, "spans": copy.spans, "loaded": True})

    def _copy_ranges(self, reader: CopyReader, copy: Copy, poller: Poller) -> None:
        facts = {"columns": [column.plain for column in reader.columns.values()], "snapshot": copy.snapshot}
        numbers, ranges = list[int](), copy.left
        found = read_ranges(reader, ranges, connections(), lambda: poller.is_stopping) if ranges else ()
        for content, height, ends in found:
            if height:
                numbers.append(self.stage.append_encoded(content, height, facts).number)
            if ends:
                copy.complete(ends["position"], numbers)
                self.stage.save({**self.stage.state(), "copy": copy.plain})
                poller.progressed(SourceLag(rows=copy.rows_left))
                numbers.clear()
        if copy.left:
            raise self._interrupted()

    def _interrupted(self) -> Transient:
        return Transient(f"{self.title}: the first copy was interrupted")

    # ---- the changes after that ------------------------------------------------------------------------------------

    def follow(self, poller: Poller) -> None:
        self._stream(poller, None)

    def _stream(self, poller: Poller, copy: Copy | None) -> None:
        """Stage the changes for a while.

        Args:
            poller: of the source.
            copy: the first one, of whose ranges the changes are staged up to the last; None after it.
        """
        state = self.stage.state()
        gtid, at = self._position(state)
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            for problem, hint in self._problems(connection, table):
                raise Terminal(f"{self.title}: {problem}", hint=hint)
            history_of = _history_of(connection)
            history = history_of(gtid)
            self._check_history(connection, history)
            copied = None if copy is None else CopiedRanges(copy, history_of)
            is_folded = rows(connection, "SELECT @@lower_case_table_names")[0][0] != "0"
            names = None if self.options.columns is None else self.names(table)
            maps = TableMaps(self.title, table, names, codecs_of(connection), is_folded=is_folded)
        with self.server.connect() as connection:
            try:
                stream = BinlogStream(connection, history, state["replica"])
                keys, clock = self.options.keys or (), lambda: stream.server_time
                decoder = BinlogDecoder(maps, keys, self.deletions, history, at, clock, copied)
                if copied is None:
                    self._receive(stream, decoder, poller)
                else:
                    self._catch_up(stream, decoder, poller, copied)
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

    def _catch_up(self, stream: BinlogStream, decoder: BinlogDecoder, poller: Poller, copied: CopiedRanges) -> None:
        """Stage the changes up to the last position of a range."""
        facts = {"snapshot": copied.snapshot}
        while not copied.is_passed(decoder.history):
            if poller.is_stopping:
                raise self._interrupted()
            for event in stream.next(1.0):
                decoder.feed(event)
                age = stream.server_time - 1 - event.timestamp if event.timestamp else 0.0
                poller.progressed(SourceLag(seconds=max(0.0, age)))
                if decoder.rows >= PART_ROWS and not decoder.is_open:
                    self._stage(decoder, facts)
        self._stage(decoder, facts)
        self._save(decoder)

    def _stage(self, decoder: BinlogDecoder, facts: Mapping[str, Any] | None = None) -> None:
        for batch in decoder.batches():
            columns = [column.plain for column in batch.columns.values()]
            self.stage.append(batch.rows, {"columns": columns, "gtid": batch.history, "at": batch.at, **(facts or {})})

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

    def _check_stream(self, history: MariaDBHistory | MySQLHistory, replica: int) -> None:
        """Check that the server still has the changes after a position."""
        with self.server.connect() as connection:
            try:
                next(BinlogStream(connection, history, replica).next(1.0), None)
            except StreamError as error:
                raise self._translated(error) from None

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


def _history_of(connection: Connection[Any]) -> type[MariaDBHistory | MySQLHistory]:
    return MariaDBHistory if is_mariadb(connection) else MySQLHistory
