"""Reading the changes of a table by logical replication.

At first the rows that are there are copied in the snapshot that belongs to the start of a new replication slot; then the slot's
changes follow. They are staged, durably, transaction by transaction, before the slot may forget them.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.polling import Poller
from umbel.connectors.postgres.copying import PostgresSource
from umbel.connectors.postgres.pages import PageRanges, page_ranges
from umbel.connectors.postgres.pgoutput import Decoder
from umbel.connectors.postgres.publication import creation, generated_problems, parts_of, publication_problems
from umbel.connectors.postgres.server import SLOTS_HINT, PostgresDescription, describe
from umbel.connectors.postgres.stream import Stream, lsn_number, lsn_text
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.following import ANEW, DELAY, PART_ROWS, SESSION, FollowedSource
from umbel.connectors.sql.parallel import read_ranges
from umbel.connectors.sql.ranges import connections
from umbel.connectors.sql.rows import UNSENT
from umbel.connectors.staging import encoded
from umbel.errors import InvalidValue, Terminal, Transient

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("umbel.work")

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
        named = (*(self.options.columns or ()), *self.options.references)
        yield from generated_problems(connection, self.publication, table, named)
        may = """SELECT pg_has_role(relowner, 'USAGE') AND has_database_privilege(current_database(), 'CREATE')
                 FROM pg_class WHERE oid = %s::oid"""
        if self._is_published(connection):
            yield from self._publication_problems(connection, table)
        elif not _value(connection, may, [table.oid]):
            yield "the user may not publish the table", f"as its owner: {creation(self.publication, table.name)}"
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
        at = lsn_number(lsn)
        facts = {"slot": slot, "system": system, "timeline": tli, "lsn": at, "confirmed": at, "snapshot": token}
        self.stage.save({**facts, "table": int(table.oid), "loaded": True})

    def _is_published(self, connection: psycopg.Connection[Any]) -> bool:
        query = "SELECT count(*) FROM pg_publication WHERE pubname = %s"
        return bool(_value(connection, query, [self.publication]))

    def _publish(self, connection: psycopg.Connection[Any], table: PostgresDescription) -> None:
        from psycopg import errors, sql

        if not self._is_published(connection):
            with suppress(
                errors.UniqueViolation, errors.DuplicateObject
            ):  # another source of the table has just made it
                connection.execute(sql.SQL(creation(self.publication, table.name)))
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
            self._check_table(table, state)
            self._check_publication(connection, table)
            flushed = self._check_slot(connection, state)
            end = lsn_number(_value(connection, "SELECT pg_current_wal_lsn()::text"))
        oid = int(table.oid)
        with (
            self.server.connect(autocommit=True, replication="database") as replication,
            parts_of(self.server, oid, self.publication) as is_part,
        ):
            start = self._position(state)
            self._check_system(found := _row(replication, "IDENTIFY_SYSTEM"), state, start)
            self._check_history(replication, int(found[1]), state, max(start, flushed))
            stream = Stream(replication, state["slot"], self.publication, start, end)
            decoder = Decoder(self.options.keys or (), self.deletions, oid, is_part)
            self._receive(stream, decoder, table, poller)

    def _receive(self, stream: Stream, decoder: Decoder, table: PostgresDescription, poller: Poller) -> None:
        until, due = time.monotonic() + SESSION, None
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
                columns = self._columns(table, decoder)
                facts = {"columns": [each.plain for each in columns.values()], "unsent": sorted(table.generated)}
                facts["lsn"] = decoder.lsn
                self.stage.append(decoder.take(columns), facts)
                stream.confirm(decoder.lsn, at_once=True)
                due = None
            elif not decoder.rows:
                self._confirm(stream, max(decoder.lsn, stream.idle_at))
            if not decoder.rows and (now > until or poller.is_stopping or not self.has_room(poller)):
                return

    def _columns(self, table: PostgresDescription, decoder: Decoder) -> dict[str, Column]:
        """Return the requested columns, which the stream describes where the table does not."""
        known = {**decoder.columns(), **table.columns}
        return (
            known
            if self.options.columns is None
            else {name: known[name] for name in self.names(table) if name in known}
        )

    def _confirm(self, stream: Stream, lsn: int) -> None:
        """Confirm a position between staged changes, if that is due; it is saved before."""
        if not stream.is_due:
            return
        state = self.stage.state()
        if state.get("confirmed", 0) < lsn:
            self.stage.save({**state, "confirmed": lsn})
        stream.confirm(lsn)

    def _position(self, state: Mapping[str, Any]) -> int:
        """Return the position after the last staged transaction."""
        last = self.last_changes()
        return int(last.facts["lsn"] if last else state["lsn"])

    def _publication_problems(
        self, connection: psycopg.Connection[Any], table: PostgresDescription
    ) -> Iterator[tuple[str, str]]:
        is_keyed, names = self.options.is_keyed, self.names(table)
        return publication_problems(connection, self.publication, table, names, is_keyed=is_keyed)

    def _check_table(self, table: PostgresDescription, state: Mapping[str, Any]) -> None:
        """Report another table under the name of the one that was copied."""
        # an older version has not noted which one that was
        if state.get("table", table.oid) != table.oid:
            raise Terminal(
                f"{self.title}: this is another table than the rows came from: that one was dropped or renamed",
                hint=ANEW,
            )

    def _check_publication(self, connection: psycopg.Connection[Any], table: PostgresDescription) -> None:
        for problem, hint in self._publication_problems(connection, table):
            raise Terminal(f"{self.title}: {problem}, changes made meanwhile are lost", hint=f"{hint}; then {ANEW}")

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
        read = max(self._position(state), state.get("confirmed", lsn_number(flushed)))
        if what is None and lsn_number(flushed) > read:
            what = f"was made again or moved: it is at {flushed}, and changes were read up to {lsn_text(read)}"
        if what is not None:
            raise Terminal(
                f"{self.title}: replication slot {state['slot']} {what}; changes since then are lost", hint=ANEW
            )
        return lsn_number(flushed)

    def _check_history(
        self, replication: psycopg.Connection[Any], number: int, state: Mapping[str, Any], start: int
    ) -> None:
        """Report that another server took over, which has the slot.

        Raises:
            Terminal: it lacked changes that were read.
        """
        if number == state["timeline"]:
            return
        content = _row(replication, f"TIMELINE_HISTORY {number}")[1]
        lines = (content.decode() if isinstance(content, bytes) else str(content)).splitlines()
        ends = {int(line.split()[0]): line.split()[1] for line in lines if line[:1].isdigit()}
        end = ends.get(int(state["timeline"]), "0/0")
        if start > lsn_number(end):
            raise self._restored(
                f"the server is on timeline {number}, which left timeline {state['timeline']} at {end}"
            )
        log.warning("%s: the server is on timeline %s, and was on %s", self.title, number, state["timeline"])
        self.stage.save({**state, "timeline": number})

    def _check_system(self, found: Sequence[Any], state: Mapping[str, Any], start: int) -> None:
        if found[0] != state["system"]:
            raise Terminal(
                f"{self.title}: this is another server than the rows came from: its system identifier is {found[0]}, "
                f"and was {state['system']}",
                hint=f"correct host=, or {ANEW}",
            )
        if lsn_number(found[2]) < start:
            raise self._restored(f"the server is at {found[2]} of timeline {found[1]}")

    def _restored(self, where: str) -> Terminal:
        return Terminal(
            f"{self.title}: {where}, before the changes read already: it was restored from a backup, or a standby took over "
            "that lacked them",
            hint=ANEW,
        )


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9_]", "_", name.lower())


def _row(connection: psycopg.Connection[Any], query: Any) -> tuple[Any, ...]:
    found = connection.execute(query).fetchone()
    assert found is not None
    return tuple(found)


def _value(connection: psycopg.Connection[Any], query: Any, parameters: Sequence[Any] = ()) -> Any:
    found = connection.execute(query, parameters).fetchone()
    return None if found is None else found[0]
