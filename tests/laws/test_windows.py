"""Discrete windows emit what the naive reference does, however rows arrive, and correct it when rows are late or retracted."""

from __future__ import annotations

import math
import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import TABLE, Job, aggregation, frame, instant, micros
from tests.comparing import assert_rows
from tests.profiles import examples
from tests.reference import Change, continuous, hopping, live, sessions
from umbel.aggregates import Average, Count, FirstK, Max, Stddev, Sum
from umbel.operators.aggregate import Aggregation
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

SECOND = 1_000_000
ODD = (math.inf, -math.inf, math.nan)
MINUTE = 60 * SECOND
PLAIN = (Count(), Sum(of="x"), Max(of="x"), Average(of="f"), FirstK(of="x", limit=2, dedup=False, dropnull=False))
WINDOWS = (
    Hopping("10m", "45s"),  # of 40 panes
    Tumbling("1m"),
    Hopping("3m", "1m"),
    Hopping("150s", "1m"),
    Hopping("forever", "1m"),
    Tumbling("1m", lookback="90s"),
    Hopping("5m", "2m", lookback="1m"),
)

values = st.tuples(
    st.none() | st.integers(-5, 5), st.none() | st.integers(-20, 20).map(lambda n: n / 10) | st.sampled_from(ODD)
)
instants = st.integers(0, 40).map(lambda n: n * 15 * SECOND) | st.integers(0, 12_000).map(lambda n: n * SECOND // 10)
streams = st.lists(st.tuples(st.integers(1, 2), instants, values), min_size=1, max_size=25)
orders = st.randoms(use_true_random=False)


def inserts(drawn: list[tuple[int, int, tuple[Any, Any]]]) -> list[tuple[int, Change]]:
    return [(key, Change(t, t, {"x": x, "f": f}, 1, seq)) for seq, (key, t, (x, f)) in enumerate(drawn)]


def batches(changes: list[Any], order: random.Random, count: int) -> list[list[Any]]:
    shuffled = list(changes)
    order.shuffle(shuffled)
    cuts = sorted(order.randrange(len(shuffled) + 1) for _ in range(count - 1))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True) if a < b]


def of(window: Any) -> list[Any]:
    return [type(each)(**{**vars(each), "window": window}) for each in PLAIN]


def newest_time(changes: list[tuple[int, Change]]) -> int:
    return max(change.time for _, change in changes if change.weight > 0) // SECOND * SECOND


def rows(found: pl.DataFrame, operator: Aggregation, key: int) -> list[tuple[Any, ...]]:
    """Return the rows of a key ever current: (timestamp, values…)."""
    began = found.filter((pl.col("_weight") > 0) & (pl.col("k") == key))
    names = [each.into_field for each in operator.aggregates]
    return [(micros(row["t"]), *(row[name] for name in names)) for row in began.iter_rows(named=True)]


def check_history(found: pl.DataFrame, key: int) -> None:
    """Assert that each row of a key ends where the next one begins, and the last one never."""
    mine = found.filter(pl.col("k") == key)
    assert mine["_weight"].abs().to_list() == [1] * len(mine)
    begins = mine.filter(pl.col("_weight") > 0).sort("t")
    ends = mine.filter(pl.col("_weight") < 0).sort("t")
    assert (begins["_at"] == begins["t"]).all()
    assert ends["_at"].to_list() == begins["t"].to_list()[1:]
    assert ends.drop("_at", "_weight").equals(begins[:-1].drop("_at", "_weight"))


def check(found: pl.DataFrame, operator: Aggregation, expected: dict[int, dict[int, list[Any]]]) -> None:
    for key, results in expected.items():
        check_history(found, key)
        got = rows(found, operator, key)
        assert [row[0] for row in got] == sorted(results), key
        for row in got:
            assert_rows(row[1:], results[row[0]], 1e3, (key, row[0]))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(drawn=streams, order=orders)
@examples(15)
def test_timelines(window: Any, drawn: Any, order: Any) -> None:
    changes = inserts(drawn)
    job = Job(aggregation(*of(window)))
    for batch in batches(changes, order, 4):
        job.feed(frame(batch), parts=order.randrange(1, 3))
    closed = newest_time(changes) - window.lookback_us
    expected = {
        key: hopping(PLAIN, [c for k, c in changes if k == key], window.duration_us, window.stride_us, closed)
        for key in (1, 2)
    }
    check(job.changes(), job.operator, expected)


@pytest.mark.parametrize("window", WINDOWS[:5], ids=str)
@given(drawn=streams, gone=st.sets(st.integers(0, 24)), order=orders)
@examples(15)
def test_retracted_rows(window: Any, drawn: Any, gone: Any, order: Any) -> None:
    changes = inserts(drawn)
    back = [(key, Change(c.at, c.time, c.values, -1, c.seq)) for n, (key, c) in enumerate(changes) if n in gone]
    job = Job(aggregation(*of(window), appends=False))
    for batch in batches(changes, order, 3):
        job.feed(frame(batch))
    for batch in batches(back, order, 3) if back else []:
        job.feed(frame(batch))
    expected = {}
    for key in (1, 2):
        left = live(c for k, c in [*changes, *back] if k == key)
        expected[key] = hopping(PLAIN, left, window.duration_us, window.stride_us, newest_time(changes))
    check(job.changes(), job.operator, expected)


@given(drawn=streams, order=orders, disorder=st.integers(0, 200), appends=st.booleans())
@examples(30)
@pytest.mark.parametrize("window", WINDOWS[:5], ids=str)
def test_watermark_forgets_only_what_it_may(window: Any, drawn: Any, order: Any, disorder: int, appends: bool) -> None:
    changes = sorted(inserts(drawn), key=lambda change: change[1].time + order.randrange(disorder + 1) * SECOND)
    job = Job(aggregation(*of(window), appends=appends))
    seen = -MINUTE
    for start in range(0, len(changes), 4):
        batch = changes[start : start + 4]
        job.feed(frame(batch), watermark=instant(seen))
        seen = max(seen, *(change.time - disorder * SECOND for _, change in batch))
    expected = {
        key: hopping(
            PLAIN, [c for k, c in changes if k == key], window.duration_us, window.stride_us, newest_time(changes)
        )
        for key in (1, 2)
    }
    check(job.changes(), job.operator, expected)


def test_state_stays_bounded() -> None:
    job = Job(aggregation(*of(Hopping("3m", "1m"))))
    forever = Job(aggregation(*of(Hopping("forever", "1m")), appends=False))
    for minute in range(40):
        batch = frame([(1, Change(minute * MINUTE, minute * MINUTE, {"x": 1, "f": None}, 1, minute))])
        for each in (job, forever):
            each.feed(batch, watermark=instant(minute * MINUTE - 2 * MINUTE))
    for each in (job, forever):
        assert len(each.table("windows")[0][1]) < 20
        assert len(each.table("timers")) <= 2


@given(drawn=streams, order=orders)
@examples(20)
def test_windows_of_different_lengths(drawn: Any, order: Any) -> None:
    changes = inserts(drawn)
    short, long, ever = Tumbling("1m"), Hopping("4m", "2m"), Hopping("forever", "3m")
    operator = aggregation(
        Count(window=short), Sum(of="x", window=long), Stddev(of="f", window=short), Max(of="x", window=ever)
    )
    job = Job(operator)
    for batch in batches(changes, order, 4):
        job.feed(frame(batch))
    for key in (1, 2):
        mine = [c for k, c in changes if k == key]
        check_history(job.changes(), key)
        parts = {
            w: hopping(
                [a for a in operator.aggregates if a.window == w],
                mine,
                w.duration_us,
                w.stride_us,
                newest_time(changes),
            )
            for w in (short, long, ever)
        }
        got = rows(job.changes(), operator, key)
        assert [row[0] for row in got] == sorted({end for part in parts.values() for end in part})
        for row in got:
            now = {
                w: part[max(end for end in part if end <= row[0])] if min(part, default=2**62) <= row[0] else None
                for w, part in parts.items()
            }
            expected = [
                *([0, -1.0] if now[short] is None else now[short]),
                *([0] if now[long] is None else now[long]),
                *([None] if now[ever] is None else now[ever]),
            ]
            assert_rows(row[1:], [expected[0], expected[2], expected[1], expected[3]], 1e3, (key, row[0]))


@pytest.mark.parametrize("window", WINDOWS[:4], ids=str)
@given(drawn=streams, order=orders, appends=st.booleans())
@examples(15)
def test_window_as_key(window: Any, drawn: Any, order: Any, appends: bool) -> None:
    changes = inserts(drawn)
    job = Job(aggregation(*PLAIN, window=window, appends=appends))
    for batch in batches(changes, order, 4):
        job.feed(frame(batch))
    found = job.changes()
    assert (found["_weight"] == 1).all()
    for key in (1, 2):
        mine = [c for k, c in changes if k == key]
        expected = hopping(PLAIN, mine, window.duration_us, window.stride_us, newest_time(changes))
        got = rows(found, job.operator, key)
        spans = [(micros(w["begin"]), micros(w["end"])) for w in found.filter(pl.col("k") == key)["window"]]
        assert spans == [(end - window.duration_us, end) for end in sorted(expected)]
        for row in got:
            assert_rows(row[1:], expected[row[0]], 1e3, (key, row[0]))


@given(drawn=streams, gone=st.sets(st.integers(0, 24)), order=orders, final=st.booleans(), forget=st.booleans())
@examples(40)
def test_sessions(drawn: Any, gone: Any, order: Any, final: bool, forget: bool) -> None:
    gap = 40 * SECOND
    changes = inserts(drawn)
    back = [(key, Change(c.at, c.time, c.values, -1, c.seq)) for n, (key, c) in enumerate(changes) if n in gone]
    job = Job(aggregation(*PLAIN, window=Session("40s"), appends=not back, emit="final" if final else "eager"))
    parts = [*batches(changes, order, 3), *(batches(back, order, 2) if back else [])]
    if forget:
        parts = [sorted([*changes, *back], key=lambda change: change[1].time)]
        parts = [parts[0][start : start + 5] for start in range(0, len(parts[0]), 5)]
    for batch in parts:
        job.feed(frame(batch), watermark=instant(batch[0][1].time - 1) if forget else None)
    end = instant(10**10)
    job.tick(watermark=end if forget else None, stream_time=end)
    found = job.changes()
    assert (found["_weight"] == 1).all()
    for key in (1, 2):
        expected = sessions(PLAIN, [c for k, c in [*changes, *back] if k == key], gap)
        mine = found.filter(pl.col("k") == key)
        spans = [(micros(w["begin"]), micros(w["end"])) for w in mine["window"]]
        assert spans == sorted(expected)
        for span, row in zip(spans, rows(found, job.operator, key), strict=True):
            assert row[0] == span[1]
            assert_rows(row[1:], expected[span], 1e3, (key, span))


@given(drawn=streams, order=orders, length=st.sampled_from(["2m", "90s", "forever"]), forget=st.booleans())
@examples(25)
def test_continuous_windows_emitted_when_final(drawn: Any, order: Any, length: str, forget: bool) -> None:
    window = Continuous(length)
    changes = inserts(drawn)
    job = Job(aggregation(*of(window), emit="final"))
    parts = batches(changes, order, 4)
    if forget:
        ordered = sorted(changes, key=lambda change: change[1].time)
        parts = [ordered[start : start + 5] for start in range(0, len(ordered), 5)]
    for batch in parts:
        job.feed(frame(batch), watermark=instant(batch[0][1].time) if forget else None)
    end = instant(10**10)
    job.tick(watermark=end if forget else None, stream_time=end)
    expected = {}
    for key in (1, 2):
        mine = [c for k, c in changes if k == key]
        points = {c.time for c in mine}
        if window.duration_us is not None:
            points |= {(c.time + window.duration_us) // SECOND * SECOND + SECOND for c in mine}
        expected[key] = {at: [continuous(each, mine, at, window.duration_us) for each in PLAIN] for at in points}
    check(job.changes(), job.operator, expected)


def test_a_late_row_changes_results_of_others_between_its_coming_and_going() -> None:
    job = Job(aggregation(Count(window=Continuous("2m")), emit="final"))
    changes = inserts([(1, n * SECOND, (None, None)) for n in (0, 135, 15)])
    for change in changes:
        job.feed(frame([change]))
    job.tick(stream_time=instant(10**10))
    counts = {0: 1, 15: 2, 121: 1, 135: 2, 136: 1, 256: 0}
    check(job.changes(), job.operator, {1: {at * SECOND: [count] for at, count in counts.items()}})


@given(
    drawn=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), instants, values), min_size=1, max_size=25),
    order=orders,
)
@examples(30)
def test_cumulative_windows_of_a_table(drawn: Any, order: Any) -> None:
    changes: list[tuple[int, Change]] = []
    for one in {row[0] for row in drawn}:
        history = sorted({row[2]: row for row in drawn if row[0] == one}.items())
        for place, (t, (_, key, _, (x, f))) in enumerate(history):
            row = {"x": x, "f": f, "id": one}
            changes.append((key, Change(t, t, row, 1, 1000 * one + place)))
            if place + 1 < len(history):
                changes.append((key, Change(history[place + 1][0], t, row, -1, 1000 * one + place)))
    window = Hopping("forever", "1m")
    job = Job(aggregation(*of(window), keyed=True))
    for batch in batches(changes, order, 4):
        job.feed(frame(batch, TABLE))
    expected = {
        key: hopping(PLAIN, [c for k, c in changes if k == key], None, window.stride_us, newest_time(changes))
        for key in (1, 2)
    }
    check(job.changes(), job.operator, expected)
