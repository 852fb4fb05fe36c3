from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from umbel.errors import InvalidType, InvalidValue, Terminal
from umbel.state.keys import encode_keys
from umbel.state.port import Stamp, Store
from umbel.state.runs.points import frame_of
from umbel.state.runs.rules import FoldRule, TableSchema
from umbel.state.tables import NUMBER, State
from umbel.state.urls import open_store

INSTANT = pl.Datetime("us", "UTC")
COLUMNS = {"n": pl.Int64, "s": pl.String}
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory://", "file://{folder}?sync=off"], ids=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(request.param.format(folder=tmp_path / "db"), 1)
    yield opened
    opened.close()


@pytest.fixture
def state(store: Store) -> Iterator[State]:
    with store.transaction(0, ["me", "you"], Stamp(1, 1)) as tx:
        yield State(tx, "me")


def keys(*names: str) -> pl.Series:
    return encode_keys(pl.DataFrame({"k": pl.Series(names, dtype=pl.String)}))


def at(hour: int | None) -> datetime | None:
    return None if hour is None else FIRST + timedelta(hours=hour)


def rows(*values: tuple[str, int | None, str | None]) -> pl.DataFrame:
    body = pl.DataFrame([row[1:] for row in values], COLUMNS, orient="row")
    return body.select(keys(*[row[0] for row in values]), pl.all())


def entries(*values: tuple[str, int]) -> pl.DataFrame:
    times = pl.Series("_time", [at(hour) for _, hour in values], dtype=INSTANT)
    return pl.DataFrame([keys(*[name for name, _ in values]), times])


def timed(*values: tuple[str, int, int]) -> pl.DataFrame:
    return entries(*[row[:2] for row in values]).with_columns(n=pl.Series([row[2] for row in values], dtype=pl.Int64))


def ranges(*values: tuple[str, int | None, int | None]) -> pl.DataFrame:
    bounds = {name: [at(row[place]) for row in values] for place, name in ((1, "_low"), (2, "_high"))}
    body = pl.DataFrame(bounds, {"_low": INSTANT, "_high": INSTANT})
    return body.select(keys(*[row[0] for row in values]), pl.all())


def hours(frame: pl.DataFrame) -> list[tuple[bytes, int]]:
    return [(key, (time - FIRST) // timedelta(hours=1)) for key, time in frame.select("_key", "_time").rows()]


def test_groups_are_put_read_and_removed(state: State) -> None:
    table = state.table("t", COLUMNS)
    table.replace(keys("a", "b"), rows(("b", 1, "x"), ("a", 2, None), ("b", 0, "y")))
    found = table.get(keys("b", "nothing", "a", "b"))
    assert found.equals(rows(("a", 2, None), ("b", 1, "x"), ("b", 0, "y")))
    table.replace(keys("b", "c"), rows(("c", 3, "z")))
    assert table.get(keys("a", "b", "c")).equals(rows(("a", 2, None), ("c", 3, "z")))
    table.replace(keys("a", "c"), rows())
    assert table.get(keys("a", "b", "c")).height == 0


def test_empty_reads_have_the_columns(state: State) -> None:
    table, timed_table = state.table("t", COLUMNS), state.timed("u", COLUMNS)
    plain = {"_key": pl.Binary, **COLUMNS}
    for _ in range(2):
        assert table.get(keys("a")).schema == plain
        assert table.get(keys()).schema == plain
        assert table.numbered(keys()).schema == table.numbered(keys("a")).schema == {NUMBER: pl.UInt32, **COLUMNS}
        assert table.groups([keys("a").item(), b""]) == [None, None]
        assert table.groups([]) == []
        with_time = {"_key": pl.Binary, "_time": INSTANT, **COLUMNS}
        assert timed_table.all().schema == timed_table.until(0).schema == with_time
        assert timed_table.scan(ranges(("a", None, None)), before=True, after=True).schema == with_time
        assert timed_table.scan(ranges()).schema == with_time
        assert timed_table.floor(entries(("a", 1))).schema == {"_point": pl.UInt32, "_time": INSTANT, **COLUMNS}
        assert timed_table.floor(entries()).height == 0
        assert timed_table.latest([keys("a").item()], [0]) == [None]
        table.replace(keys(), rows())
        timed_table.replace(entries(), entries().with_columns(n=pl.lit(1, pl.Int64), s=pl.lit("")))
        table.replace(keys("a"), rows())
        timed_table.replace(entries(("a", 1)), entries().with_columns(n=pl.lit(1, pl.Int64), s=pl.lit("")))


def test_groups_are_replaced_by_number(state: State) -> None:
    table = state.table("t", COLUMNS)
    table.replace(keys("a", "b", "c"), rows(("a", 1, "x"), ("b", 2, "y"), ("c", 3, "z")))
    found = table.numbered(keys("c", "a", "b"))
    assert found.rows() == [(0, 3, "z"), (1, 1, "x"), (2, 2, "y")]
    found = table.numbered(keys("a", "b", "c"))
    table.renumber(keys("a", "b", "c"), found.filter(pl.col("n") != 1).vstack(found.tail(1)))
    assert table.get(keys("a", "b", "c")).select("n", "s").rows() == [(2, "y"), (3, "z"), (3, "z")]
    table.renumber(keys("a", "b"), found.clear())
    assert table.get(keys("a", "b", "c")).select("n", "s").rows() == [(3, "z"), (3, "z")]


def test_rows_are_written_over_those_of_their_keys(state: State) -> None:
    table = state.table("t", COLUMNS)
    table.replace(keys("a", "b"), rows(("a", 1, "x"), ("b", 2, "y")))
    table.write(rows(("b", 3, "z"), ("c", 4, None)))
    found = table.found(keys("c", "nothing", "b", "a"))
    assert found.rows() == [
        (0, *rows(("c", 4, None)).row(0)),
        (2, *rows(("b", 3, "z")).row(0)),
        (3, *rows(("a", 1, "x")).row(0)),
    ]


def test_entries_are_replaced_by_number(state: State) -> None:
    table = state.timed("u", {"n": pl.Int64})
    table.write(timed(("a", 1, 1), ("a", 2, 2), ("b", 1, 3)))
    requested = keys("a", "b", "c")
    fresh = timed(("a", 2, 20), ("a", 3, 30), ("c", 0, 40)).with_columns(pl.Series(NUMBER, [0, 0, 2], pl.UInt32))
    table.renumber(requested, fresh)
    assert table.all().rows() == timed(("a", 1, 1), ("a", 2, 20), ("a", 3, 30), ("b", 1, 3), ("c", 0, 40)).rows()
    table.renumber(requested, fresh.clear())
    assert table.all().height == 5


def test_numbered_entries_without_an_instant_or_a_column_are_refused(state: State) -> None:
    table = state.timed("u", {"n": pl.Int64})
    fresh = timed(("a", 2, 20)).with_columns(pl.Series(NUMBER, [0], pl.UInt32))
    with pytest.raises(InvalidValue, match="null in an address"):
        table.renumber(keys("a"), fresh.with_columns(pl.lit(None, INSTANT).alias("_time")))
    with pytest.raises(InvalidValue, match="lack"):
        table.renumber(keys("a"), fresh.drop("n"))
    with pytest.raises(InvalidValue, match="other types"):
        table.renumber(keys("a"), fresh.with_columns(pl.col("n").cast(pl.Float64)))


def test_large_groups_come_back_in_order(state: State) -> None:
    table = state.table("t", {"n": pl.Int64})
    numbers = list(range(10_000))
    for shift in (0, 1):
        body = pl.DataFrame({"_key": keys("a", "b").gather([n % 2 for n in numbers]), "n": numbers}).with_columns(
            pl.col("n") + shift
        )
        table.replace(keys("a", "b"), body)
    assert table.get(keys("b"))["n"].to_list() == [n + 1 for n in numbers if n % 2]
    (group,) = table.groups(keys("a").to_list())
    assert group is not None
    assert frame_of([group], {"n": pl.Int64()})["n"].to_list() == [n + 1 for n in numbers if not n % 2]


def test_the_last_of_many_tombstones_is_passed_over(store: Store) -> None:
    """The entries next to a range are looked for behind removed ones, in whatever block they are."""
    for hour in range(1, 30):
        with store.transaction(0, ["me"], Stamp(1, hour)) as tx:
            table = State(tx, "me").timed("t", {"n": pl.Int64})
            table.replace(entries(("a", hour), ("b", hour)), timed(("a", hour, hour), ("b", hour, hour)))
    with store.transaction(0, ["me"], Stamp(1, 30)) as tx:
        table = State(tx, "me").timed("t", {"n": pl.Int64})
        table.replace(entries(*(("a", hour) for hour in range(3, 28))), timed())
        table.replace(entries(("a", 5)), timed(("a", 5, 50)))
        table.replace(entries(("a", 5)), timed())
    with store.snapshot(0) as reader:
        table = State(reader, "me").timed("t", {"n": pl.Int64})
        a = keys("a").item()
        assert hours(table.scan(ranges(("a", 10, 20)), before=True, after=True)) == [(a, 2), (a, 28)]
        assert hours(table.scan(ranges(("a", 3, 4), ("a", 27, 28)), before=True)) == [(a, 2)]
        points = entries(("a", 27), ("b", 27), ("a", 28), ("a", 2), ("a", 0))
        assert table.floor(points).select("_point", "n").rows() == [(0, 2), (1, 27), (2, 28), (3, 2)]
        hour = 3_600_000_000
        base = 1_704_067_200_000_000
        found = table.latest([a, a, a], [base + 27 * hour, base + 28 * hour - 1, base])
        assert [None if each is None else frame_of([each], {"n": pl.Int64()}).item() for each in found] == [2, 2, None]


def test_a_range_that_ends_before_it_begins_is_empty_at_its_start(state: State) -> None:
    table = state.timed("t", {"n": pl.Int64})
    put = timed(*(("a", hour, hour) for hour in range(1, 10)))
    table.replace(put, put)
    assert hours(table.scan(ranges(("a", 8, 3)))) == []
    assert [at for _, at in hours(table.scan(ranges(("a", 8, 3)), before=True, after=True))] == [7, 8]


def test_a_table_may_have_no_columns(state: State) -> None:
    table = state.table("seen", {})
    table.replace(keys("a", "b"), keys("a", "b", "a").to_frame())
    assert table.get(keys("a", "b"))["_key"].to_list() == keys("a", "a", "b").to_list()


def test_replace_takes_further_columns_in_any_order(state: State) -> None:
    table = state.table("t", COLUMNS)
    written = rows(("a", 1, "x")).select("s", pl.lit(0).alias("more"), "_key", "n")
    table.replace(keys("a"), written)
    assert table.get(keys("a")).equals(rows(("a", 1, "x")))


def test_rows_of_other_keys_are_refused(state: State) -> None:
    table = state.table("t", COLUMNS)
    for touched in (keys(), keys("b"), keys("b", "c")):
        with pytest.raises(InvalidValue, match="table 'me/t'"):
            table.replace(touched, rows(("a", 1, "x"), ("b", 1, "x")))
    with pytest.raises(InvalidValue, match="table 'me/u'"):
        state.timed("u", {"n": pl.Int64}).replace(entries(("a", 1)), timed(("a", 2, 2)))


def test_ranges_of_time(state: State) -> None:
    table = state.timed("t", {"n": pl.Int64})
    put = timed(("a", 1, 1), ("a", 3, 3), ("a", 5, 5), ("ab", 2, 2), ("", 4, 4))
    table.replace(put, put)
    a, ab = keys("a", "ab").to_list()
    assert hours(table.scan(ranges(("a", 1, 3)))) == [(a, 1)]
    assert hours(table.scan(ranges(("a", 2, 3)))) == []
    assert hours(table.scan(ranges(("a", 2, 3)), before=True)) == [(a, 1)]
    assert hours(table.scan(ranges(("a", 2, 3)), after=True)) == [(a, 3)]
    assert hours(table.scan(ranges(("a", 0, 9)), before=True, after=True)) == [(a, 1), (a, 3), (a, 5)]
    assert hours(table.scan(ranges(("ab", None, 2), ("a", 3, None)), before=True)) == [(a, 1), (a, 3), (a, 5)]
    assert hours(table.scan(ranges(("ab", None, None)))) == [(ab, 2)]
    overlapping = ranges(("a", 1, 4), ("a", 3, 6), ("a", 1, 4))
    assert hours(table.scan(overlapping, before=True, after=True)) == [(a, 1), (a, 3), (a, 5)]


def test_floors(state: State) -> None:
    table = state.timed("t", {"n": pl.Int64})
    put = timed(("a", 1, 1), ("a", 3, 30), ("a", 3, 31), ("b", 2, 2))
    table.replace(put, put)
    found = table.floor(entries(("a", 3), ("b", 1), ("a", 0), ("a", 2), ("b", 9), ("c", 9)))
    assert found.select("_point", "n").rows() == [(0, 30), (0, 31), (3, 1), (4, 2)]
    assert found["_time"].to_list() == [at(3), at(3), at(1), at(2)]


def test_entries_are_replaced_one_by_one(state: State) -> None:
    table = state.timed("t", {"n": pl.Int64})
    put = timed(("a", 1, 1), ("a", 2, 2), ("b", 1, 3))
    table.replace(put, put)
    table.replace(entries(("a", 1), ("a", 2), ("a", 4)), timed(("a", 4, 4), ("a", 2, 20)))
    assert table.all().equals(timed(("a", 2, 20), ("a", 4, 4), ("b", 1, 3)))


def test_state_ids_and_tables_are_apart(state: State) -> None:
    you = state.of("you")
    for number, table in enumerate([state.table("t", COLUMNS), state.table("u", COLUMNS), you.table("t", COLUMNS)]):
        table.replace(keys("a"), rows(("a", number, "")))
    assert state.table("t", COLUMNS).get(keys("a"))["n"].to_list() == [0]
    assert state.table("u", COLUMNS).get(keys("a"))["n"].to_list() == [1]
    assert you.table("t", COLUMNS).get(keys("a"))["n"].to_list() == [2]


def test_keys_of_any_length(state: State) -> None:
    names = ["x" * 500 + end for end in ("", "a", "b")]
    table = state.timed("t", {"n": pl.Int64})
    put = timed(*[(name, hour, hour) for name in names for hour in (1, 2)])
    table.replace(put, put)
    assert table.scan(ranges((names[1], None, 2))).height == 1
    assert table.floor(entries((names[2], 9), (names[0] + "c", 9))).select("_point", "n").rows() == [(0, 2)]


def test_instants_are_never_null(state: State) -> None:
    table = state.timed("t", {"n": pl.Int64})
    put = timed(("a", 1, 1))
    table.replace(put, put)
    nowhen = keys("a").to_frame().with_columns(_time=pl.lit(None, INSTANT), n=pl.lit(1, pl.Int64))
    for written in (nowhen, nowhen.clear()):
        with pytest.raises(InvalidValue, match="'me/t'"):
            table.replace(nowhen, written)
    with pytest.raises(InvalidValue, match="_time"):
        table.floor(nowhen)


@pytest.mark.parametrize(
    "dtype",
    [pl.Object(), pl.Null(), pl.List(pl.Null()), pl.Enum(["a"]), pl.Struct({"deep": pl.List(pl.Object())})],
    ids=str,
)
def test_columns_that_cannot_be_stored_are_refused_at_once(state: State, dtype: pl.DataType) -> None:
    for kind in (state.table, state.timed):
        with pytest.raises(InvalidType, match="'o'"):
            kind("t", {"o": dtype})


def test_rows_of_another_type_are_refused(state: State) -> None:
    columns = {"n": pl.Int64(), "l": pl.List(pl.Int64()), "d": pl.Decimal(28, 2)}
    table = state.table("t", columns)
    right = keys("a").to_frame().with_columns(*(pl.lit(None, dtype).alias(name) for name, dtype in columns.items()))
    table.replace(keys("a"), right)
    for name, other in (("n", pl.UInt32), ("n", pl.Float64), ("l", pl.List(pl.Int32)), ("d", pl.Decimal(28, 3))):
        with pytest.raises(InvalidValue, match=f"'me/t'.*'{name}'"):
            table.replace(keys("a"), right.cast({name: other}))


def test_columns_are_those_of_their_names_in_whatever_order_they_are_declared(state: State) -> None:
    columns = {"b": pl.Int64, "a": pl.Int64, "t": pl.String}
    written = pl.DataFrame({"_key": keys("k"), "b": [1], "a": [3], "t": ["x"]})
    state.table("t", columns).replace(keys("k"), written)
    other = state.table("t", dict(reversed(columns.items())))
    assert other.get(keys("k")).equals(written.select("_key", "t", "a", "b"))


@pytest.mark.parametrize(
    "columns",
    [{"b": pl.Int64, "c": pl.Int64}, {"a": pl.Int64, "b": pl.Float64}, {"a": pl.Int64, "b": pl.Datetime("us")}, {}],
)
def test_columns_of_other_names_or_types_are_refused(state: State, columns: dict[str, Any]) -> None:
    state.table("t", {"a": pl.Int64, "b": pl.Int64})
    with pytest.raises(Terminal, match="does not have the columns it is read with"):
        state.table("t", columns)
    with pytest.raises(Terminal, match="does not have the columns it is read with"):
        state.timed("t", {"a": pl.Int64, "b": pl.Int64})


def test_rows_that_are_replaced_are_not_read_as_rows_that_are_folded(state: State) -> None:
    state.table("t", {"a": pl.Int64}).replace(keys("k"), pl.DataFrame({"_key": keys("k"), "a": [1]}))
    with pytest.raises(Terminal, match=r"it has \['a', '_removed'\], not \['a'\]"):
        state.folded("t", TableSchema({"a": pl.Int64()}, FoldRule(lambda rows, _: rows)))
