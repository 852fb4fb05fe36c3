"""A table of Snowflake as a sink: rows, and the position, in one transaction.

The table is the user's: for a keyed dataset it has the current row of each key, for a keyless one all rows. Snowflake enforces no
unique constraint, so a `MERGE` finds the row of a key. The position is in the table `umbel_sinks`, with the token of the newest
writer: the writers before it cannot write any more.

Snowflake does not say which row of a statement it refuses, and has no savepoints: rows are tried in transactions that are rolled
back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar
from uuid import uuid4

import orjson

from umbel.connectors.sinks import (
    Isolation,
    PlainRow,
    RowChange,
    SinkPosition,
    SinkWriter,
    WriteOptions,
    divided,
    write_after_trial,
)
from umbel.connectors.snowflake.casts import Cast, cast_of
from umbel.connectors.snowflake.server import SESSION, SnowflakeServer, describe, driver
from umbel.connectors.sql.columns import quote
from umbel.errors import InvalidValue, Transient, did_you_mean

RIGHTS = "SELECT, INSERT, UPDATE, DELETE"
MARKS = "umbel_sinks"
POSITIONS = (
    f"CREATE TABLE IF NOT EXISTS {MARKS}(sink VARCHAR NOT NULL, dataset VARCHAR NOT NULL, writer VARCHAR NOT NULL,"
    " batch NUMBER(38, 0) NOT NULL, rows_of_next NUMBER(38, 0) NOT NULL, written_at TIMESTAMP_NTZ(9))"
)
TAKE_OVER = (
    f"MERGE INTO {MARKS} t USING (SELECT ? AS sink, ? AS dataset, ? AS writer) s ON t.sink = s.sink"  # noqa: S608
    " WHEN MATCHED THEN UPDATE SET writer = s.writer WHEN NOT MATCHED THEN"
    " INSERT (sink, dataset, writer, batch, rows_of_next) VALUES (s.sink, s.dataset, s.writer, -2, 0)"
)
POSITION = f"SELECT batch::VARCHAR, rows_of_next::VARCHAR FROM {MARKS} WHERE sink = ? AND writer = ?"  # noqa: S608
ADVANCE = f"UPDATE {MARKS} SET batch = ?, rows_of_next = ?, written_at = SYSDATE() WHERE sink = ? AND writer = ?"  # noqa: S608
AT_ONCE = 1_000_000
"""Bytes of rows in one statement, unless a row has more."""
PATIENCE = 600
"""Seconds to wait for a lock: Snowflake ends the transaction of a client that is gone after five minutes."""
_SETTINGS = {"LOCK_TIMEOUT": PATIENCE, "ERROR_ON_NONDETERMINISTIC_MERGE": True, "QUOTED_IDENTIFIERS_IGNORE_CASE": False}
_NO_TABLE = 2003
"""The number of the error that a table does not exist."""
Text = Sequence[str | None]
"""A row as text, by column."""


class SnowflakeWriter(SinkWriter):
    """Writes to one table.

    Args:
        server: the account.
        table: its name, as in SQL.
        options: of the sink.
    """

    isolates: ClassVar[bool] = True

    def __init__(self, server: SnowflakeServer, table: str, options: WriteOptions) -> None:
        self._server, self._name, self._options = server, table, options
        self._token, self._table, self._casts = "", "", list[Cast]()

    def examine(self) -> None:
        """Check at commit that the table has columns for the dataset's fields.

        Raises:
            InvalidValue: it does not, or the login is wrong; the message has a remedy.
            Transient: the account does not answer.
        """
        with self._connection() as connection:
            self._describe(connection)

    def position(self) -> SinkPosition:
        self._token = uuid4().hex
        with self._connection() as connection:
            self._describe(connection)
            self._create(connection)
            _run(connection, "BEGIN")
            _run(connection, TAKE_OVER, self._options.id, self._options.dataset, self._token)
            found = _rows(connection, POSITION, self._options.id, self._token)
            if len(found) != 1:
                raise InvalidValue(
                    f"{self._server.title}: table {MARKS} has {len(found)} rows of sink '{self._options.id}'",
                    hint="delete all of them but the one with the highest batch",
                )
            _run(connection, "COMMIT")
        return SinkPosition(*map(int, found[0]))

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        with self._connection() as connection:
            self._describe(connection)  # a type may have changed
            _run(connection, "BEGIN")
            self._put(connection, changes)
            own = [position.batch, position.rows, self._options.id, self._token]
            if _run(connection, ADVANCE, *own) != 1:  # the last one: other sinks wait for its lock
                _run(connection, "ROLLBACK")
                raise Transient(f"{self._server.title}: another writer has taken over the sink to table {self._table}")
            _run(connection, "COMMIT")

    def write_accepted(self, changes: Sequence[RowChange], position: SinkPosition, isolation: Isolation) -> None:
        with self._connection() as connection:
            self._describe(connection)

            def attempt(_: int, part: Sequence[RowChange]) -> None:
                _run(connection, "BEGIN")
                try:
                    with self._server.translating():
                        self._put(connection, part)
                finally:
                    _run(connection, "ROLLBACK")

            found = divided(changes, attempt)
        write_after_trial(self, found, position, isolation)

    def close(self) -> None:
        """Do nothing: each transaction has a connection of its own."""

    def _connection(self) -> Any:
        return self._server.connect(paramstyle="qmark", session_parameters=SESSION | _SETTINGS)

    def _describe(self, connection: Any) -> None:
        """Find the columns, and how each is written."""
        schema, title = self._options.schema, self._server.title
        names = {name: self._options.column(name) for name in schema.names}
        table = describe(connection, self._name, list(names.values()))
        for name in names.values():
            if name not in table.columns:
                raise InvalidValue(
                    f"{title}: table {table.name} has no column '{name}'{did_you_mean(name, table.columns)}",
                    hint='add the column to the table, or name it with renames={"a field": "a column"}',
                )
        try:
            self._casts = [
                cast_of(name, schema.dtypes[name], table.columns[column], quote(table.names[column]))
                for name, column in names.items()
            ]
        except InvalidValue as error:
            raise InvalidValue(f"{title}: table {table.name}: {error.message}", hint=error.hint) from None
        self._table = table.name

    def _create(self, connection: Any) -> None:
        """Create the table of positions if there is none.

        That needs a right that writing to it does not.
        """
        client = driver()
        try:
            connection.cursor().execute(f"DESCRIBE TABLE {MARKS}")
        except client.errors.ProgrammingError as error:
            if error.errno != _NO_TABLE:
                raise
            _run(connection, POSITIONS)

    def _put(self, connection: Any, changes: Sequence[RowChange]) -> None:
        if self._options.schema.is_keyed:
            self._merge(connection, changes)
        else:
            self._append(connection, changes)

    def _merge(self, connection: Any, changes: Sequence[RowChange]) -> None:
        """Write the current rows of keys, and delete those of keys that are gone."""
        keys = self._options.schema.key_names
        own = [(each, f"s.c{n}") for n, each in enumerate(self._casts)]
        assigned = ", ".join(f"{each.column} = {value}" for each, value in own if each.name not in keys)
        statement = (
            f"MERGE INTO {self._table} t USING {self._incoming} s ON {self._same(keys, or_null=False)}"  # noqa: S608
            " WHEN MATCHED AND s.mark = 'gone' THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {assigned}"
            " WHEN NOT MATCHED AND s.mark = 'there' THEN"
            f" INSERT ({self._columns}) VALUES ({', '.join(value for _, value in own)})"
        )
        rows = [
            [*self._text(each.key or {}), "gone"] if each.after is None else [*self._text(each.after), "there"]
            for each in changes
        ]
        for part in _parts(rows):
            _run(connection, statement, _json(part))

    def _append(self, connection: Any, changes: Sequence[RowChange]) -> None:
        """Insert rows, and delete one for each retraction."""
        rows: list[Text] = [self._text(each.after) for each in changes if each.after is not None]
        gone = Counter(
            tuple(self._text(each.before)) for each in changes if each.after is None and each.before is not None
        )
        for part in _parts(list(gone)):
            rows += self._retract(connection, part, [gone[tuple(each)] for each in part])
        statement = (  # all names are quoted
            f"INSERT INTO {self._table}({self._columns})"  # noqa: S608
            f" SELECT {', '.join(f's.c{n}' for n in range(len(self._casts)))} FROM {self._incoming} s"
        )
        for part in _parts(rows):
            _run(connection, statement, _json(part))

    def _retract(self, connection: Any, rows: Sequence[Text], gone: Sequence[int]) -> list[Text]:
        """Delete all rows that equal some; return those to be inserted again.

        Args:
            connection: in the transaction.
            rows: the rows, each once.
            gone: how many of each are retracted.
        """
        numbered, same = _json([[*row, str(n)] for n, row in enumerate(rows)]), self._same(or_null=True)
        counted = _rows(
            connection,
            f"SELECT s.mark, COUNT(*)::VARCHAR FROM {self._table} t JOIN {self._incoming} s ON {same} GROUP BY s.mark",  # noqa: S608
            numbered,
        )
        found = {int(n): int(count) for n, count in counted}
        statement = f"MERGE INTO {self._table} t USING {self._incoming} s ON {same} WHEN MATCHED THEN DELETE"
        if found and _run(connection, statement, numbered) != sum(found.values()):
            raise Transient(f"{self._server.title}: another client has changed rows of table {self._table} meanwhile")
        return [row for n, row in enumerate(rows) for _ in range(found.get(n, 0) - gone[n])]

    def _same(self, names: Sequence[str] | None = None, *, or_null: bool) -> str:
        """Return the condition that rows `t` and `s` are equal in some fields."""
        pairs = [(each, f"t.{each.column}", f"s.c{n}") for n, each in enumerate(self._casts)]
        chosen = [
            each.same(one, two, or_null=or_null) for each, one, two in pairs if names is None or each.name in names
        ]
        return " AND ".join(chosen)

    @property
    def _incoming(self) -> str:
        """The rows that are bound to a statement, in the types of the table."""
        chosen = [each.expression.format(f"i.value[{n}]::VARCHAR") for n, each in enumerate(self._casts)]
        listed = ", ".join(f"{each} AS c{n}" for n, each in enumerate(chosen))
        mark = f"i.value[{len(chosen)}]::VARCHAR AS mark"
        return f"(SELECT {listed}, {mark} FROM TABLE(FLATTEN(INPUT => PARSE_JSON(?))) i)"  # noqa: S608  all names are quoted

    @property
    def _columns(self) -> str:
        return ", ".join(each.column for each in self._casts)

    def _text(self, row: PlainRow) -> list[str | None]:
        return [None if (value := row.get(each.name)) is None else each.text(value) for each in self._casts]


def _parts(rows: Sequence[Text]) -> Iterator[list[Text]]:
    """Yield rows in parts for a statement each."""
    part, size = list[Text](), 0
    for row in rows:
        own = len(orjson.dumps(row))
        if part and size + own > AT_ONCE:
            yield part
            part, size = [], 0
        part.append(row)
        size += own
    if part:
        yield part


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _rows(connection: Any, statement: str, *values: Any) -> list[Any]:
    return list(connection.cursor().execute(statement, values).fetchall())


def _run(connection: Any, statement: str, *values: Any) -> int:
    """Run a statement; return the number of rows that it changed."""
    return int(connection.cursor().execute(statement, values or None).rowcount or 0)
