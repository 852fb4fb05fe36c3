"""Tables of Snowflake, of a fake that speaks its protocol, as sinks: types, retractions, kills, tables that do not fit."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.refusing import isolated
from tests.connectors.sink_shop import Shop, Worker, work
from tests.deployed import wait_until
from tests.servers.snowflake import PASSWORD, USER, FakeSnowflake, running
from umbel.connectors import Snowflake
from umbel.connectors.sinks import RowChange, SinkPosition, WriteOptions
from umbel.connectors.snowflake.server import ADDRESS
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError
from umbel.query.encode import to_json
from umbel.types import dtypes as t
from umbel.types.schema import Schema

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
EARLY = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
LARGE = {"USER": "NUMBER(38,0)", "AMOUNT": "FLOAT", "AT": "TIMESTAMP_LTZ(9)"}
NORSE = {"USER": "NUMBER(38,0)", "CITY": "VARCHAR(100)", "AT": "TIMESTAMP_NTZ(9)"}


@pytest.fixture
def snow(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSnowflake]:
    with running() as fake:
        monkeypatch.setenv(ADDRESS, fake.address)
        yield fake


def table(name: str, **options: Any) -> Any:
    login = {"username": USER, "password": PASSWORD, "role": "WRITER", **options}
    source = Snowflake(name="shop", account="org-acc", db_name="SHOP", schema="PUBLIC", warehouse="W", **login)
    return source.table(name)


def writer(name: str, schema: Schema, **renames: str) -> Any:
    return table(name).writer_of(WriteOptions(id="x", dataset="T", schema=schema, renames=renames))


def plain(schema: Schema, rows: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return rows as a sink gets them."""
    stored = {each: schema.dtypes[each].convert(column).values for each, column in rows.items()}
    found = to_json(stored, schema.dtypes)
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def shop(folder: Path, large: str = "large", norse: str = "norse") -> Any:
    return contextlib.closing(Shop(folder, table(large), table(norse), how="incremental"))


VALUES = {
    "b": t.Optional(t.Bytes()), "n": t.Decimal(2), "l": t.List(t.Str()), "d": t.Dict(t.Int()), "f": t.Float(), "yes": t.Bool(),
    "day": t.Optional(t.Date()), "o": t.Optional(t.Str()), "utc": t.Datetime(), "zoned": t.Optional(t.Datetime()),
    "text": t.Int(), "long": t.Datetime(), "exact": t.Optional(t.Decimal(20)),
    "vec": t.Embedding(2),
}  # fmt: skip
TYPES = {
    "ID": "NUMBER(38,0)", "B": "BINARY(8388608)", "N": "NUMBER(38,4)", "L": "ARRAY", "D": "OBJECT", "F": "FLOAT",
    "YES": "BOOLEAN", "DAY": "DATE", 'The "o" of \\ 100%': "VARCHAR(16777216)", "UTC": "TIMESTAMP_NTZ(6)",
    "ZONED": "TIMESTAMP_TZ(9)", "TEXT": "VARCHAR(20)", "LONG": "VARCHAR(40)", "EXACT": "NUMBER(38,20)", "VEC": "VARIANT",
    "AT": "TIMESTAMP_LTZ(9)", "MORE": "NUMBER(10,0)",
}  # fmt: skip
ROWS: dict[str, list[Any]] = {
    "id": [2**63 - 1, -(2**63)], "b": [b"\x00\xff", None], "n": ["12345678901234567890123456.50", "-3.25"],
    "l": [["a", "ü\"'\\"], []], "d": [{"x": 1}, {}], "f": [float("nan"), -math.inf], "yes": [True, False],
    "day": [date(2024, 2, 29), None], "o": [None, "%s ? \\ ' \" \n ü"], "utc": [AT, EARLY], "zoned": [None, AT],
    "text": [7, -7], "long": [AT, AT], "exact": [None, "12345678.12345678901234567890"], "vec": [[0.5, 1.5]] * 2,
    "at": [AT, AT],
}  # fmt: skip


def test_each_type_is_written_as_it_is(snow: FakeSnowflake) -> None:
    schema = Schema((("id", t.Int()),), tuple(VALUES.items()), "at")
    snow.create("T", TYPES, ["ID"])
    made = writer("t", schema, o='The "o" of \\ 100%')
    assert made.position() == SinkPosition()
    rows = plain(schema, ROWS)
    made.write([RowChange({"id": each["id"]}, None, each, 0) for each in rows], SinkPosition(3, 0))
    assert made.position() == SinkPosition(3, 0)
    found = snow.run(
        "SELECT B, N::VARCHAR, L, D, F::VARCHAR, YES, DAY, columns('The.*'), UTC::TIMESTAMP, ZONED, TEXT, LONG, EXACT,"
        ' VEC, T."AT", MORE FROM T ORDER BY ID DESC'
    )
    stamp = "2026-03-01T12:30:15.123456Z"
    assert [list(each) for each in found] == [
        [b"\x00\xff", "12345678901234567890123456.5000", '["a","ü\\"\'\\\\"]', '{"x":1}', "nan", True, date(2024, 2, 29),
         None, AT.replace(tzinfo=None), None, "7", stamp, None, "[0.5,1.5]", AT, None],
        [None, "-3.2500", "[]", "{}", "-inf", False, None, "%s ? \\ ' \" \n ü", EARLY.replace(tzinfo=None), AT, "-7", stamp,
         Number("12345678.12345678901234567890"), "[0.5,1.5]", AT, None],
    ]  # fmt: skip
    made.write([RowChange({"id": rows[0]["id"]}, rows[0], None, 0)], SinkPosition(4, 0))
    assert snow.run("SELECT count(*) FROM T") == [(1,)]


def test_rows_are_sent_in_parts(snow: FakeSnowflake) -> None:
    schema = Schema((("id", t.Int()),), (("note", t.Str()),), "at")
    snow.create("T", {"ID": "NUMBER(38,0)", "NOTE": "VARCHAR", "AT": "TIMESTAMP_NTZ(9)"})
    made = writer("t", schema)
    made.position()
    rows = plain(schema, {"id": list(range(3000)), "note": ["ü" * 500] * 2999 + ["x" * 9_000_000], "at": [AT] * 3000})
    made.write([RowChange({"id": each["id"]}, None, each, 0) for each in rows], SinkPosition(1, 0))
    assert snow.run("SELECT count(*), sum(length(NOTE)) FROM T") == [(3000, 2999 * 500 + 9_000_000)]
    assert sum(each.startswith('MERGE INTO "T"') for each in snow.statements) == 5


def test_one_of_equal_rows_is_retracted(snow: FakeSnowflake) -> None:
    """Null equals null, as does NaN; what the table does not have is left out."""
    schema = Schema((), (("a", t.Optional(t.Int())), ("f", t.Float()), ("d", t.Dict(t.Int()))), "at")
    snow.create("T", {"A": "NUMBER(38,0)", "F": "FLOAT", "D": "VARIANT", "AT": "TIMESTAMP_TZ(9)"})
    made = writer("t", schema)
    made.position()
    rows = plain(
        schema,
        {"a": [None, 1, 2, 9], "f": [float("nan"), 1.5, 2.5, 9.0], "d": [{"k": 1}, {}, {}, {}], "at": [AT] * 4},
    )
    first, second, third, never = rows
    made.write([RowChange(None, None, each, 0) for each in [first] * 3 + [second] * 2 + [third]], SinkPosition(1, 0))
    gone = [RowChange(None, each, None, 0) for each in (first, second, second, third, never)]
    made.write([*gone, RowChange(None, None, never, 0)], SinkPosition(2, 0))
    assert snow.run("SELECT A, count(*) FROM T GROUP BY A ORDER BY A NULLS FIRST") == [(None, 2), (9, 1)]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_rows_that_the_table_refuses_are_found_and_the_others_committed_at_once(
    snow: FakeSnowflake, is_keyed: bool
) -> None:
    fields = (("id", t.Int()),), (("note", t.Optional(t.Str())),)
    schema = Schema(fields[0] if is_keyed else (), fields[1] if is_keyed else fields[0] + fields[1], "at")
    snow.create("T", {"ID": "NUMBER(38,0)", "NOTE": "VARCHAR(3) NOT NULL", "AT": "TIMESTAMP_TZ(9)"})
    made = writer("t", schema)
    made.position()
    notes = ["ok", "long", None, "abc", *["x"] * 46, "longer"]
    rows = plain(schema, {"id": list(range(51)), "note": notes, "at": [AT] * 51})
    key: Any = (lambda row: {"id": row["id"]}) if is_keyed else lambda _: None
    found = isolated(made, [RowChange(key(row), None, row, 0) for row in rows])
    assert [each.number for each in found.refused] == [1, 2, 50]
    assert all("T" in each.error.message for each in found.refused)
    accepted = [n for n in range(50) if n not in (1, 2)]
    assert snow.run("SELECT ID FROM T ORDER BY ID") == [(n,) for n in accepted]
    assert made.position() == SinkPosition(1)
    gone = [RowChange(key(row), row, None, 0) for row in rows[:4]]  # a retraction of what was refused is none
    made.write(gone, SinkPosition(2))
    assert snow.run("SELECT ID FROM T ORDER BY ID") == [(n,) for n in accepted if n > 3]


def test_rows_that_another_client_changes_meanwhile_are_not_lost(
    snow: FakeSnowflake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors.snowflake import sink

    schema = Schema((), (("a", t.Int()),), "at")
    snow.create("T", {"A": "NUMBER(38,0)", "AT": "TIMESTAMP_NTZ(9)"})
    made = writer("t", schema)
    made.position()
    (row,) = plain(schema, {"a": [1], "at": [AT]})
    made.write([RowChange(None, None, row, 0)] * 3, SinkPosition(1, 0))
    counted = sink._rows

    def changed(connection: Any, statement: str, *values: Any) -> Any:
        return [[mark, str(int(count) + 1)] for mark, count in counted(connection, statement, *values)]

    with monkeypatch.context() as patch:
        patch.setattr(sink, "_rows", changed)
        with pytest.raises(Transient, match="meanwhile"):
            made.write([RowChange(None, row, None, 0)], SinkPosition(2, 0))
    assert snow.run("SELECT count(*) FROM T") == [(3,)]
    assert made.position() == SinkPosition(1, 0)


def test_answers_that_are_lost(snow: FakeSnowflake, tmp_path: Path) -> None:
    """The library sends a request again, with its id."""
    snow.create("LARGE", LARGE)
    snow.create("NORSE", NORSE)
    chance, last = random.Random(random.randrange(1 << 30)), [""]

    def loses(statement: str) -> bool:
        last.append(statement)
        return last[-1] != last[-2] and chance.random() < 0.3

    snow.loses = loses
    with shop(tmp_path) as made:
        for _ in range(5):
            made.sell(20, 30)
            made.move(chance.randint(1, 3), chance.choice(["Oslo", None]))
            made.deliver()
        assert snow.run("SELECT AMOUNT FROM LARGE ORDER BY 1") == [(each,) for each in sorted(made.amounts)]
        assert dict(snow.run('SELECT "USER", CITY FROM NORSE')) == made.cities
    assert len(last) > len(snow.statements) + 1, "some were sent again"


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "point",
    [
        "COMMIT",
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in ("UPDATE umbel_sinks", "MERGE INTO umbel_sinks", 'MERGE INTO "NORSE"')
        ),
    ],
)
def test_a_worker_is_killed_before_it_has_the_answer(
    snow: FakeSnowflake, tmp_path: Path, point: str, kills: int
) -> None:
    """An open transaction is left behind, and in the way of the next worker, until the server ends it."""
    snow.create("LARGE", LARGE)
    snow.create("NORSE", NORSE)
    with shop(tmp_path) as made:
        worker, chance, killed = Worker(made, {ADDRESS: snow.address}), random.Random(5), [0]

        def loses(statement: str) -> bool:
            is_there = statement.startswith(point) and (point != "COMMIT" or "UPDATE" in snow.statements[-2])
            if is_there and killed[0] < kills:
                killed[0] += 1
                worker.kill()
                return True
            return False

        snow.loses = loses

        def is_done() -> bool:
            worker.mind()
            if killed[0] < kills:
                work(made, chance)
                return False
            amounts = snow.run("SELECT AMOUNT FROM LARGE ORDER BY 1")
            rows = snow.run('SELECT "USER", CITY FROM NORSE ORDER BY 1')
            return amounts == [(each,) for each in sorted(made.amounts)] and rows == sorted(made.cities.items())

        try:
            wait_until(is_done, lambda: killed, 30 + 20 * kills)
        finally:
            worker.kill()


# ---- what does not fit


def test_a_table_that_does_not_fit_is_refused_until_it_does(snow: FakeSnowflake, tmp_path: Path) -> None:
    cases: list[tuple[Any, str]] = [
        (None, r"'LARGE' does not exist(?s:.*)GRANT SELECT, INSERT, UPDATE, DELETE on it"),
        ({**LARGE, "AMOUNT": None, "AMOUNTS": "FLOAT"}, r"no column 'amount'; did you mean 'amounts'"),
        ({**LARGE, "AMOUNT": "NUMBER(10,2)"}, r'"AMOUNT" of type NUMBER\(10,2\) cannot hold(?s:.*)of type FLOAT'),
        ({**LARGE, "USER": "FLOAT"}, r'"USER" of type FLOAT cannot hold(?s:.*)of type NUMBER\(38, 0\)'),
        ({**LARGE, "AT": "TIMESTAMP_LTZ(3)"}, r'"AT" of type TIMESTAMP_LTZ\(3\) cannot hold(?s:.*)TIMESTAMP_LTZ'),
        ({**LARGE, "AT": "DATE"}, r'"AT" of type DATE cannot hold'),
        ({**LARGE, "SHOP": "VARCHAR(9) NOT NULL"}, r"NOT NULL"),
        ({**LARGE, "USER": "VARCHAR(0)"}, r"CHECK"),
    ]
    snow.create("NORSE", NORSE)
    with pytest.raises(UmbelError, match=cases[0][1]):
        shop(tmp_path / "refused at the commit")
    snow.create("LARGE", LARGE)
    with shop(tmp_path) as made:
        made.sell(20)
        made.drain()
        for columns, reason in cases:
            if columns is None:
                del snow.tables["LARGE"]
            else:
                snow.create("LARGE", {name: kind for name, kind in columns.items() if kind})
            with pytest.raises(UmbelError, match=reason):
                made.delivery("Large").step()
        snow.create("LARGE", LARGE)
        snow.read_only.add("LARGE")
        with pytest.raises(InvalidValue, match=r"Insufficient privileges(?s:.*)GRANT SELECT, INSERT, UPDATE, DELETE"):
            made.delivery("Large").step()
        snow.read_only.clear()
        made.delivery("Large").step()
        assert snow.run("SELECT AMOUNT FROM LARGE") == [(20.0,)]


def test_a_commit_examines_the_table(snow: FakeSnowflake) -> None:
    schema = Schema((("user", t.Int()),), (("amount", t.Float()),), "at")
    with pytest.raises(InvalidValue, match="does not exist"):
        writer("large", schema).examine()
    snow.create("LARGE", {**LARGE, "AMOUNT": "NUMBER(10,2)"})
    with pytest.raises(InvalidValue, match="cannot hold each value of field 'amount'"):
        writer("large", schema).examine()
    snow.create("LARGE", LARGE)
    writer("large", schema).examine()
    assert not any("umbel_sinks" in each for each in snow.statements)


def test_a_table_retyped_or_dropped_between_deliveries(snow: FakeSnowflake, tmp_path: Path) -> None:
    snow.create("LARGE", LARGE)
    snow.create("NORSE", NORSE)
    with shop(tmp_path) as made:
        made.sell(20)
        made.drain()
        (delivery := made.delivery("Large")).step()
        made.sell(30)
        made.drain()
        snow.create("LARGE", {**LARGE, "AMOUNT": "NUMBER(38,0)"})
        with pytest.raises(InvalidValue, match="cannot hold each value of field 'amount'"):
            delivery.step()
        del snow.tables["LARGE"]
        with pytest.raises(InvalidValue, match="does not exist"):
            delivery.step()
        snow.create("LARGE", {**LARGE, "AMOUNT": "VARCHAR(16777216)"})
        delivery.step()
        assert snow.run("SELECT AMOUNT FROM LARGE") == [("30.0",)]


@pytest.mark.parametrize(("dtype", "column", "fits"), [
    (t.Decimal(2), "NUMBER(10,1)", False), (t.Decimal(2), "NUMBER(10,2)", True), (t.Decimal(2), "FLOAT", False),
    (t.Str(), "NUMBER(38,0)", False), (t.Bytes(), "VARCHAR", False), (t.Datetime(), "TIMESTAMP_NTZ(0)", False),
    (t.Datetime(), "TIMESTAMP_NTZ(6)", True), (t.List(t.Int()), "OBJECT", False), (t.List(t.Int()), "VARIANT", True),
    (t.Bool(), "NUMBER(1,0)", False), (t.Date(), "TIMESTAMP_NTZ(9)", False), (t.Int(), "DECFLOAT(38)", True),
    (t.Optional(t.Between(t.Int(), 1, 5)), "NUMBER(5,0)", True), (t.Dict(t.Int()), "MAP(VARCHAR, NUMBER)", False),
    (t.Embedding(2), "VECTOR(FLOAT, 2)", False), (t.Str(), "TIME(9)", False),
])  # fmt: skip
def test_columns_that_would_round_are_refused(dtype: Any, column: str, fits: bool) -> None:
    from umbel.connectors.snowflake.casts import cast_of
    from umbel.connectors.snowflake.columns import described

    refused = contextlib.nullcontext() if fits else pytest.raises(InvalidValue, match=r"let the column be of type \w+")
    with refused:
        cast_of("f", dtype, described("F", column, is_primary=False), '"F"')


def test_two_positions_of_one_sink_are_refused(snow: FakeSnowflake) -> None:
    schema = Schema((), (("a", t.Int()),), "at")
    snow.create("T", {"A": "NUMBER(38,0)", "AT": "TIMESTAMP_NTZ(9)"})
    made = writer("t", schema)
    made.position()
    snow.run("INSERT INTO UMBEL_SINKS SELECT * FROM UMBEL_SINKS")
    with pytest.raises(InvalidValue, match=r"has 2 rows of sink 'x'(?s:.*)highest batch"):
        made.position()


def test_a_position_outlives_its_writer_and_needs_no_right_to_create(snow: FakeSnowflake) -> None:
    schema = Schema((), (("a", t.Int()),), "at")
    snow.create("T", {"A": "NUMBER(38,0)", "AT": "TIMESTAMP_NTZ(9)"})
    former, later = writer("t", schema), writer("t", schema)
    former.position()
    (row,) = plain(schema, {"a": [1], "at": [AT]})
    assert later.position() == SinkPosition()
    with pytest.raises(Transient, match="taken over"):
        former.write([RowChange(None, None, row, 0)], SinkPosition(1, 0))
    assert snow.run("SELECT count(*) FROM T") == [(0,)]
    assert sum(each.startswith("CREATE") for each in snow.statements) == 1


def test_a_wrong_password_and_an_account_that_is_away(snow: FakeSnowflake, monkeypatch: pytest.MonkeyPatch) -> None:
    from umbel.connectors.snowflake import server

    schema = Schema((), (("a", t.Int()),), "at")
    options = WriteOptions(id="x", dataset="T", schema=schema, renames={})
    with pytest.raises(InvalidValue, match="Incorrect username") as error:
        table("t", password="wrong-8731").writer_of(options).position()
    assert "wrong-8731" not in str(error.value)
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9")
    with pytest.raises(Transient, match="can be reached"):
        table("t").writer_of(options).position()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    with pytest.raises(PackageError, match=r"pip install 'umbel\[snowflake\]'"):
        table("t").check_writer()
