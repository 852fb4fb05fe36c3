"""A table of Postgres as a sink: current rows, and the position, in one transaction.

The table is the user's. For a keyed dataset it has a unique constraint on the key columns, and the current row of each key; for
a keyless one all rows. The position is in the table `umbel_sinks`, with an epoch that each new writer raises: the writers
before it cannot write any more.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import orjson

from umbel.connectors.postgres.server import AGAIN, PostgresDescription, Server, describe, driver
from umbel.connectors.sinks import (
    Isolation,
    PlainRow,
    Refusal,
    RowChange,
    RowsRefused,
    SinkPosition,
    SinkWriter,
    WriteOptions,
    divided,
)
from umbel.connectors.sql.columns import BYTES
from umbel.errors import InvalidValue, Transient
from umbel.types.dtypes import Bytes, List, Optional

POSITIONS = """CREATE TABLE IF NOT EXISTS umbel_sinks(
    sink text PRIMARY KEY, dataset text NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now())"""
TAKE_OVER = """INSERT INTO umbel_sinks(sink, dataset, epoch, batch, rows) VALUES (%s, %s, 1, %s, %s)
    ON CONFLICT (sink) DO UPDATE SET epoch = umbel_sinks.epoch + 1 RETURNING epoch, batch, rows"""
ADVANCE = "UPDATE umbel_sinks SET batch = %s, rows = %s, written_at = now() WHERE sink = %s AND epoch = %s"
AT_ONCE = 64 << 20
"""Bytes of rows in one statement, unless one row has more: Postgres takes no message of a gigabyte."""
_NUL = b"\\u0000"
_OF_ROWS = ("22", "23", "44", "54000", "P0001")
"""Classes of SQLSTATE of values: data, constraints, conditions of views, too long for an index, raised by a trigger."""
_OF_SEVERAL_ROWS = frozenset({"23503", "23505", "23P01", "P0001"})
"""SQLSTATE of references, duplicates and overlaps: other rows may mend them."""
_DEFERRABLE, _ROW_SECURITY = "does not support deferrable", "row-level security policy"
_MEND = "let the table, its columns, triggers and rules take the rows; the sink then goes on"
_HINT = "let the table accept it, or leave such rows out in the dataset's pipeline"


class TableWriter(SinkWriter):
    """Writes to one table.

    Args:
        server: the server.
        table: its name.
        options: of the sink.
    """

    isolates: ClassVar[bool] = True

    def __init__(self, server: Server, table: str, options: WriteOptions) -> None:
        self._server, self._name, self._options = server, table, options
        self._epoch, self._table = 0, ""
        dtypes = options.schema.dtypes
        self._binary = {name for name, dtype in dtypes.items() if isinstance(_inner(dtype, Optional), Bytes)}

    def examine(self) -> None:
        """Check that there is the table, with the columns."""
        with self._server.connect() as connection:
            self._described(connection)

    def _described(self, connection: Any) -> PostgresDescription:
        """Return the description of the table, if it has the columns."""
        found = describe(connection, self._server.title, self._name)
        found.require(self._server.title, tuple(map(self._options.column, self._options.schema.names)))
        for name, dtype in self._options.schema.dtypes.items():
            column = found.columns[self._options.column(name)]
            if column.is_array and column.kind == BYTES and isinstance(_inner(dtype, Optional, List), Bytes):
                self._binary.add(name)
        return found

    def position(self) -> SinkPosition:
        with self._server.connect() as connection:
            if connection.execute("SELECT to_regclass('umbel_sinks')").fetchone() == (None,):
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtext('umbel_sinks'))"
                )  # IF NOT EXISTS is not atomic
                connection.execute(POSITIONS)
            found, none = self._described(connection), SinkPosition()
            row = connection.execute(TAKE_OVER, [self._options.id, self._options.dataset, none.batch, none.rows])
            self._table, (self._epoch, batch, rows) = found.name.replace("%", "%%"), row.fetchone() or (0, 0, 0)
            connection.commit()
            self.made = str(found.oid)
        return SinkPosition(batch, rows)

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        self._refuse_nul(changes)
        with self._transaction(position) as connection:
            self._apply(connection, changes)
            with self._explained():  # as of deferred constraints
                connection.commit()

    def write_accepted(self, changes: Sequence[RowChange], position: SinkPosition, isolation: Isolation) -> None:
        with self._transaction(position) as connection:
            accepted, refused = self._tried(connection, range(len(changes)), changes)
            while again := [each.number for each in refused if each.error.depends_on_others]:
                more, left = self._tried(connection, again, changes)
                if not more:
                    break
                accepted += more
                refused = [each for each in refused if not each.error.depends_on_others] + left
            isolation.settle(sorted(refused, key=lambda each: each.number), accepted)
            connection.commit()

    def _tried(
        self, connection: Any, numbers: Sequence[int], changes: Sequence[RowChange]
    ) -> tuple[list[RowChange], list[Refusal]]:
        """Apply the changes that the table accepts; return them, and the others."""

        def attempt(_: int, part: Sequence[RowChange]) -> None:
            self._refuse_nul(part)
            with connection.transaction():  # a savepoint
                connection.execute("SET CONSTRAINTS ALL DEFERRED")
                self._apply(connection, part)
                with self._explained():
                    connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

        ranges, refused = divided([changes[each] for each in numbers], attempt)
        return [each for _, part in ranges for each in part], [
            replace(each, number=numbers[each.number]) for each in refused
        ]

    @contextmanager
    def _transaction(self, position: SinkPosition) -> Iterator[Any]:
        """Begin a transaction with the new position."""
        with self._server.connect() as connection:
            own = [position.batch, position.rows, self._options.id, self._epoch]
            if connection.execute(ADVANCE, own).rowcount != 1:
                raise Transient(f"{self._server.title}: another writer has taken over the sink to table {self._table}")
            if str(describe(connection, self._server.title, self._name).oid) != self.made:
                raise Transient(f"{self._title} was dropped and made anew", hint="it is written to in the next attempt")
            yield connection

    def _apply(self, connection: Any, changes: Sequence[RowChange]) -> None:
        with self._explained():
            if self._options.schema.is_keyed:
                self._upsert(connection, changes)
            else:
                self._append(connection, changes)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the server's details of a row and a remedy to an error."""
        psycopg = driver()
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            text, login = str(error.diag.message_primary), self._server.login
            hint = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {self._table} TO {login}"
            if _ROW_SECURITY in text:
                hint = f"ALTER ROLE {login} BYPASSRLS, or give the table a policy by which {login} sees and writes all rows"
            raise InvalidValue(f"{self._server.title}: {text}", hint=hint) from None
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if not state.startswith(_OF_ROWS):
                if (remedy := self._remedy(state, str(error.diag.message_primary))) is None:
                    raise
                what = f"{self._title}: {error.diag.message_primary} (SQLSTATE {state})"
                raise InvalidValue(what, hint=remedy) from None
            details = ". ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
            refused = RowsRefused(f"{self._title}: {details:.400} (SQLSTATE {state})", hint=_HINT)
            refused.depends_on_others = state in _OF_SEVERAL_ROWS
            raise refused from None

    def _remedy(self, state: str, text: str) -> str | None:
        """Return the remedy for a table that takes no rows as it is.

        None if another attempt may succeed.
        """
        if state == "42P10" or _DEFERRABLE in text:
            keys = ", ".join(self._quoted(self._options.schema.key_names))
            return f"ALTER TABLE {self._table} ADD UNIQUE ({keys}): a constraint that is not deferrable, or an index of all rows"
        return None if not state or state.startswith(AGAIN) else _MEND

    @property
    def _title(self) -> str:
        return f"{self._server.title}: table {self._table}"

    def close(self) -> None:
        """Do nothing: each transaction has a connection of its own."""

    def _upsert(self, connection: Any, changes: Sequence[RowChange]) -> None:
        keys, columns = self._quoted(self._options.schema.key_names), self._quoted(self._options.schema.names)
        rows = [self._row(each.after) for each in changes if each.after is not None]
        gone = [self._row(each.key or {}) for each in changes if each.after is None]
        listed, rest = ", ".join(columns), [each for each in columns if each not in keys]
        if gone:  # first: an inserted row may have the value of a deleted one in another unique column
            same = " AND ".join(f"t.{each} = incoming.{each}" for each in keys)
            statement = f"DELETE FROM {self._table} t USING {self._incoming} incoming WHERE {same}"  # noqa: S608
            for part in _arrays(gone):
                connection.execute(statement, [part])
        if rows:
            assigned = ", ".join(f"{each} = EXCLUDED.{each}" for each in rest)
            statement = (
                f"INSERT INTO {self._table}({listed}) SELECT {listed} FROM {self._incoming}"  # noqa: S608  all names are quoted
                f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {assigned}"
            )
            for part in _arrays(rows):
                connection.execute(statement, [part])

    def _append(self, connection: Any, changes: Sequence[RowChange]) -> None:
        columns = self._quoted(self._options.schema.names)
        listed = ", ".join(columns)
        rows = [self._row(each.after) for each in changes if each.after is not None]
        if rows:
            statement = f"INSERT INTO {self._table}({listed}) SELECT {listed} FROM {self._incoming}"  # noqa: S608
            for part in _arrays(rows):
                connection.execute(statement, [part])
        same = " AND ".join(f"to_jsonb(t.{each}) IS NOT DISTINCT FROM to_jsonb(incoming.{each})" for each in columns)
        for change in changes:
            if change.after is None and change.before is not None:  # one of equal rows
                one = f"SELECT t.tableoid, t.ctid FROM {self._table} t, {self._incoming} incoming WHERE {same} LIMIT 1"  # noqa: S608
                row = [*_arrays([self._row(change.before)])]
                connection.execute(f"DELETE FROM {self._table} WHERE (tableoid, ctid) = ({one})", row)  # noqa: S608

    @property
    def _incoming(self) -> str:
        return f"json_populate_recordset(NULL::{self._table}, %s::text::json)"

    def _refuse_nul(self, changes: Sequence[RowChange]) -> None:
        """Refuse changes with a NUL character, which no type of text has in Postgres.

        Raises:
            RowsRefused: one has it.
        """
        rows = [each.after or each.key or each.before or {} for each in changes]
        if _NUL in orjson.dumps(rows):
            for row in rows:
                names = [self._options.column(name) for name, value in row.items() if "\0" in _texts(value)]
                if names:
                    keys = {self._options.column(name): row.get(name) for name in self._options.schema.key_names}
                    raise RowsRefused(
                        f"{self._title}: column '{names[0]}' of the row {keys or row!r:.200} has a "
                        "NUL character, which Postgres cannot store",
                        hint="filter such rows out, or replace the character, in the dataset's pipeline",
                    )

    def _quoted(self, names: Sequence[str]) -> list[str]:
        return ['"' + self._options.column(name).replace('"', '""').replace("%", "%%") + '"' for name in names]

    def _row(self, row: PlainRow) -> dict[str, Any]:
        """Return a row by the columns of the table, as Postgres reads JSON."""
        made = {name: _binary(row[name]) for name in self._binary if row.get(name) is not None}
        return {self._options.column(name): made.get(name, value) for name, value in row.items()}


def _arrays(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield rows as arrays of JSON, each for a statement."""
    part, size = list[bytes](), 0
    for row in rows:
        text = orjson.dumps(row)
        if part and size + len(text) > AT_ONCE:
            yield f"[{b','.join(part).decode()}]"
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield f"[{b','.join(part).decode()}]"


def _texts(value: Any) -> str:
    """Return the texts in a value, one behind the other."""
    if isinstance(value, str):
        return value
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return "".join(map(_texts, inner))


def _binary(value: Any) -> Any:
    """Return bytes, or lists of them, as Postgres reads them in JSON."""
    if value is None:
        return None
    return [_binary(each) for each in value] if isinstance(value, list) else "\\x" + base64.b64decode(value).hex()


def _inner(dtype: Any, *around: type[Any]) -> Any:
    while isinstance(dtype, around):
        dtype = dtype.of
    return dtype
