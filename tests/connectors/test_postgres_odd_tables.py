"""Tables of Postgres that are unusual: their names, their columns, their values, and what happens to them meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors.postgres_shop import database, shop
from tests.connectors.shop_datasets import current, deployed, letters, orders, process, rows_of, until
from tests.servers.postgres import PostgresServer as Server
from umbel.connectors import ref, source
from umbel.connectors.postgres import replication
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal

__owner__ = "shop@example.com"
LATER = datetime(9000, 1, 1, tzinfo=UTC)
AT = "'2026-03-01T00:00:00Z'"


@pytest.fixture
def name(postgres_server: Server) -> str:
    return database(postgres_server)


WAYS = pytest.mark.parametrize("cdc", ["upsert", "native"])


@WAYS
def test_names_and_order_and_number_of_columns(postgres_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    """Names with spaces, quotes, upper case and letters of other scripts, between two hundred other columns."""
    more = ", ".join(f"c{number} int DEFAULT {number}" for number in range(200))
    table = 'Große "Kunden"'
    quoted = '"Große ""Kunden"""'
    postgres_server.run(
        f"""CREATE TABLE {quoted}({more}, "updated at" timestamptz NOT NULL, "Note ""x"" y" text, "Юзер" bigint PRIMARY KEY)""",
        f"""INSERT INTO {quoted}("Юзер", "Note ""x"" y", "updated at") SELECT i, 'n' || i, {AT} FROM generate_series(1, 3) i""",
        database=name,
    )

    preproc = {"id": ref("Юзер"), "note": ref('Note "x" y'), "updated_at": ref("updated at")}
    read = orders(shop(postgres_server, name), table=table, cursor="updated at", cdc=cdc, preproc=preproc)
    with deployed(tmp_path, read) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "n1"), (2, "n2"), (3, "n3")])
        postgres_server.run(
            f"""INSERT INTO {quoted}("Юзер", "Note ""x"" y", "updated at") VALUES (4, 'n4', now())""",
            f"""UPDATE {quoted} SET "Note ""x"" y" = 'new', "updated at" = now() WHERE "Юзер" = 2""",
            database=name,
        )
        expected = [(1, "n1"), (2, "new"), (3, "n3"), (4, "n4")]
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == expected)
        assert letters(made) == []


@WAYS
def test_an_empty_table_gets_rows_later(postgres_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    postgres_server.run(
        "CREATE TABLE orders(id bigint PRIMARY KEY, note text, updated_at timestamptz NOT NULL)", database=name
    )
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc=cdc)) as made:
        for _ in range(3):
            until(made, lambda: True)
        postgres_server.run("INSERT INTO orders VALUES (1, 'a', now()), (2, NULL, now())", database=name)
        until(made, lambda: letters(made) and rows_of(made, "Orders", ["id", "note"]) == [(1, "a")])
        (letter,) = letters(made)
        assert letter.field == "note"


@WAYS
def test_a_row_of_ten_megabytes(postgres_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    postgres_server.run(
        "CREATE TABLE orders(id bigint PRIMARY KEY, note text NOT NULL, updated_at timestamptz NOT NULL)",
        "INSERT INTO orders SELECT i, repeat(i::text, 10 << 20), now() FROM generate_series(1, 3) i",
        database=name,
    )

    def sizes(made: Any) -> list[tuple[int, str, int]]:
        return [(number, note[:1], len(note)) for number, note in rows_of(made, "Orders", ["id", "note"])]

    with deployed(tmp_path, orders(shop(postgres_server, name), cdc=cdc)) as made:
        until(made, lambda: sizes(made) == [(i, str(i), 10 << 20) for i in (1, 2, 3)])
        postgres_server.run(
            "UPDATE orders SET note = repeat('x', 11 << 20), updated_at = now() WHERE id = 2", database=name
        )
        until(made, lambda: len(sizes(made)) == 3 and sizes(made)[1] == (2, "x", 11 << 20))
        assert letters(made) == []


@WAYS
def test_partitions_generated_and_identity_columns(
    postgres_server: Server, name: str, tmp_path: Path, cdc: str
) -> None:
    """Rows move between partitions when their key is updated, and partitions come and go."""
    postgres_server.run(
        """CREATE TABLE orders(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int NOT NULL,
           note text GENERATED ALWAYS AS ('n' || n::text) STORED, updated_at timestamptz NOT NULL DEFAULT now())
           PARTITION BY RANGE (id)"""
        if cdc == "upsert"
        else """CREATE TABLE orders(id bigint PRIMARY KEY, n int NOT NULL DEFAULT 0, note text NOT NULL DEFAULT 'n1',
           updated_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (id)""",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (20)",
        "INSERT INTO orders(n) VALUES (1), (1)" if cdc == "upsert" else "INSERT INTO orders(id) VALUES (1), (2)",
        database=name,
    )
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc=cdc)) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "n1"), (2, "n1")])
        if cdc == "upsert":
            postgres_server.run("UPDATE orders SET n = 7, updated_at = now() WHERE id = 2", database=name)
            expected = [(1, "n1"), (2, "n7")]
        else:
            postgres_server.run(
                "UPDATE orders SET id = 12, updated_at = now() WHERE id = 2",
                "CREATE TABLE top PARTITION OF orders FOR VALUES FROM (20) TO (30)",
                "INSERT INTO orders(id) VALUES (25)",
                database=name,
            )
            expected = [(1, "n1"), (12, "n1"), (25, "n1")]
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == expected)
        assert letters(made) == []


def test_numbers_and_arrays_that_no_field_has(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """NaN, infinities and arrays of arrays: a dead letter for each row whose value does not fit, and the others arrive."""
    postgres_server.run(
        "CREATE TABLE odd(id bigint PRIMARY KEY, exact numeric, single real, grid int[], at timestamptz NOT NULL)",
        f"""INSERT INTO odd VALUES (1, 1.5, 'NaN', '{{{{1,2}},{{3,4}}}}', {AT}), (2, 'NaN', 'Infinity', NULL, {AT}),
            (3, 'Infinity', 1, NULL, {AT}), (4, NULL, '-Infinity', '{{}}', {AT}), (5, 1e30, 1, NULL, {AT}),
            (6, 2, NULL, '[0:1][2:3]={{{{1,2}},{{3,4}}}}', {AT}), (7, NULL, NULL, '{{{{1,NULL}},{{3,4}}}}', {AT}),
            (8, NULL, NULL, NULL, 'infinity'), (9, NULL, NULL, NULL, '-infinity'), (10, NULL, NULL, NULL, '0044-03-15 BC')""",
        database=name,
    )

    @source(shop(postgres_server, name).table("odd"), disorder="1d", cdc="native")
    @dataset
    class Odd:
        id: int = field(key=True)
        exact: Optional[Decimal[2]]
        single: Optional[float]
        grid: Optional[list[list[Optional[int]]]]
        at: datetime

    with deployed(tmp_path, Odd) as made:
        until(made, lambda: len(letters(made)) + made.taken().get("Odd", 0) >= 10)
        found = {row["id"]: row for row in current(made.changes("Odd"), "id", LATER).to_dicts()}
        reasons = [each.reason for each in letters(made)]
        assert len(found) + len(reasons) == 10, (found, reasons)
        assert sorted(found) == [1, 2, 4, 6, 7], reasons
        assert found[2]["exact"] is None  # as NaN is of an optional field that is no float
        assert found[1]["grid"] == found[6]["grid"] == [[1, 2], [3, 4]]
        assert found[7]["grid"] == [[1, None], [3, 4]]
        assert found[4]["grid"] == []
        assert found[4]["single"] == float("-inf")
        assert str(found[1]["exact"]) == "1.50"


@WAYS
def test_vectors_are_text_and_boxes_have_a_delimiter_of_their_own(
    postgres_server: Server, name: str, tmp_path: Path, cdc: str
) -> None:
    columns = "id int PRIMARY KEY, v int2vector, o oidvector, b box[], at timestamptz NOT NULL DEFAULT now()"
    values = "'1 2', '3', ARRAY[box '((1,2),(0,0))', NULL]"
    run = partial(postgres_server.run, database=name)
    run(f"CREATE TABLE t({columns})", f"INSERT INTO t(id, v, o, b) VALUES (1, {values})")

    @source(
        shop(postgres_server, name).table("t", None if cdc == "native" else "at"), disorder="1d", every="1s", cdc=cdc
    )
    @dataset
    class Vectors:
        id: int = field(key=True)
        v: str
        o: str
        b: list[Optional[str]]
        at: datetime

    with deployed(tmp_path, Vectors) as made:
        until(made, lambda: made.taken().get("Vectors") == 1, 20.0)
        run(f"INSERT INTO t(id, v, o, b) VALUES (2, {values})")
        until(made, lambda: made.taken().get("Vectors") == 2, 20.0)
        expected = ("1 2", "3", ["(1,2),(0,0)", None])
        assert rows_of(made, "Vectors", ["v", "o", "b"]) == [expected, expected]


def utc(*parts: int) -> datetime:
    return datetime(2026, *parts, tzinfo=UTC)


MOMENTS = [
    ("Europe/Berlin", "2026-10-25 02:30:00.000001+02", utc(10, 25, 0, 30, 0, 1), utc(10, 25, 2, 30, 0, 1)),
    ("Europe/Berlin", "2026-10-25 02:30:00.000001+01", utc(10, 25, 1, 30, 0, 1), utc(10, 25, 2, 30, 0, 1)),
    ("Europe/Berlin", "2026-10-25 03:30:00", utc(10, 25, 2, 30), utc(10, 25, 3, 30)),
    ("America/New_York", "2026-11-01 01:30:00", utc(11, 1, 6, 30), utc(11, 1, 1, 30)),
    ("America/New_York", "2026-11-01 02:30:00", utc(11, 1, 7, 30), utc(11, 1, 2, 30)),
    ("Asia/Kathmandu", "2026-11-02 12:00:00", utc(11, 2, 6, 15), utc(11, 2, 12)),
]
"""The zone of a session, the clock's reading that it writes, the instant, and the reading taken as UTC."""


@pytest.mark.parametrize(("cdc", "cursor"), [("upsert", "at"), ("upsert", "naive"), ("native", None)])
def test_zones_of_the_database_the_role_and_sessions(
    postgres_server: Server, name: str, tmp_path: Path, cdc: str, cursor: str | None
) -> None:
    """A timestamptz is an instant; a timestamp is what is written. Hours come twice when summer time ends."""
    run = postgres_server.run
    run("CREATE TABLE moments(n bigint PRIMARY KEY, at timestamptz NOT NULL, naive timestamp NOT NULL)", database=name)
    run(f"ALTER DATABASE {name} SET timezone = 'America/New_York'", f"ALTER DATABASE {name} SET datestyle = 'SQL, DMY'")
    run(f"ALTER ROLE umbel IN DATABASE {name} SET timezone = 'Asia/Kathmandu'")

    @source(
        shop(postgres_server, name).table("moments", cursor),
        disorder="14d",
        every="1s",
        cdc=cdc,
    )
    @dataset
    class Moments:
        n: int = field(key=True)
        at: datetime = field(timestamp=True)
        naive: datetime

    def write(number: int) -> None:
        zone, clock, *_ = MOMENTS[number]
        insert = f"INSERT INTO moments VALUES ({number}, '{clock}', '{clock}')"
        run(f"SET timezone = '{zone}'", "SET datestyle = 'ISO, YMD'", insert, database=name)

    for number in range(3):
        write(number)
    with deployed(tmp_path, Moments) as made:
        until(made, lambda: made.taken().get("Moments") == 3)
        run(f"ALTER DATABASE {name} SET timezone = 'Pacific/Auckland'")
        for number in range(3, len(MOMENTS)):
            write(number)
        until(made, lambda: made.taken().get("Moments") == len(MOMENTS))
        found = {row["n"]: (row["at"], row["naive"]) for row in current(made.changes("Moments"), "n", LATER).to_dicts()}
        assert letters(made) == []
    assert found == {number: (at, naive) for number, (_, _, at, naive) in enumerate(MOMENTS)}


def test_dropped_columns_behind_optional_fields_are_null(
    postgres_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether rows from before come with those from after, or in a session that knows the new table only."""
    monkeypatch.setattr(replication, "SESSION", 0.5)

    @source(shop(postgres_server, name).table("t"), disorder="1d", cdc="native", preproc={"copy": ref("w")})
    @dataset
    class Dropped:
        id: int = field(key=True)
        v: Optional[int]
        copy: Optional[list[int]]
        at: datetime

    def taken() -> list[tuple[Any, ...]]:
        return rows_of(made, "Dropped", ["id", "v", "copy"])

    run = partial(postgres_server.run, database=name)
    run(f"CREATE TABLE t(id int PRIMARY KEY, v int, w int[], at timestamptz NOT NULL DEFAULT {AT})")
    with deployed(tmp_path, Dropped) as made:
        run("INSERT INTO t VALUES (1, 1, '{1}')")
        until(made, lambda: taken() == [(1, 1, [1])], 20.0)
        run("INSERT INTO t VALUES (2, 2, '{2}')", "ALTER TABLE t DROP v, DROP w", "INSERT INTO t VALUES (3)")
        until(made, lambda: taken()[1:] == [(2, 2, [2]), (3, None, None)], 20.0)
        process(made, 1.5)
        run("INSERT INTO t VALUES (4)")
        until(made, lambda: taken()[3:] == [(4, None, None)], 20.0)
        monkeypatch.setattr(replication, "SESSION", 60.0)
        process(made, 1.5)
        run("ALTER TABLE t ADD v int, ADD w int[]", "INSERT INTO t(id, v, w) VALUES (5, 5, '{5}')")
        until(made, lambda: taken()[4:] == [(5, 5, [5])], 20.0)
        assert letters(made) == []


OWN_NAMES = ("op", "committed", "start", "row", "newer", "identity", "before", "times", "again")
"""Names that umbel gives to columns of its own, besides those of a table."""


@WAYS
def test_columns_may_have_names_that_umbel_uses(postgres_server: Server, name: str, tmp_path: Path, cdc: str) -> None:
    more = ", ".join(f"_{each} varchar(9) DEFAULT 'd'" for each in OWN_NAMES)
    create = f"CREATE TABLE orders(id int PRIMARY KEY, {more}, updated_at timestamptz NOT NULL DEFAULT now())"
    postgres_server.run(create, "INSERT INTO orders(id) VALUES (1), (2)", database=name)
    read = orders(shop(postgres_server, name), cdc=cdc, preproc={"note": ref("_op")})
    with deployed(tmp_path, read) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "d"), (2, "d")], 20.0)
        postgres_server.run("INSERT INTO orders(id, _op) VALUES (3, 'x')", database=name)
        postgres_server.run("UPDATE orders SET _op = 'y', updated_at = now() WHERE id = 1", database=name)
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "y"), (2, "d"), (3, "x")], 20.0)
        assert letters(made) == []
