"""Publications of Postgres, and the changes of a table that they leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from umbel.connectors.postgres.server import PostgresDescription, Server

if TYPE_CHECKING:
    import psycopg

FILTERS = 150000
"""The version of Postgres from which on a publication may leave out rows and columns."""
OPERATIONS = ("insert", "update", "delete", "truncate")

OF_TABLE = """
SELECT ARRAY[p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate], {narrowed}
FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = %s::oid WHERE p.pubname = %s
"""
NARROWED = """r.prrelid IS NOT NULL OR p.puballtables, pg_get_expr(r.prqual, r.prrelid), CASE WHEN r.prattrs IS NOT NULL THEN
    ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = r.prrelid AND a.attnum = ANY(r.prattrs)) END"""
WHOLE = "r.prrelid IS NOT NULL OR p.puballtables, NULL, NULL"

PART_OF = """
WITH RECURSIVE above(oid) AS (SELECT %s::oid UNION SELECT i.inhparent FROM pg_inherits i JOIN above a ON i.inhrelid = a.oid)
SELECT count(*) > 0 FROM above WHERE oid = %s::oid
"""
SENDS_OTHERS = """
WITH RECURSIVE parts(oid) AS (SELECT %s::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON i.inhparent = p.oid)
SELECT p.puballtables OR EXISTS (
    SELECT FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
    WHERE t.pubname = p.pubname AND c.oid NOT IN (SELECT oid FROM parts)
) FROM pg_publication p WHERE p.pubname = %s
"""


@contextmanager
def parts_of(server: Server, table: int, publication: str) -> Iterator[Callable[[int], bool]]:
    """Yield a predicate of tables: one is a partition of another, or inherits from it.

    If the publication sends no others, each table is, also one that was detached or dropped since; else one that is now. The
    connection is made when the function is called first, and lasts for the block.

    Args:
        server: of the tables.
        table: the id of the other one.
        publication: the name of the publication that sends them.
    """
    with ExitStack() as stack:

        @cache
        def connection() -> psycopg.Connection[Any]:
            return stack.enter_context(server.connect(autocommit=True))

        def is_true(query: str, *values: object) -> bool:
            found = connection().execute(query, values).fetchone()
            return bool(found and found[0])

        @cache
        def sends_others() -> bool:
            return is_true(SENDS_OTHERS, table, publication)

        def is_part(number: int) -> bool:
            return not sends_others() or is_true(PART_OF, number, table)

        yield is_part


def creation(name: str, table: str) -> str:
    """Return the statement that makes the publication of a table."""
    return f"CREATE PUBLICATION {name} FOR TABLE {table} WITH (publish_via_partition_root = true)"


def generated_problems(
    connection: psycopg.Connection[Any], name: str, table: PostgresDescription, columns: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the required columns that are generated and so not sent, and the remedies.

    Args:
        connection: to the database.
        name: of the publication, which there may not be yet.
        table: the description of the table.
        columns: the names of those that fields are read from.
    """
    query = "SELECT count(*) FROM pg_publication p WHERE pubname = %s AND to_jsonb(p) ->> 'pubgencols' = 's'"
    found = connection.execute(query, [name]).fetchone() if table.generated else None
    if found and found[0]:
        return
    since = f"from Postgres 18 on, ALTER PUBLICATION {name} SET (publish_generated_columns = stored)"
    for each in dict.fromkeys(columns):
        if each in table.generated:
            problem = f"column '{each}' of {table.name} is generated, and such columns are not sent with changes"
            yield problem, f"read other columns, by preproc if need be; or read the table by a cursor; or, {since}"


def publication_problems(
    connection: psycopg.Connection[Any],
    name: str,
    table: PostgresDescription,
    columns: Sequence[str],
    *,
    is_keyed: bool,
) -> Iterator[tuple[str, str]]:
    """Yield what a publication leaves out, and the remedies.

    Args:
        connection: to the database.
        name: of the publication.
        table: the description of the table.
        columns: the names of those that are read.
        is_keyed: whether the dataset has keys; another one takes inserts only.
    """
    query = OF_TABLE.format(narrowed=NARROWED if connection.info.server_version >= FILTERS else WHOLE)
    found = connection.execute(query, [table.oid, name]).fetchone()
    if found is None:
        yield f"there is no publication {name}", creation(name, table.name)
        return
    sends, has_table, condition, listed = found
    add = f"ALTER PUBLICATION {name} ADD TABLE {table.name}"
    if not has_table:
        yield f"publication {name} lacks the table", add
        return
    if unsent := _unsent(sends, OPERATIONS if is_keyed else OPERATIONS[:1]):
        every = ", ".join(OPERATIONS)
        yield (
            f"publication {name} does not send: {', '.join(unsent)}",
            f"ALTER PUBLICATION {name} SET (publish = '{every}')",
        )
    again = f"ALTER PUBLICATION {name} DROP TABLE {table.name}; {add}"
    if condition is not None:
        yield f"publication {name} leaves out rows of the table: it has WHERE {condition}", again
    missing = [each for each in columns if listed is not None and each in table.columns and each not in listed]
    if missing:
        yield f"publication {name} leaves out columns of the table: {', '.join(missing)}", again


def _unsent(sends: Sequence[bool], needed: Sequence[str]) -> list[str]:
    """Return the operations that are needed and not sent."""
    return [each for each, is_sent in zip(OPERATIONS, sends, strict=True) if each in needed and not is_sent]
