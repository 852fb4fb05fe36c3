"""Discrete windows: the worked examples of the specification, sessions, and windows that are looked up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from tests.aggregating import TABLE, Job, aggregation, frame, instant, micros
from tests.reference import Change
from umbel.aggregates import Count, ExpDecaySum, Sum
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

DAY = micros(datetime(2024, 1, 1, tzinfo=UTC))
SECOND = 1_000_000
MINUTE = 60 * SECOND
EVENTS = ("0:00:00", "0:59:59", "1:00:00", "3:30", "4:10")


def clock(text: str) -> int:
    """Return the instant of a time of day."""
    parts = [int(part) for part in text.split(":")]
    hours, minutes, seconds = [*parts, *[0] * (3 - len(parts))]
    return DAY + (hours * 3600 + minutes * 60 + seconds) * SECOND


def rows(*times: str, key: int = 1) -> pl.DataFrame:
    return frame((key, Change(clock(at), clock(at), {"x": 1, "f": 1.0}, 1, seq)) for seq, at in enumerate(times))


def emitted(job: Job) -> dict[str, int]:
    """Return the emitted rows: time of day to value."""
    began = job.changes().filter(pl.col("_weight") > 0)
    return dict(zip(began["t"].dt.strftime("%-H:%M"), began["a0"], strict=True))


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Tumbling("1h"), {"1:00": 2, "2:00": 1, "3:00": 0, "4:00": 1}),
        (Tumbling("1h", lookback="1h"), {"1:00": 2, "2:00": 1, "3:00": 0}),
        (Hopping("2h", "1h"), {"1:00": 2, "2:00": 3, "3:00": 1, "4:00": 1}),
        (Hopping("forever", "1h"), {"1:00": 2, "2:00": 3, "4:00": 4}),
    ],
    ids=str,
)
def test_results_of_the_specification(window: Any, expected: dict[str, int], one_by_one: bool) -> None:
    """Section 12.4: events at 0:00:00, 0:59:59, 1:00:00, 3:30 and 4:10."""
    job = Job(aggregation(Count(window=window)))
    for batch in [[at] for at in EVENTS] if one_by_one else [EVENTS]:
        job.feed(rows(*batch))
    assert emitted(job) == expected


def test_windows_as_keys_of_the_specification() -> None:
    job = Job(aggregation(Count(), window=Tumbling("1h")))
    job.feed(rows(*EVENTS))
    found = job.changes()
    assert emitted(job) == {"1:00": 2, "2:00": 1, "3:00": 0, "4:00": 1}
    assert (found["window"].struct.field("end") == found["t"]).all()
    assert (found["t"] - found["window"].struct.field("begin")).unique().dt.total_hours().to_list() == [1]
    assert (found["_at"] == found["t"]).all()


def test_windows_close_by_the_stream_time_of_all_keys() -> None:
    job = Job(aggregation(Count(window=Tumbling("1h"))))
    job.feed(rows("0:10", key=1))
    assert job.changes().is_empty()
    job.feed(rows("1:00", key=2))
    assert job.changes().select("k", "a0").rows() == [(1, 1)]
    job.feed(rows("2:30", key=3))
    assert job.changes().filter(pl.col("_weight") > 0).select("k", "a0").rows() == [(1, 1), (1, 0), (2, 1)]


def test_late_rows_correct_what_was_emitted() -> None:
    job = Job(aggregation(Count(window=Tumbling("1h"))))
    job.feed(rows("0:10", "3:00"))
    job.feed(rows("0:20"))
    correction = job.emitted[-2].select("a0", "_weight", pl.col("_at").dt.strftime("%-H:%M").alias("at"))
    assert sorted(correction.rows()) == [(1, -1, "1:00"), (1, 1, "2:00"), (2, -1, "2:00"), (2, 1, "1:00")]
    assert emitted(job) == {"1:00": 2, "2:00": 0}


def test_a_row_that_fills_a_gap_moves_the_end_of_the_row_before() -> None:
    job = Job(aggregation(Count(window=Tumbling("1h"))))
    job.feed(rows("0:10", "5:30", "8:00"))
    before = job.changes()
    assert before.filter(pl.col("_weight") < 0)["_at"].dt.hour().to_list() == [2, 6, 7]
    job.feed(rows("3:30"))
    ends = job.changes().filter(pl.col("_weight") < 0)
    assert ends.select(pl.col("t").dt.hour(), pl.col("_at").dt.hour().alias("at")).rows() == [
        (1, 2),
        (2, 4),
        (4, 5),
        (5, 6),
        (6, 7),
    ]


def test_updates_of_a_table_in_cumulative_windows() -> None:
    """Section 12.3: a row counts until the instant at which another one takes its place."""
    job = Job(aggregation(Count(window=Hopping("forever", "1h")), keyed=True))
    row = {"x": 2, "id": 1}
    changes = [
        (2, Change(clock("0:30"), clock("0:30"), row, 1, 0)),
        (2, Change(clock("1:30"), clock("0:30"), row, -1, 0)),
        (1, Change(clock("1:30"), clock("1:30"), {**row, "x": 1}, 1, 1)),
        (3, Change(clock("3:00"), clock("3:00"), row, 1, 2)),
    ]
    job.feed(frame(changes, TABLE))
    began = job.changes().filter(pl.col("_weight") > 0)
    assert began.select("k", pl.col("t").dt.hour(), "a0").rows() == [(1, 2, 1), (2, 1, 1), (2, 2, 0)]


@pytest.mark.parametrize(
    ("times", "sessions"),
    [
        (("0:00", "1:00"), [("0:00:00.000000", "1:00:00.000001", 2)]),
        (("0:00:00", "1:00:01"), [("0:00:00.000000", "0:00:00.000001", 1), ("1:00:01.000000", "1:00:01.000001", 1)]),
        (EVENTS, [("0:00:00.000000", "1:00:00.000001", 3), ("3:30:00.000000", "4:10:00.000001", 2)]),
    ],
)
def test_sessions_end_when_a_gap_is_longer(times: Any, sessions: Any) -> None:
    job = Job(aggregation(Count(), window=Session("1h")))
    for at in reversed(times):
        job.feed(rows(at))
    found = job.changes()
    spans = [found["window"].struct.field(name).dt.strftime("%-H:%M:%S.%6f") for name in ("begin", "end")]
    assert list(zip(*spans, found["a0"], strict=True)) == sessions
    assert (found["t"] == found["window"].struct.field("end")).all()


def test_a_row_that_joins_two_sessions_replaces_both() -> None:
    job = Job(aggregation(Sum(of="x"), window=Session("1h")))
    job.feed(rows("0:00", "1:30"))
    job.feed(rows("0:45"))
    correction = job.emitted[-2]
    assert correction["_weight"].to_list() == [-1, -1, 1]
    assert correction["a0"].to_list() == [1, 1, 3]


def test_final_results_are_emitted_once() -> None:
    job = Job(aggregation(Count(window=Tumbling("1h")), emit="final"))
    job.feed(rows("0:10", "3:00"), watermark=instant(clock("0:30")))
    assert job.changes().is_empty()
    job.feed(rows("0:40", "3:10"), watermark=instant(clock("1:00")))
    assert emitted(job) == {"1:00": 2}
    job.tick(watermark=instant(clock("2:00")))
    assert emitted(job) == {"1:00": 2, "2:00": 0}
    assert (pl.concat(job.emitted)["_weight"] > 0).sum() == 2


def test_final_sessions_wait_for_the_watermark() -> None:
    job = Job(aggregation(Count(), window=Session("1h"), emit="final"))
    job.feed(rows("0:00", "0:30", "5:00"), watermark=instant(clock("0:20")))
    job.tick(watermark=instant(clock("1:30")))
    assert job.changes().is_empty()
    job.tick(watermark=instant(clock("1:30:01")))
    assert job.changes()["a0"].to_list() == [2]
    assert len(job.table("windows")) == 1


def test_decaying_sums_of_discrete_windows_are_looked_up() -> None:
    window = Tumbling("1h")
    operator = aggregation(ExpDecaySum(of="f", half_life="1h", window=window), Count(window=window))
    job = Job(operator)
    history = pl.concat([rows("0:00", "0:30"), rows("2:10")])
    job.feed(rows("0:00", "0:30"))
    job.feed(rows("2:10"))
    assert job.changes().is_empty()
    requested = [(1, clock(at)) for at in ("0:59", "1:00", "1:30", "2:30", "3:10")] + [(2, clock("1:00"))]
    found = job.lookup(requested)
    assert found["_at_found"].to_list() == [False, True, True, True, True, False]
    assert found["a0"].to_list()[1:5] == pytest.approx([0.5 + 0.5**0.5, 0.5**1.5 + 0.5, 0.0, 0.5])
    assert found["a1"].to_list() == [None, 2, 2, 0, 1, None]
    assert operator.replay(history, job.points(requested)).equals(found.drop("_at_history"))


def test_windows_for_lookups_forget_behind_the_watermark() -> None:
    operator = aggregation(ExpDecaySum(of="f", half_life="1h", window=Tumbling("1h")))
    job = Job(operator)
    for hour in range(20):
        job.feed(rows(f"{hour}:10"), watermark=instant(clock(f"{hour}:00")))
    ((_, retained),) = job.table("windows")
    assert len(retained) < 6
    found = job.lookup([(1, clock("20:00")), (1, clock("5:00"))])
    assert found["_at_history"].to_list() == [False, True]
    assert found["a0"][0] == pytest.approx(0.5 ** (50 / 60))


def test_continuous_windows_emitted_when_final() -> None:
    """The change points of section 12.5."""
    job = Job(aggregation(Count(window=Continuous("1h")), emit="final"))
    job.feed(rows(*EVENTS))
    job.tick(stream_time=instant(clock("9:00")))
    found = job.changes().filter(pl.col("_weight") > 0)
    points = dict(zip(found["t"].dt.strftime("%-H:%M:%S"), found["a0"], strict=True))
    assert points == {
        "0:00:00": 1,
        "0:59:59": 2,
        "1:00:00": 3,
        "1:00:01": 2,
        "2:00:00": 1,
        "2:00:01": 0,
        "3:30:00": 1,
        "4:10:00": 2,
        "4:30:01": 1,
        "5:10:01": 0,
    }


def test_a_sum_that_does_not_fit_is_null_and_stops_nothing_else() -> None:
    hour = Tumbling("1h")
    job = Job(aggregation(Sum(of="x", window=hour), Count(window=hour)))
    big = [(1, Change(clock(at), clock(at), {"x": 2**62, "f": 1.0}, 1, seq)) for seq, at in enumerate(["0:10", "0:20"])]
    job.feed(pl.concat([frame(big), rows("0:30", "3:30", key=2)]))
    first = job.changes().filter((pl.col("_weight") > 0) & (pl.col("t") == pl.lit(instant(clock("1:00")))))
    assert first.sort("k").select("k", "a0", "a1").rows() == [(1, None, 2), (2, 1, 1)]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("instead", [5, 7])
def test_a_row_that_begins_when_another_one_ends_after_their_instant(instead: int, one_by_one: bool) -> None:
    """One began and one ended, later than their timestamps as in databases: the pane of both was taken for a retracted one."""
    old, new, last = ({"x": x, "id": number} for number, x in enumerate((5, instead, 1)))
    changes = [
        Change(0, 0, old, 1, 0),
        Change(50 * SECOND, 0, old, -1, 0),
        Change(50 * SECOND, 0, new, 1, 1),
        Change(100 * SECOND, 100 * SECOND, last, 1, 2),
    ]
    job = Job(aggregation(Sum(of="x", window=Hopping("forever", "30s")), keyed=True))
    for batch in [[each] for each in changes] if one_by_one else [changes]:
        job.feed(frame([(1, each) for each in batch], TABLE))
    began = job.changes().filter(pl.col("_weight") > 0)
    assert began.select("t", "a0").rows() == [(instant(30 * SECOND), 5), (instant(60 * SECOND), instead)]


def test_a_late_effect_that_is_retracted_leaves_no_result() -> None:
    row, last = {"x": 5, "id": 0}, {"x": 1, "id": 1}
    there = Change(50 * SECOND, 0, row, 1, 0)
    job = Job(aggregation(Count(window=Hopping("forever", "30s")), keyed=True))
    for change in (there, replace(there, weight=-1), Change(100 * SECOND, 100 * SECOND, last, 1, 2)):
        job.feed(frame([(1, change)], TABLE))
    assert job.changes().is_empty()
