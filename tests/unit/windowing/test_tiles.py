"""Continuous windows: the worked examples of the specification, and what the state retains."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.aggregating import STREAM, Job, aggregation, frame, instant, micros
from tests.aggregating import TABLE as KEYED
from tests.comparing import assert_rows
from tests.reference import Change
from umbel.aggregates import (
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
)
from umbel.errors import InvalidValue, Terminal
from umbel.operators.aggregate import aggregate
from umbel.operators.leaf import Leaf
from umbel.state.keys import encode_keys
from umbel.state.tables import State
from umbel.types import dtypes
from umbel.types.schema import Schema
from umbel.types.windows import Continuous
from umbel.windowing.tile_points import Pointwise
from umbel.windowing.tiling import Tiling

DAY = micros(datetime(2024, 1, 1, tzinfo=UTC))
SECOND = 1_000_000
HOUR = Continuous("1h")


def clock(text: str) -> int:
    """Return the instant of a time of day."""
    parts = [int(part) for part in text.split(":")]
    hours, minutes, seconds = [*parts, *[0] * (3 - len(parts))]
    return DAY + (hours * 3600 + minutes * 60 + seconds) * SECOND


def event(seq: int, at: int, **values: Any) -> tuple[int, Change]:
    return 1, Change(at, at, values, 1, seq)


@pytest.mark.parametrize("appends", [True, False])
def test_change_points_of_the_specification(appends: bool) -> None:
    """Section 12.5: Count over Continuous("1h"); both ends count, a row is gone one second after its hour."""
    job = Job(aggregation(Count(window=HOUR), appends=appends))
    events = ["0:00:00", "0:59:59", "1:00:00", "3:30", "4:10"]
    job.feed(frame(event(seq, clock(at)) for seq, at in enumerate(events)))
    expected = {
        "0:00:00": 1,
        "0:59:59": 2,
        "1:00:00": 3,
        "1:00:01": 2,
        "2:00:00": 1,
        "2:00:01": 0,
        "3:30": 1,
        "4:10": 2,
        "4:30:01": 1,
        "5:10:01": 0,
    }
    found = job.lookup([(1, clock(at)) for at in expected])
    assert found["a0"].to_list() == list(expected.values())
    assert found["_at_found"].all()
    just_before = job.lookup([(1, clock(at) - 1) for at in expected])["a0"].to_list()
    assert just_before == [None, *list(expected.values())[:-1]]


TABLE: list[tuple[Any, list[Any], Any]] = [
    (Count(), [1, 3, 2, 0], None),
    (Count(of="x", dropnull=True), [1, 2, 1, 0], None),
    (Count(of="x", unique=True, approx=True), [1, 3, 2, 0], None),
    (Sum(of="x"), [1, 4, 3, 0], None),
    (Average(of="f"), [10.0, 40 / 3, 15.0, 0.0], 0.0),
    (Average(of="x"), [1.0, 2.0, 3.0, 0.0], 0.0),
    (Average(of="f", default=None), [10.0, 40 / 3, 15.0, None], None),
    (Stddev(of="f"), [0.0, 12.47219128924647, 15.0, -1.0], -1.0),
    (Stddev(of="f", default=None), [0.0, 12.47219128924647, 15.0, None], None),
    (Min(of="f", default=-1), [10.0, 0.0, 0.0, -1.0], -1.0),
    (Min(of="f"), [10.0, 0.0, 0.0, None], None),
    (Max(of="f"), [10.0, 30.0, 30.0, None], None),
    (LastK(of="f", limit=2, dedup=False), [[10.0], [30.0, 0.0], [30.0, 0.0], []], None),
    (LastK(of="x", limit=2, dedup=True), [[1], [3, None], [3, None], []], None),
    (LastK(of="x", limit=2, dedup=True, dropnull=True), [[1], [3, 1], [3], []], None),
    (FirstK(of="f", limit=2, dedup=False, dropnull=False), [[10.0], [10.0, 0.0], [0.0, 30.0], []], None),
    (Distinct(of="x", unordered=True), [[1], [None, 1, 3], [None, 3], []], None),
    (Distinct(of="x", unordered=True, dropnull=True), [[1], [1, 3], [3], []], None),
    (Quantile(of="f", p=0.5, default=0.0, approx=True), [10.0, 10.0, 30.0, 0.0], 0.0),
    # The first row has expired at 1:00:01: what is left is 30 · 2^(−1801/3600).
    (ExpDecaySum(of="f", half_life="1h"), [10.0, 37.071067811865476, 30 * 2 ** (-1801 / 3600), 0.0], None),
]


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize(("aggregate", "values", "missing"), TABLE, ids=lambda value: type(value).__name__)
def test_values_of_the_specification(aggregate: Any, values: list[Any], missing: Any, appends: bool) -> None:
    """Section 12.6: every aggregate over (10, 1), (0, null), (30, 3)."""
    job = Job(aggregation(type(aggregate)(**{**vars(aggregate), "window": HOUR}), appends=appends))
    rows = [("0:00", 10.0, 1), ("0:30", 0.0, None), ("0:30", 30.0, 3)]
    job.feed(frame(event(seq, clock(at), f=f, x=x) for seq, (at, f, x) in enumerate(rows)))
    requested = [(1, clock(at)) for at in ("0:00", "0:30", "1:00:01", "1:30:01")]
    assert_rows(job.lookup(requested)["a0"].to_list(), values)
    early = job.lookup([(1, clock("0:00") - 1), (2, clock("1:00"))])
    assert early["a0"].to_list() == [missing, missing]
    assert not early["_at_found"].any()


def test_decimals_stay_exact() -> None:
    job = Job(aggregation(Sum(of="d", window=HOUR), Min(of="d", window=HOUR)))
    job.feed(_tenths(1000))
    assert str(job.lookup([(1, clock("0:20"))])["a0"][0]) == "100.00"


def _tenths(count: int) -> pl.DataFrame:
    rows = frame(event(seq, clock("0:00") + seq * SECOND) for seq in range(count))
    return rows.with_columns(pl.lit("0.10").cast(pl.Decimal(28, 2)).alias("d"))


def test_whole_numbers_never_wrap() -> None:
    job = Job(aggregation(Sum(of="x", window=HOUR)))
    job.feed(frame(event(seq, clock("0:00"), x=2**62) for seq in range(2)))
    with pytest.raises(Terminal, match="'x' does not fit int"):
        job.lookup([(1, clock("0:00"))])
    job.feed(frame([event(2, clock("0:01"), x=-(2**62))]))
    assert job.lookup([(1, clock("0:01"))])["a0"].to_list() == [2**62]


def test_state_is_bounded_whatever_the_number_of_rows() -> None:
    job = Job(aggregation(Count(window=HOUR), Sum(of="x", window=HOUR)))
    sizes = []
    for hour in range(4):
        start = clock("0:00") + hour * 3600 * SECOND
        rows = frame(event(seq, start + seq * SECOND // 5, x=1) for seq in range(18_000))
        job.feed(rows, watermark=instant(start))
        ((_, entries),) = job.table()
        sizes.append(len(entries))
    assert sizes[-1] < 10_000
    now = clock("4:00") - SECOND
    assert job.lookup([(1, now)])["a0"][0] == pytest.approx(18_000, rel=0.01)


def test_forever_is_a_base_and_a_bounded_number_of_tiles() -> None:
    job = Job(aggregation(Sum(of="x", window=Continuous("forever")), tiling=Tiling(disorder="1h")))
    for day in range(30):
        at = DAY + day * 86_400 * SECOND
        job.feed(frame([event(day, at, x=1)]), watermark=instant(at - 3600 * SECOND))
    ((_, entries),) = job.table()
    assert len(entries) < 200
    found = job.lookup([(1, DAY + 40 * 86_400 * SECOND), (1, DAY + 3 * 86_400 * SECOND), (1, DAY - 1)])
    assert found["a0"].to_list()[::2] == [30, None]
    assert found["_at_history"].to_list() == [False, True, False]


def test_a_key_is_found_after_everything_is_gone() -> None:
    job = Job(aggregation(Count(window=HOUR), Min(of="x", window=HOUR)))
    job.feed(frame([event(0, clock("0:00"), x=5)]))
    later = DAY + 9 * 86_400 * SECOND
    job.feed(frame([(2, Change(later, later, {"x": 1}, 1, 1))]), watermark=instant(later - 1))
    job.feed(frame([event(2, later, x=None)]), watermark=instant(later))
    far = later + 86_400 * SECOND
    left = instant(later + 3_601 * SECOND)
    assert job.lookup([(1, far)]).row(0) == (True, False, 0, None, left)


@pytest.mark.parametrize("window", [HOUR, Continuous("forever")])
@pytest.mark.parametrize("retracted", [False, True])
def test_a_collapsed_tile_of_a_table_tells_rows_that_ended_from_retracted_rows(window: Any, retracted: bool) -> None:
    job = Job(aggregation(Count(window=window), keyed=True))
    begin, end = clock("0:00"), clock("0:20")
    rows = [(1, Change(begin + n * SECOND, begin + n * SECOND, {}, 1, n)) for n in range(12)]
    ends = [(1, replace(row, at=end + row.seq * SECOND, weight=-1)) for _, row in rows]
    job.feed(frame([*rows, *ends], KEYED))
    if retracted:
        job.feed(frame([(1, replace(row, weight=-row.weight)) for _, row in [*rows, *ends]], KEYED))
    at = clock("0:30")
    assert job.lookup([(1, at)])["_at_found"].to_list() == [not retracted]
    quick = Pointwise(job.operator.tiles, job.operator.answered.aggregates)
    with job.store.snapshot(0) as reader:
        stored = quick.read(State(reader, job.operator.id), Job.points([(1, at)])["_key"].to_list())
    answered = quick.values(stored, np.array([at]))
    if retracted:  # only history knows whether rows were retracted, or took effect after their instants and ended
        assert answered is None
    else:
        assert answered is not None
        assert answered.found.tolist() == [True]


@pytest.mark.parametrize("window", [HOUR, Continuous("forever")])
def test_an_end_retracted_from_a_collapsed_tile_is_left_to_history(window: Any) -> None:
    """Only history knows when the values changed last: the tile has the instant of the end that was corrected."""
    job = Job(aggregation(Count(window=window), keyed=True))
    begin, end, corrected = clock("0:00"), clock("0:20"), clock("0:10")
    rows = [(1, Change(begin + n * SECOND, begin + n * SECOND, {}, 1, n)) for n in range(12)]
    ends = [(1, replace(row, at=end + row.seq * SECOND, weight=-1)) for _, row in rows]
    again = [(1, replace(row, at=corrected + row.seq * SECOND, weight=-1)) for _, row in rows]
    undone = [(1, replace(row, weight=1)) for _, row in ends]
    job.feed(frame([*rows, *ends], KEYED))
    at = clock("0:30")
    assert job.lookup([(1, at)])["_at_history"].to_list() == [False]
    job.feed(frame([*undone, *again], KEYED))
    assert job.lookup([(1, begin - 1), (1, at)])["_at_history"].to_list() == [False, True]
    replayed = job.operator.replay(frame([*rows, *ends, *undone, *again], KEYED), job.points([(1, at)]))
    assert replayed.row(0)[-1] == instant(corrected + 11 * SECOND)
    pointwise = Pointwise(job.operator.tiles, job.operator.answered.aggregates)
    with job.store.snapshot(0) as reader:
        stored = pointwise.read(State(reader, job.operator.id), Job.points([(1, at)])["_key"].to_list())
    assert pointwise.values(stored, np.array([at])) is None


def test_only_values_that_a_retracted_effect_may_have_changed_are_left_to_history() -> None:
    """What changed the values after it is known; so are the values of other keys in the same call."""
    job = Job(aggregation(Count(window=Continuous("forever")), keyed=True))
    begin, end = clock("0:00"), clock("0:20")
    rows = [(key, Change(begin + n * SECOND, begin + n * SECOND, {}, 1, n)) for key in (1, 2) for n in range(12)]
    ends = [(key, replace(row, at=end + row.seq * SECOND, weight=-1)) for key, row in rows]
    job.feed(frame([*rows, *ends], KEYED))
    late = [(1, replace(row, weight=1)) for key, row in ends if key == 1][-1:]
    job.feed(frame(late, KEYED))
    at = clock("0:30")
    assert job.lookup([(1, at), (2, at)])["_at_history"].to_list() == [True, False]
    newer = Change(clock("5:00"), clock("5:00"), {}, 1, 99)  # in another tile
    job.feed(frame([(1, newer)], KEYED))
    points = [(1, at), (1, clock("6:00")), (2, at)]
    found = job.lookup(points)
    assert found["_at_history"].to_list() == [True, False, False]
    replayed = job.operator.replay(frame([*rows, *ends, *late, (1, newer)], KEYED), job.points(points))
    assert found.drop("_at_history")[1:].equals(replayed[1:])


def test_a_collapsed_tile_cut_at_its_head_is_left_to_history() -> None:
    job = Job(aggregation(Count(window=HOUR)))
    rows = frame(event(seq, clock("0:00") + seq * SECOND) for seq in range(30))
    job.feed(rows)
    requested = [(1, clock("0:00") + 10 * SECOND), (1, clock("0:00") + 29 * SECOND)]
    found = job.lookup(requested)
    assert found["_at_history"].to_list() == [True, False]
    assert job.operator.replay(rows, job.points(requested))["a0"].to_list() == [11, 30]


@pytest.mark.parametrize("watermark", [None, "0:00"])
def test_the_rows_of_a_cut_tile_complete_the_answer(watermark: str | None) -> None:
    """All else is known: rows of other tiles, and of other keys, are not needed of the history."""
    job = Job(aggregation(Count(window=HOUR), Sum(of="x", window=Continuous("2h"))))
    first, last = clock("0:10"), clock("1:00")
    old = [(key, Change(first + n * SECOND, first + n * SECOND, {"x": 1}, 1, n)) for key in (1, 2) for n in range(20)]
    new = [
        (key, Change(last + n * SECOND, last + n * SECOND, {"x": 10}, 1, 20 + n)) for key in (1, 2) for n in range(30)
    ]
    job.feed(frame(old))
    job.feed(frame(new), watermark=None if watermark is None else instant(clock(watermark)))
    points = [(1, last + 10 * SECOND), (2, last + 40 * SECOND), (2, clock("0:05")), (1, last + 29 * SECOND)]
    assert job.lookup(points)["_at_history"].to_list() == [True, False, False, False]
    found = job.completed(points, frame([each for each in new if each[0] == 1]))
    assert found.equals(job.completed(points, frame([*old, *new])))
    assert found["_at_history"].to_list() == [False] * 4
    assert found["a0"].to_list() == [31, 50, None, 50]
    assert found["a1"].to_list() == [20 + 110, 20 + 300, None, 20 + 300]
    assert found["_at_changed"].to_list()[0] == instant(last + 10 * SECOND)


def test_a_tile_that_one_point_divides_leaves_the_window_of_another_as_a_whole() -> None:
    job = Job(aggregation(Count(window=HOUR)))
    first, later = clock("0:00"), clock("1:00")
    rows = frame(event(seq, at + seq * SECOND) for at in (first, later) for seq in range(30))
    job.feed(rows)
    points = [(1, first + 10 * SECOND), (1, later + 10 * SECOND), (1, later + 20 * SECOND)]
    assert job.lookup(points)["_at_history"].to_list() == [True, True, True]
    for found in (job.completed(points, rows), job.operator.replay(rows, job.points(points))):
        assert found["a0"].to_list() == [11, 30 + 11, 21]  # its middle is 14.5 s after its begin


def test_history_answers_many_points_of_a_busy_key() -> None:
    operator = aggregation(Count(window=HOUR), Sum(of="x", window=Continuous("forever")))
    rows = frame(event(seq, clock("0:00") + seq * SECOND, x=1) for seq in range(5000))
    requested = [(1, clock("0:00") + seq * SECOND) for seq in range(0, 6000, 7)]
    found = operator.replay(rows, Job.points(requested))
    assert found["a1"].to_list() == [min(seq + 1, 5000) for seq in range(0, 6000, 7)]
    for seq, count in zip(range(0, 6000, 7), found["a0"], strict=True):
        assert abs(count - len(range(max(0, seq - 3600), min(seq + 1, 5000)))) <= 18


def test_rows_are_combined_to_a_bounded_number() -> None:
    operator = aggregation(Count(window=Continuous("1d")), Count(window=Continuous("7d")))
    rows = frame(event(seq, clock("0:00") + seq * SECOND) for seq in range(20_000))
    assert len(operator.partial(rows)) == -(-20_000 // 864)
    assert len(aggregation(Count(window=HOUR), appends=False).partial(rows)) == -(-20_000 // 36)
    rounded = Quantile(of="x", p=0.5, approx=True, window=HOUR)
    assert len(aggregation(rounded, appends=False).partial(rows)) == 20_000


def test_a_key_of_several_columns_too_long_for_the_store() -> None:
    columns = Schema((), (("a", dtypes.Str()), ("b", dtypes.Int())), "t")
    leaf = Leaf(dataset="E", version=1, columns=columns, appends=True)
    count = Count(window=HOUR, into_field="n")
    operator = aggregate(parents=(leaf,), keys=("a", "b"), aggregates=(count,))
    long = ["x" * 500 + str(number % 7) for number in range(70)]
    at = instant(clock("0:00"))
    rows = pl.DataFrame(
        {"a": long, "b": [number % 2 for number in range(70)], "t": at, "_at": at, "_weight": 1, "_seq": range(70)},
        schema=columns.changes(),
    )
    job = Job(operator)
    job.feed(rows)
    job.feed(rows)
    points = rows.select("a", "b", pl.col("t").alias("_time")).unique(maintain_order=True)
    points = points.with_columns(encode_keys(points.select("a", "b")))
    with job.store.snapshot(0) as reader:
        assert operator.stored_answer(State(reader, operator.id), points).report["n"].to_list() == [10] * 14


def test_along_another_column() -> None:
    columns = Schema((), (("k", dtypes.Int()), ("paid", dtypes.Datetime())), "t")
    leaf = Leaf(dataset="E", version=1, columns=columns, appends=True)
    count = Count(window=HOUR, into_field="a0")
    job = Job(aggregate(parents=(leaf,), keys=("k",), aggregates=(count,), along="paid"))
    seen, paid = instant(clock("9:00")), instant(clock("0:00"))
    row = {"k": 1, "paid": paid, "t": seen, "_at": seen, "_weight": 1, "_seq": 0}
    job.feed(pl.DataFrame([row], schema=columns.changes()))
    assert job.lookup([(1, clock("0:30")), (1, clock("9:00"))])["a0"].to_list() == [1, 0]


def test_empty_batches_change_nothing() -> None:
    job = Job(aggregation(Count(window=HOUR)))
    job.feed(STREAM.empty())
    assert job.table() == []
    assert job.lookup([(1, DAY)]).row(0) == (False, False, None, None)
    assert job.lookup([]).height == 0


@pytest.mark.parametrize("options", [{"accuracy": 0}, {"accuracy": 1}, {"exact": 0}])
def test_settings_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Tiling(**options)


def test_grid_is_a_hundredth_of_the_window() -> None:
    assert Tiling().grain(Continuous("1d")) == timedelta(seconds=864) // timedelta(microseconds=1)
    assert Tiling(disorder="1h").grain(Continuous("forever")) == 36 * SECOND
    assert Tiling(disorder="0s").grain(Continuous("forever")) == 1


TENTHS = (0.1, 0.2, 0.3)
"""Their sum less each of them is not 0."""


@pytest.mark.parametrize("kind", [Sum, Average, Stddev], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("window", [HOUR, Continuous("forever")], ids=str)
def test_a_remainder_of_retracted_floats_is_no_row(kind: Any, window: Any) -> None:
    """The state found a key with no rows ever, history did not: what was left of their sum counted as one."""
    rows = [(1, Change(0, 0, {"f": value, "id": one}, 1, one)) for one, value in enumerate(TENTHS)]
    back = [(key, replace(row, weight=-1)) for key, row in rows]
    job = Job(aggregation(kind(of="f", window=window), keyed=True))
    for batch in (rows, *([each] for each in back)):
        job.feed(frame(batch, KEYED))
    points = [(1, at * SECOND) for at in (0, 20)]
    found, replayed = job.lookup(points), job.operator.replay(frame([*rows, *back], KEYED), job.points(points))
    assert found["_at_found"].to_list() == replayed["_at_found"].to_list() == [False, False]


ODD = (1.5, float("nan"), float("inf"), float("-inf"), 2.5)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_lookups_of_points_restore_what_is_no_finite_number(is_keyed: bool) -> None:
    """NaN and infinities are apart from the sums of what may be retracted, in frames as in points."""
    kinds = (Sum(of="f"), Average(of="f"), Stddev(of="f"), ExpDecaySum(of="f", half_life="1s"), Average(of="x"))
    job = Job(aggregation(*(replace(each, window=HOUR) for each in kinds), keyed=is_keyed, appends=False))
    rows = [
        (key, Change(at * SECOND, at * SECOND, {"f": value, "id": 10 * key + at}, 1, 10 * key + at))
        for key in range(5)
        for at, value in enumerate((ODD * 2)[key : key + 4])
    ]
    gone = [(key, replace(row, at=row.time, weight=-1)) for key, row in rows]
    points = [(key, at * SECOND) for key in range(5) for at in (0, 1, 3, 9)]
    for number, change in enumerate((*([each] for each in rows), *([each] for each in gone[::2]), gone[1::2])):
        job.feed(frame(change, KEYED if is_keyed else STREAM))
        framed = job.lookup(points)
        with job.store.snapshot(0) as reader:
            quick = Pointwise(job.operator.tiles, job.operator.answered.aggregates)
            stored = quick.read(State(reader, job.operator.id), Job.points(points)["_key"].to_list())
        found = quick.values(stored, np.array([at for _, at in points]))
        assert found is not None
        for place, values in enumerate(found.values):
            there = framed["_at_found"].to_list()
            expected = [each for each, is_there in zip(framed[f"a{place}"].to_list(), there, strict=True) if is_there]
            actual = [each for each, is_there in zip(values, found.found, strict=True) if is_there]
            assert_rows(actual, expected, what=f"batch {number}")
