"""Reading the changes of a table by logical replication.

At first the rows that are there are copied in the snapshot that belongs to the start of a new replication slot; then the slot's
changes follow. They are staged, durably, transaction by transaction, before the slot may forget them.
"""

from __future__ import annotations

import logging
import re
import secrets
import struct
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller
from umbel.connectors.postgres.copying import PostgresSource
from umbel.connectors.postgres.pages import PageRanges, page_ranges
from umbel.connectors.postgres.pgoutput import EPOCH_2000, Decoder
from umbel.connectors.postgres.server import SLOTS_HINT, PostgresDescription, describe
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.following import ANEW, DELAY, PART_ROWS, SESSION, FollowedSource
from umbel.connectors.sql.parallel import read_ranges
from umbel.connectors.sql.ranges import connections
from umbel.connectors.sql.readiness import wait_readable, wait_writable
from umbel.connectors.sql.rows import UNSENT
from umbel.connectors.staging import encoded
from umbel.errors import InvalidValue, Terminal, Transient

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("umbel.work")

CONFIRM = 5.0
"""Seconds between two reports of the position."""
DROP = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"


@dataclass(frozen=True)
class ReplicatedSource(PostgresSource, FollowedSource):
    """A table whose changes are read."""

    position_fact: ClassVar[str] = "lsn"
    refused: ClassVar[Mapping[str, str]] = {
        UNSENT: "a large value that did not change was not sent; on the server: ALTER TABLE {table} REPLICA IDENTITY FULL"
    }

    def examine(self) -> None:
        with self.server.connect() as connection:
            table = describe(connection, self.title, self.table)
            from psycopg import sql

            names = self.names(table)
            table.require(self.title, names)
            listed = sql.SQL(", ").join(map(sql.Identifier, names))
            connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(listed, sql.SQL(table.name)))
            for problem, hint in self._problems(connection, table):
                raise InvalidValue(f"{self.title}: {problem}", hint=hint)

    def _problems(self, connection: psycopg.Connection[Any], table: PostgresDescription) -> Iterator[tuple[str, str]]:
        """Yield what keeps the server from replicating the table, and the remedies."""
        if table.kind not in {"r", "p"}:
            yield f"{table.name} is no table, and only tables have changes", "read it by a cursor"
        level = _value(connection, "SELECT current_setting('wal_level')")
        if level != "logical":
            yield (
                f"wal_level of the server is '{level}'",
                "ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
            )
        if not _value(connection, "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"):
            yield "the user may not replicate", f"ALTER ROLE {self.server.login} REPLICATION"
        yield from self._identity_problems(table)
        found = _value(connection, "SELECT count(*) FROM pg_publication WHERE pubname = %s", [self.publication])
        create = (
            f"CREATE PUBLICATION {self.publication} FOR TABLE {table.name} WITH (publish_via_partition_root = true)"
        )
        may = """SELECT pg_has_role(relowner, 'USAGE') AND has_database_privilege(current_database(), 'CREATE')
                 FROM pg_class WHERE oid = %s::oid"""
        if not found and not _value(connection, may, [table.oid]):
            yield "the user may not publish the table", f"as its owner: {create}"
        yield from self._slot_problems(connection)

    def _slot_problems(self, connection: psycopg.Connection[Any]) -> Iterator[tuple[str, str]]:
        """Yield that the server has no slot left, unless this source has its own."""
        query = """SELECT count(*) < current_setting('max_replication_slots')::int
                       OR bool_or(starts_with(slot_name::text, %s)) FROM pg_replication_slots"""
        if not _value(connection, query, [self._slots]):
            yield "all replication slots of the server are in use (max_replication_slots)", SLOTS_HINT

    def _identity_problems(self, table: PostgresDescription) -> Iterator[tuple[str, str]]:
        full = f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"
        identity = {name for name, column in table.columns.items() if column.is_identity}
        keys = self.options.keys
        if self.options.is_keyed and keys is None:
            yield "a key of the dataset is computed, so that deletions cannot be followed", "read the keys from columns"
        missing = [name for name in keys or () if name not in identity]
        if missing or not identity:
            named = ", ".join(missing) or "any column"
            yield f"updates and deletions in {table.name} do not say {named}: it is not in the replica identity", full

    @property
    def publication(self) -> str:
        """The name of the table's publication."""
        return f"umbel_{_plain(self.table)}"[:63]

    @property
    def _slots(self) -> str:
        """The beginning of the names of its replication slots."""
        return f"umbel_{_plain(self.options.dataset)[:40]}_"

    def retire(self) -> None:
        """Drop the replication slot: the server would retain its log for it."""
        state = self.stage.state()
        if "slot" not in state or state.get("is_retired"):
            return
        with self.server.connect(autocommit=True) as connection:
            connection.execute(DROP, [state["slot"]])
        self.stage.save({**state, "is_retired": True})
        log.info("%s: replication slot %s was dropped: no commit has the source any more", self.title, state["slot"])

    def staged_key(self, values: Sequence[Any]) -> tuple[Hashable, ...]:
        return tuple(None if each is None else each.encode() for each in values)

    # ---- the rows that are there at first --------------------------------------------------------------------------

    def load(self, poller: Poller) -> None:
        """Create a slot and stage the rows of its snapshot.

        It is begun anew if it is interrupted.
        """
        state = self.stage.state()
        slot = state.get("slot") or f"{self._slots}{secrets.token_hex(4)}"
        self.stage.save({"slot": slot})
        with self.server.connect(autocommit=True) as connection:
            table = describe(connection, self.title, self.table)
            table.require(self.title, names := self.names(table))
            self._publish(connection, table)
            connection.execute(DROP, [slot])
        with self.server.connect(autocommit=True, replication="database") as replication:
            system, tli = _row(replication, "IDENTIFY_SYSTEM")[:2]
            _, lsn, snapshot, _ = _row(replication, f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT")
            columns, token = {name: table.columns[name] for name in names}, secrets.token_hex(4)
            if not self._copy(table, columns, snapshot, token, poller):
                raise Transient(f"{self.title}: the first copy was interrupted")
        at = _number(lsn)
        facts = {"slot": slot, "system": system, "timeline": tli, "lsn": at, "confirmed": at, "snapshot": token}
        self.stage.save({**facts, "loaded": True})

    def _publish(self, connection: psycopg.Connection[Any], table: PostgresDescription) -> None:
        from psycopg import sql

        if not _value(connection, "SELECT count(*) FROM pg_publication WHERE pubname = %s", [self.publication]):
            create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
            connection.execute(create.format(sql.Identifier(self.publication), sql.SQL(table.name)))
        self._check_publication(connection, table)

    def _copy(
        self, table: PostgresDescription, columns: Mapping[str, Column], snapshot: str, token: str, poller: Poller
    ) -> bool:
        reader, count = PageRanges(self.server.revealed(), table.name, columns, snapshot), connections()
        with reader.connected() as connection:
            ranges = page_ranges(connection, table, count)
            if not ranges:
                parts = ((encoded(rows), rows.height) for rows, _ in reader.parts(connection, None))
                return self.stage_encoded(parts, columns, token, poller)
        found = read_ranges(reader, ranges, count, lambda: poller.is_stopping)
        return self.stage_encoded(((content, rows) for content, rows, _ in found), columns, token, poller)

    # ---- the changes after that ------------------------------------------------------------------------------------

    def follow(self, poller: Poller) -> None:
        state = self.stage.state()
        with self.server.connect(autocommit=True) as connection:
            table = describe(connection, self.title, self.table)
            self._check_publication(connection, table)
            flushed = self._check_slot(connection, state)
            end = _number(_value(connection, "SELECT pg_current_wal_lsn()::text"))
        with self.server.connect(autocommit=True, replication="database") as replication:
            start = self._position(state)
            self._check_system(found := _row(replication, "IDENTIFY_SYSTEM"), state, start)
            self._check_history(replication, int(found[1]), state, max(start, flushed))
            stream = Stream(replication, state["slot"], self.publication, start, end)
            columns = {name: table.columns[name] for name in self.names(table) if name in table.columns}
            decoder = Decoder(self.options.keys or (), self.deletions, int(table.oid))
            self._receive(stream, decoder, columns, poller)

    def _receive(self, stream: Stream, decoder: Decoder, columns: Mapping[str, Column], poller: Poller) -> None:
        facts, until, due = {"columns": [column.plain for column in columns.values()]}, time.monotonic() + SESSION, None
        while True:
            message = stream.next(DELAY if decoder.rows else 1.0)
            if message is not None:
                decoder.feed(message)
            poller.progressed(stream.lag(decoder, is_idle=message is None and not decoder.rows))
            if decoder.is_open:
                stream.confirm(0)  # the server disconnects whoever is silent
                continue
            now = time.monotonic()
            due = (due or now + DELAY) if decoder.rows else None
            if due is not None and (decoder.rows >= PART_ROWS or now >= due):
                part = decoder.take(columns)
                self.stage.append(part, {**facts, "lsn": decoder.lsn})
                stream.confirm(decoder.lsn, at_once=True)
                due = None
            elif not decoder.rows:
                self._confirm(stream, max(decoder.lsn, stream.idle_at))
            if not decoder.rows and (now > until or poller.is_stopping or not self.has_room(poller)):
                return

    def _confirm(self, stream: Stream, lsn: int) -> None:
        """Confirm a position that no staged change has, if that is due; it is saved before."""
        state = self.stage.state() if stream.is_due else {}
        if state.get("confirmed", lsn) < lsn:
            self.stage.save({**state, "confirmed": lsn})
        stream.confirm(lsn)

    def _position(self, state: Mapping[str, Any]) -> int:
        """Return the position after the last staged transaction."""
        last = self.last_changes()
        return int(last.facts["lsn"] if last else state["lsn"])

    def _check_publication(self, connection: psycopg.Connection[Any], table: PostgresDescription) -> None:
        query = """SELECT count(*) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                   WHERE p.pubname = %s AND r.prrelid = %s::oid"""
        if not _value(connection, query, [self.publication, table.oid]):
            add = f"ALTER PUBLICATION {self.publication} ADD TABLE {table.name}"
            raise Terminal(
                f"{self.title}: publication {self.publication} lacks the table, changes made meanwhile are lost",
                hint=f"{add}; then {ANEW}",
            )

    def _check_slot(self, connection: psycopg.Connection[Any], state: Mapping[str, Any]) -> int:
        """Return the position up to which the server believes changes to be on disk here.

        Raises:
            Terminal: the slot is gone, or begins behind what was read.
        """
        query = """SELECT coalesce(wal_status, ''), coalesce(confirmed_flush_lsn, '0/0')::text
                   FROM pg_replication_slots WHERE slot_name = %s"""
        status, flushed = connection.execute(query, [state["slot"]]).fetchone() or (None, "0/0")
        what = {
            None: "is gone",
            "lost": "was invalidated: the server kept too little WAL (max_slot_wal_keep_size)",
        }.get(status)
        read = max(self._position(state), state.get("confirmed", _number(flushed)))
        if what is None and _number(flushed) > read:
            what = f"was made again or moved: it is at {flushed}, and changes were read up to {_lsn(read)}"
        if what is not None:
            raise Terminal(
                f"{self.title}: replication slot {state['slot']} {what}; changes since then are lost", hint=ANEW
            )
        return _number(flushed)

    def _check_history(
        self, replication: psycopg.Connection[Any], timeline: int, state: Mapping[str, Any], start: int
    ) -> None:
        """Report that another server took over, which has the slot.

        Raises:
            Terminal: it lacked changes that were read.
        """
        if timeline == state["timeline"]:
            return
        content = _row(replication, f"TIMELINE_HISTORY {timeline}")[1]
        lines = (content.decode() if isinstance(content, bytes) else str(content)).splitlines()
        ends = {int(line.split()[0]): line.split()[1] for line in lines if line[:1].isdigit()}
        end = ends.get(int(state["timeline"]), "0/0")
        if start > _number(end):
            raise self._restored(
                f"the server is on timeline {timeline}, which left timeline {state['timeline']} at {end}"
            )
        log.warning("%s: the server is on timeline %s, and was on %s", self.title, timeline, state["timeline"])
        self.stage.save({**state, "timeline": timeline})

    def _check_system(self, found: Sequence[Any], state: Mapping[str, Any], start: int) -> None:
        if found[0] != state["system"]:
            raise Terminal(
                f"{self.title}: this is another server than the rows came from: its system identifier is {found[0]}, "
                f"and was {state['system']}",
                hint=f"correct host=, or {ANEW}",
            )
        if _number(found[2]) < start:
            raise self._restored(f"the server is at {found[2]} of timeline {found[1]}")

    def _restored(self, where: str) -> Terminal:
        return Terminal(
            f"{self.title}: {where}, before the changes read already: it was restored from a backup, or a standby took over "
            "that lacked them",
            hint=ANEW,
        )


class Stream:
    """The stream of a replication slot.

    Args:
        connection: in replication mode.
        slot: the name of the slot.
        publication: the name of the publication.
        start: the position from which on transactions are sent.
        end: the end of the server's log when the stream was begun.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], slot: str, publication: str, start: int, end: int = 0
    ) -> None:
        self._connection = connection.pgconn
        self._confirmed, self._confirmed_at = start, time.monotonic()
        self._received, self._reply = start, False
        self._end, self._sent_at = end, 0
        self.idle_at = 0
        """The position up to which the server has sent all changes, as of its last sign of life."""
        command = (
            f"START_REPLICATION SLOT {slot} LOGICAL {_lsn(start)} "
            f"(proto_version '1', publication_names '{publication}')"
        )
        self._connection.send_query(command.encode())
        self._expect(8)  # COPY_BOTH

    def next(self, patience: float) -> bytes | None:
        """Return the next message, None if there is none for some seconds."""
        while True:
            size, data = self._connection.get_copy_data(1)
            if size == 0:
                if not wait_readable([self._connection.socket], patience):
                    return None
                self._connection.consume_input()
                size, data = self._connection.get_copy_data(1)
                if size == 0:
                    continue
            if size < 0:
                self._expect(0)
            found = bytes(data)
            if found[0] == _DATA:
                self._sent_at = int.from_bytes(found[17:25], "big", signed=True) + EPOCH_2000
                return found[25:]
            self.idle_at, self._reply = int.from_bytes(found[1:9], "big"), bool(found[17])
            return None

    def lag(self, decoder: Decoder, *, is_idle: bool) -> SourceLag:
        """Return the bytes of the log ahead and the last commit's age.

        The end of the log is that at the beginning of the stream.
        """
        seconds = 0.0 if is_idle or not decoder.committed_at else (self._sent_at - decoder.committed_at) / 1e6
        read = max(decoder.lsn, self.idle_at, self._received)
        return SourceLag(bytes=max(0, self._end - read), seconds=max(0.0, seconds))

    @property
    def is_due(self) -> bool:
        """Whether the server is to be told the position now."""
        return self._reply or time.monotonic() - self._confirmed_at > CONFIRM

    def confirm(self, lsn: int, *, at_once: bool = False) -> None:
        """Tell the server that the changes before a position are on disk here."""
        now = time.monotonic()
        if not (at_once or self.is_due):
            return
        self._confirmed, self._confirmed_at, self._reply = max(self._confirmed, lsn), now, False
        clock = time.time_ns() // 1000 - EPOCH_2000
        report = struct.pack(">cQQQqB", b"r", self._confirmed, self._confirmed, self._confirmed, clock, 0)
        self._connection.put_copy_data(report)
        while self._connection.flush():
            wait_writable([self._connection.socket], 1.0)

    def _expect(self, status: int) -> None:
        """Read the result of a command, which must have a status."""
        import psycopg

        self._connection.flush()
        result = self._connection.get_result()
        if result is None or result.status != status:
            text = "the stream has ended" if result is None else result.error_message.decode(errors="replace")
            raise psycopg.OperationalError(text or "the stream has ended")


_DATA = ord("w")


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9_]", "_", name.lower())


def _number(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _lsn(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def _row(connection: psycopg.Connection[Any], query: Any) -> tuple[Any, ...]:
    found = connection.execute(query).fetchone()
    assert found is not None
    return tuple(found)


def _value(connection: psycopg.Connection[Any], query: Any, parameters: Sequence[Any] = ()) -> Any:
    found = connection.execute(query, parameters).fetchone()
    return None if found is None else found[0]
