from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from umbel.errors import InvalidType, InvalidValue
from umbel.state.keys import encode_keys, encode_time
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State

INSTANT = pl.Datetime("us", "UTC")
COLUMNS = {"n": pl.Int64, "s": pl.String}
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def state() -> Iterator[State]:
    with MemoryStore(1).transaction(0, ["me", "you"], Stamp(1, 1)) as tx:
        yield State(tx, "me")


def keys(*names: str) -> pl.Series:
    return encode_keys(pl.DataFrame({"k": pl.Series(names, dtype=pl.String)}))


def at(hour: int | None) -> datetime | None:
    return None if hour is None else FIRST + timedelta(hours=hour)


def rows(*given: tuple[str, int | None, str | None]) -> pl.DataFrame:
    body = pl.DataFrame([row[1:] for row in given], COLUMNS, orient="row")
    return body.select(keys(*[row[0] for row in given]), pl.all())


def entries(*given: tuple[str, int]) -> pl.DataFrame:
    times = pl.Series("_time", [at(hour) for _, hour in given], dtype=INSTANT)
    return pl.DataFrame([keys(*[name for name, _ in given]), times])


def timed(*given: tuple[str, int, int]) -> pl.DataFrame:
    return entries(*[row[:2] for row in given]).with_columns(n=pl.Series([row[2] for row in given], dtype=pl.Int64))


def ranges(*given: tuple[str, int | None, int | None]) -> pl.DataFrame:
    bounds = {name: [at(row[place]) for row in given] for place, name in ((1, "_low"), (2, "_high"))}
    body = pl.DataFrame(bounds, {"_low": INSTANT, "_high": INSTANT})
    return body.select(keys(*[row[0] for row in given]), pl.all())


def hours(frame: pl.DataFrame) -> list[tuple[bytes, int]]:
    return [(key, (time - FIRST) // timedelta(hours=1)) for key, time in frame.select("_key", "_time").rows()]


def test_groups_are_put_read_and_removed(state: State) -> None:
    table = state.table("t", COLUMNS)
    table.replace(keys("a", "b"), rows(("b", 1, "x"), ("a", 2, None), ("b", 0, "y")))
    found = table.get(keys("b", "nothing", "a", "b"))
    assert found.equals(rows(("a", 2, None), ("b", 1, "x"), ("b", 0, "y")))
    table.replace(keys("b", "c"), rows(("c", 3, "z")))
    assert table.all().equals(rows(("a", 2, None), ("c", 3, "z")))
    table.replace(keys("a", "c"), rows())
    assert table.all().height == 0


def test_empty_reads_have_the_columns(state: State) -> None:
    table, plain = state.table("t", COLUMNS), {"_key": pl.Binary, **COLUMNS}
    assert table.get(keys("a")).schema == plain
    assert table.get(keys()).schema == plain
    assert table.all().schema == plain
    with_time = {"_key": pl.Binary, "_time": INSTANT, **COLUMNS}
    assert table.all_at().schema == with_time
    assert table.scan(ranges(("a", None, None)), before=True, after=True).schema == with_time
    assert table.scan(ranges()).schema == with_time
    assert table.floor(entries(("a", 1))).schema == {"_point": pl.UInt32, "_time": INSTANT, **COLUMNS}
    assert table.floor(entries()).height == 0
    table.replace(keys(), rows())
    table.replace_at(entries(), entries().with_columns(n=pl.lit(1), s=pl.lit("")))


def test_a_table_may_have_no_columns(state: State) -> None:
    table = state.table("seen", {})
    table.replace(keys("a", "b"), keys("a", "b", "a").to_frame())
    assert table.get(keys("a", "b"))["_key"].to_list() == keys("a", "a", "b").to_list()


def test_replace_takes_further_columns_in_any_order(state: State) -> None:
    table = state.table("t", COLUMNS)
    given = rows(("a", 1, "x")).select("s", pl.lit(0).alias("more"), "_key", "n")
    table.replace(keys("a"), given)
    assert table.all().equals(rows(("a", 1, "x")))


def test_rows_of_other_keys_are_refused(state: State) -> None:
    table = state.table("t", COLUMNS)
    for touched in (keys(), keys("b"), keys("b", "c")):
        with pytest.raises(InvalidValue, match="table 't'"):
            table.replace(touched, rows(("a", 1, "x"), ("b", 1, "x")))
    with pytest.raises(InvalidValue, match="table 'u'"):
        state.table("u", {"n": pl.Int64}).replace_at(entries(("a", 1)), timed(("a", 2, 2)))


def test_keys_between(state: State) -> None:
    table = state.table("t", COLUMNS)
    table.replace(keys("a", "b", "c"), rows(("a", 1, ""), ("b", 2, ""), ("b", 3, ""), ("c", 4, "")))
    low, high = keys("b", "c").to_list()
    assert table.between(low, high)["n"].to_list() == [2, 3]
    assert table.between(low)["n"].to_list() == [2, 3, 4]
    assert table.between(None, low)["n"].to_list() == [1]
    assert table.between(limit=2)["n"].to_list() == [1, 2, 3]


def test_due_timers_are_a_range_of_keys_that_begin_with_an_instant(state: State) -> None:
    table = state.table("timers", {"n": pl.Int64})
    due = encode_time(pl.Series([at(3), at(1), at(1), at(2)], dtype=INSTANT)).to_list()
    each = pl.Series("_key", [time + key for time, key in zip(due, keys("a", "b", "c", "d"), strict=True)])
    table.replace(each, pl.DataFrame({"_key": each, "n": [3, 1, 1, 2]}))
    frontier = encode_time(pl.Series([at(2)], dtype=INSTANT)).item()
    assert table.between(None, frontier)["n"].to_list() == [1, 1]


def test_ranges_of_time(state: State) -> None:
    table = state.table("t", {"n": pl.Int64})
    put = timed(("a", 1, 1), ("a", 3, 3), ("a", 5, 5), ("ab", 2, 2), ("", 4, 4))
    table.replace_at(put, put)
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
    table = state.table("t", {"n": pl.Int64})
    put = timed(("a", 1, 1), ("a", 3, 30), ("a", 3, 31), ("b", 2, 2))
    table.replace_at(put, put)
    found = table.floor(entries(("a", 3), ("b", 1), ("a", 0), ("a", 2), ("b", 9), ("c", 9)))
    assert found.select("_point", "n").rows() == [(0, 30), (0, 31), (3, 1), (4, 2)]
    assert found["_time"].to_list() == [at(3), at(3), at(1), at(2)]


def test_entries_are_replaced_one_by_one(state: State) -> None:
    table = state.table("t", {"n": pl.Int64})
    put = timed(("a", 1, 1), ("a", 2, 2), ("b", 1, 3))
    table.replace_at(put, put)
    table.replace_at(entries(("a", 1), ("a", 2), ("a", 4)), timed(("a", 4, 4), ("a", 2, 20)))
    assert table.all_at().equals(timed(("a", 2, 20), ("a", 4, 4), ("b", 1, 3)))


def test_owners_and_tables_are_apart(state: State) -> None:
    you = state.of("you")
    for number, table in enumerate([state.table("t", COLUMNS), state.table("u", COLUMNS), you.table("t", COLUMNS)]):
        table.replace(keys("a"), rows(("a", number, "")))
    assert state.table("t", COLUMNS).all()["n"].to_list() == [0]
    assert state.table("u", COLUMNS).all()["n"].to_list() == [1]
    assert you.table("t", COLUMNS).all()["n"].to_list() == [2]


def test_keys_of_any_length(state: State) -> None:
    names = ["x" * 500 + end for end in ("", "a", "b")]
    table = state.table("t", {"n": pl.Int64})
    put = timed(*[(name, hour, hour) for name in names for hour in (1, 2)])
    table.replace_at(put, put)
    assert table.scan(ranges((names[1], None, 2))).height == 1
    assert table.floor(entries((names[2], 9), (names[0] + "c", 9))).select("_point", "n").rows() == [(0, 2)]


def test_instants_are_never_null(state: State) -> None:
    table = state.table("t", {"n": pl.Int64})
    nowhen = keys("a").to_frame().with_columns(_time=pl.lit(None, INSTANT), n=pl.lit(1, pl.Int64))
    with pytest.raises(InvalidValue, match="_time"):
        table.replace_at(nowhen, nowhen)
    with pytest.raises(InvalidValue, match="_time"):
        table.floor(nowhen)


def test_columns_that_cannot_be_kept_are_refused_at_once(state: State) -> None:
    with pytest.raises(InvalidType, match="'o'"):
        state.table("t", {"o": pl.Object})
