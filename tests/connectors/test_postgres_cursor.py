"""Tables of a real PostgreSQL server read by a cursor: every row once, by one statement per period."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.connectors.postgres_shop import ORDERS, database, shop
from tests.connectors.shop_datasets import deployed, first_split, letters, orders, process, rows_of, until
from tests.running_files import files_with
from tests.servers.postgres import PASSWORD, PostgresServer
from umbel.connectors import source
from umbel.connectors.polling import stop_polling
from umbel.connectors.postgres import copying
from umbel.datasets import dataset
from umbel.definitions.secret import Secret
from umbel.dtypes import Decimal, struct
from umbel.errors import InvalidValue, Transient
from umbel.types.dtypes import Str

__owner__ = "shop@example.com"
Server = PostgresServer


@pytest.fixture
def name(postgres_server: Server) -> Iterator[str]:
    return database(postgres_server)


def inserted(server: Server, name: str, first: int, last: int, at: str = "now()") -> None:
    server.run(f"INSERT INTO orders SELECT i, 'n' || i, {at} FROM generate_series({first}, {last}) i", database=name)


def table(server: Server, name: str, query: str = "SELECT * FROM orders ORDER BY 1") -> list[Any]:
    return server.run("SET timezone = 'UTC'", query, database=name)


def test_rows_and_their_updates_arrive(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, database=name)
    inserted(postgres_server, name, 1, 1000)
    with deployed(tmp_path, orders(shop(postgres_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 1000)
        postgres_server.run("UPDATE orders SET note = 'new', updated_at = now() WHERE id <= 10", database=name)
        inserted(postgres_server, name, 1001, 1005)
        until(made, lambda: made.taken()["Orders"] == 1015)
        assert rows_of(made, "Orders", ["id", "note", "updated_at"]) == table(postgres_server, name)


def keyless(postgres: Any, cursor: str, every: str = "1s", disorder: str = "1h", table: str = "events") -> Any:
    @source(postgres.table(table, cursor), disorder=disorder, every=every, cdc="append")
    @dataset
    class Events:
        n: int
        at: datetime

    return Events


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        *((each, "n int") for each in ("c", "n", "word")),
        ("n", "id bigserial PRIMARY KEY, n int"),
        *(pytest.param(each, "n int", marks=pytest.mark.nightly) for each in ("day", "naive")),
        *(
            pytest.param(each, "id bigserial PRIMARY KEY, n int", marks=pytest.mark.nightly)
            for each in ("c", "word", "day", "naive")
        ),
    ],
)
def test_equal_cursors_are_neither_lost_nor_doubled(
    postgres_server: Server, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, keys: str
) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", 2000)  # parts end among equal values
    postgres_server.run(
        f"CREATE TABLE events({keys}, at timestamptz DEFAULT now(), c timestamptz, word text, day date, naive timestamp)",
        database=name,
    )

    def more(first: int, last: int) -> None:
        postgres_server.run(
            f"""INSERT INTO events(n, c, word, day, naive)
                SELECT i / 100, t, 'w' || lpad((i / 100)::text, 5, '0'), date '2024-01-01' + i / 300, t AT TIME ZONE 'UTC'
                FROM generate_series({first}, {last}) i, LATERAL
                (SELECT timestamptz '2024-01-01' + i / 100 * interval '1 s' t) _""",
            database=name,
        )

    with deployed(tmp_path, keyless(shop(postgres_server, name), column)) as made:
        more(1, 450)
        until(made, lambda: made.taken().get("Events") == 450)
        more(451, 600)  # the first 49 have the highest cursor read so far
        until(made, lambda: made.taken()["Events"] >= 600)
        process(made, 1.5)
        found = made.changes("Events").group_by("n").len().sort("n").rows()
    assert found == table(postgres_server, name, "SELECT n, count(*) FROM events GROUP BY n ORDER BY n")


def test_a_row_that_commits_late_is_found(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """By `disorder` for times; for numbers as long as its transaction is open."""
    postgres_server.run("CREATE TABLE events(n bigserial PRIMARY KEY, at timestamptz DEFAULT now())", database=name)
    by_time, by_number = (keyless(shop(postgres_server, name), each) for each in ("at", "n"))
    with (
        deployed(tmp_path / "a", by_time) as a,
        deployed(tmp_path / "b", by_number) as b,
        postgres_server.connect(name, autocommit=False) as late,
    ):
        late.execute("INSERT INTO events DEFAULT VALUES")
        for _ in range(3):
            postgres_server.run("INSERT INTO events DEFAULT VALUES", database=name)
        for made in (a, b):
            until(made, lambda made=made: made.taken().get("Events") == 3)
        late.commit()
        postgres_server.run("INSERT INTO events DEFAULT VALUES", database=name)
        for made in (a, b):
            until(made, lambda made=made: made.taken()["Events"] >= 5)
            assert sorted(made.changes("Events")["n"]) == [1, 2, 3, 4, 5]


def test_one_statement_per_period(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """As the server's own log has it."""
    postgres_server.run(
        ORDERS, "CREATE ROLE watched LOGIN PASSWORD 'w'", "GRANT SELECT ON orders TO watched", database=name
    )
    postgres_server.run("ALTER ROLE watched SET log_statement = 'all'")
    inserted(postgres_server, name, 1, 5000)
    read = orders(shop(postgres_server, name, username="watched", password="w"), every="2s")
    start = time.monotonic()
    with deployed(tmp_path, read) as made:
        while time.monotonic() - start < 7:
            process(made, 0.7)
            stop_polling(tmp_path)  # as restarts would do
        assert made.taken() == {"Orders": 5000}
    log = postgres_server.log.read_text()
    found = [line for line in log.splitlines() if "LOG:  statement:" in line and '"orders"' in line and "COPY" in line]
    assert 3 <= len(found) <= (time.monotonic() - start) / 2 + 2
    assert all(re.search(r"ORDER BY \"updated_at\"", line) for line in found)


@struct
class Size:
    width: int
    height: int


THINGS = (
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE DOMAIN cents AS int",
    """CREATE TABLE things(
        at timestamptz, small smallint, normal integer, big bigint, cents cents, exact numeric(12, 3), free numeric,
        single real, double double precision, yes boolean, words text, short varchar(10), doc json, docb jsonb, size jsonb,
        numbers int[], texts text[], naive timestamp, day date, id uuid, raw bytea, feeling mood, nothing int)""",
    """INSERT INTO things VALUES (
        '2024-02-29 12:34:56.789012+02', -32768, 2147483647, 9223372036854775807, 5, -123456789.125, 0.1234567890123456,
        0.1, 'Infinity', true, E'a,"b"\n\\\\N', '', '{"a": 1}', '[1, 2]', '{"width": 1, "height": 2}',
        '{1,-2,3}', '{"a b","c\\"d","",NULL,"NULL"}', '2024-01-01 00:00:00', '2024-02-29',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x00ff', 'happy', NULL)""",
    """INSERT INTO things(at, words) VALUES ('2024-03-01', 'all others are null')""",
)
THING = {
    "at": datetime(2024, 2, 29, 10, 34, 56, 789012, UTC),
    "small": -32768,
    "normal": 2147483647,
    "big": 9223372036854775807,
    "cents": 5,
    "exact": Number("-123456789.125"),
    "free": Number("0.1234567890123456"),
    "single": 0.1,
    "double": float("inf"),
    "yes": True,
    "words": 'a,"b"\n\\N',
    "short": "",
    "doc": '{"a": 1}',
    "docb": [1, 2],
    "size": {"width": 1, "height": 2},
    "numbers": [1, -2, 3],
    "texts": ["a b", 'c"d', "", None, "NULL"],
    "naive": datetime(2024, 1, 1, tzinfo=UTC),
    "day": date(2024, 2, 29),
    "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "raw": b"\x00\xff",
    "feeling": "happy",
    "nothing": None,
}


def test_types_are_mapped_exactly(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(
        *THINGS,
        database=name,
    )

    @source(shop(postgres_server, name).table("things", "at"), disorder="1d", every="1s", cdc="append")
    @dataset
    class Things:
        at: datetime
        small: Optional[int]
        normal: Optional[int]
        big: Optional[int]
        cents: Optional[int]
        exact: Optional[Decimal[3]]
        free: Optional[Decimal[16]]
        single: Optional[float]
        double: Optional[float]
        yes: Optional[bool]
        words: str
        short: Optional[str]
        doc: Optional[str]
        docb: Optional[list[int]]
        size: Optional[Size]
        numbers: Optional[list[int]]
        texts: Optional[list[Optional[str]]]
        naive: Optional[datetime]
        day: Optional[date]
        id: Optional[str]
        raw: Optional[bytes]
        feeling: Optional[str]
        nothing: Optional[int]

    with deployed(tmp_path, Things) as made:
        until(made, lambda: made.taken().get("Things") == 2)
        first, second = made.changes("Things").sort("at").select(list(Things.schema())).to_dicts()
    assert first == THING
    assert {column for column, value in second.items() if value is not None} == {"at", "words"}


def test_errors_at_commit_say_what_to_do(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, "CREATE ROLE poor LOGIN PASSWORD 'p'", database=name)
    cases: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
        ({}, {"table": "order"}, InvalidValue, "no table \"order\"; did you mean 'orders'"),
        (
            {"password": "wr0ng"},
            {},
            InvalidValue,
            "password authentication failed .*\n.*correct username= and password=",
        ),
        ({"name": "nowhere"}, {}, InvalidValue, 'database "nowhere" does not exist'),
        (
            {"username": "poor", "password": "p"},
            {},
            InvalidValue,
            "permission denied for table orders.*\n.*GRANT SELECT",
        ),
        ({"port": 1}, {}, Transient, "refused.*\n.*see that the server runs"),
    ]
    for login, options, kind, message in cases:
        options = {"every": "1s", **options}
        read = orders(shop(postgres_server, **{"name": name, **login}), **options)
        with pytest.raises(kind) as caught, deployed(tmp_path / "x", read):
            pass
        assert re.search(message, str(caught.value)), str(caught.value)
        assert PASSWORD not in str(caught.value)
        assert "wr0ng" not in str(caught.value)


def test_a_missing_column_is_named_at_commit(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run("CREATE TABLE orders(id bigint, notes text, updated_at timestamptz, tags int[])", database=name)
    with (
        pytest.raises(InvalidValue, match="has no column 'note'; did you mean 'notes'"),
        deployed(tmp_path, orders(shop(postgres_server, name))),
    ):
        pass


def test_a_dropped_column_stops_reading_until_it_is_back(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, database=name)
    inserted(postgres_server, name, 1, 3)
    with deployed(tmp_path, orders(shop(postgres_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 3)
        postgres_server.run("ALTER TABLE orders RENAME note TO remark", database=name)
        inserted(postgres_server, name, 4, 5)
        until(made, lambda: letters(made))
        assert re.search(
            "no column 'note'|column \"note\" does not exist", letters(made)[0].reason
        )  # before or while reading
        postgres_server.run("ALTER TABLE orders RENAME remark TO note", database=name)
        until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 5)


@pytest.mark.parametrize(
    "change", ["ALTER at TYPE timestamp USING at AT TIME ZONE 'UTC'", "ALTER n TYPE numeric(9, 2)"]
)
def test_rows_are_recognised_in_an_altered_table(
    postgres_server: Server, name: str, tmp_path: Path, change: str
) -> None:
    """Reading stopped where the text of the highest cursor had a zone; else each row counted twice."""
    postgres_server.run("CREATE TABLE events(n int, at timestamptz)", database=name)

    def more(first: int, last: int) -> None:
        postgres_server.run(
            f"INSERT INTO events SELECT i, now() FROM generate_series({first}, {last}) i", database=name
        )

    more(1, 20)
    with deployed(tmp_path, keyless(shop(postgres_server, name), "at")) as made:
        until(made, lambda: made.taken().get("Events") == 20)
        postgres_server.run(f"ALTER TABLE events {change}", database=name)
        more(21, 25)
        until(made, lambda: made.taken()["Events"] >= 25, 30)
        process(made, 1.5)
        assert sorted(made.changes("Events")["n"]) == list(range(1, 26))
        assert letters(made) == []


def test_a_restarted_server_loses_nothing(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, database=name)
    inserted(postgres_server, name, 1, 10)
    with deployed(tmp_path, orders(shop(postgres_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        postgres_server.kill()
        time.sleep(1.5)
        postgres_server.start()
        inserted(postgres_server, name, 11, 20)
        until(made, lambda: made.taken()["Orders"] == 20)
        assert letters(made) == []


def test_a_split_gives_the_same_rows_again(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, database=name)
    inserted(postgres_server, name, 1, 100)
    with deployed(tmp_path, orders(shop(postgres_server, name))) as made:
        until(made, lambda: made.taken().get("Orders") == 100)
        postgres_server.run("UPDATE orders SET note = 'other'", "DELETE FROM orders WHERE id > 50", database=name)
        split = first_split(made)
        opened = next(each for each in made.deployment._sources()[1])
        for _ in range(2):
            (batch,) = opened.open_all([split.split], {"note": Str()})
            assert batch.raw.frame["note"].to_list() == [f"n{i}" for i in range(1, 101)]
            assert batch.first == 0


def test_a_password_may_be_a_secret_of_the_deployment(postgres_server: Server, name: str, tmp_path: Path) -> None:
    """Then no file has it, not even the catalog."""
    postgres_server.run(ORDERS, database=name)
    inserted(postgres_server, name, 1, 10)
    read = orders(shop(postgres_server, name, password=Secret(arn="shop")))
    with pytest.raises(Transient, match=r"(?s)no secret 'shop'.*add_secret"), deployed(tmp_path, read):
        pass
    with deployed(tmp_path) as made:
        made.deployment.vault.add("shop", PASSWORD)
        made.commit([read])
        until(made, lambda: made.taken().get("Orders") == 10)
        assert files_with(PASSWORD, tmp_path) == []


def test_the_password_is_in_no_file_but_the_catalog(postgres_server: Server, name: str, tmp_path: Path) -> None:
    postgres_server.run(ORDERS, database=name)
    inserted(postgres_server, name, 1, 10)
    read = shop(postgres_server, name)
    assert PASSWORD not in repr(read)
    assert PASSWORD not in repr(read.table("orders", "updated_at"))
    with deployed(tmp_path, orders(read)) as made:
        until(made, lambda: made.taken().get("Orders") == 10)
        assert files_with(PASSWORD, tmp_path, besides="catalog.db", more_than=5) == []
