"""The recomputation the demo trusts, against loops over rows made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import pstdev

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.flights.compare import NOT_FOUND, compare_destinations, compare_rows, compare_windows
from examples.flights.recompute import (
    EMPTY,
    WINDOWS,
    Values,
    departures,
    fits_a_cut,
    is_exact,
    last_destinations,
    unlike,
    window,
    with_plane_and_weather,
)

NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def flight(**known: object) -> dict[str, object]:
    """Return a row of the flights table."""
    row = {"year": 2013, "month": 7, "day": 1, "dep_time": 1200, "sched_dep_time": 1200, "dep_delay": 0}
    row |= {"origin": "JFK", "carrier": "UA", "tailnum": "N1", "dest": "LAX", "time_zone": "America/New_York"}
    return row | known


def events(*pairs: tuple[datetime, int]) -> pl.DataFrame:
    """Return one key's departures at (instant, delay)."""
    instants, delays = [at for at, _ in pairs], [delay for _, delay in pairs]
    columns = {"at": instants, "delay": delays, "origin": ["JFK"] * len(pairs), "position": range(len(pairs))}
    schema = {"at": pl.Datetime("us", "UTC"), "delay": pl.Int64, "origin": pl.String, "position": pl.UInt32}
    return pl.DataFrame(columns, schema=schema)


def by_loop(pairs: list[tuple[datetime, int]], at: datetime, length: timedelta | None) -> Values:
    """Return the aggregates the slow way."""
    covered = []
    for instant, delay in pairs:
        leaves = None if length is None else (instant + length).replace(microsecond=0) + timedelta(seconds=1)
        if instant <= at and (leaves is None or at < leaves):
            covered.append(delay)
    if not covered:
        return EMPTY
    count, total = len(covered), sum(covered)
    report = {"count": count, "sum": total, "average": total / count, "minimum": min(covered), "maximum": max(covered)}
    return report | {"stddev": pstdev(covered)}


@pytest.mark.parametrize(
    ("known", "at"),
    [
        ({}, "2013-07-01T16:00"),
        ({"dep_delay": 90}, "2013-07-01T17:30"),
        ({"dep_delay": -10, "sched_dep_time": 5, "dep_time": 2355}, "2013-07-01T03:55"),
        ({"month": 1}, "2013-01-01T17:00"),
        ({"month": 12, "day": 31, "sched_dep_time": 2359, "dep_delay": 27}, "2014-01-01T05:26"),
        ({"month": 3, "day": 10, "sched_dep_time": 159, "dep_delay": 61}, "2013-03-10T08:00"),
        ({"time_zone": "America/Los_Angeles"}, "2013-07-01T19:00"),
    ],
)
def test_departures_are_in_utc(known: dict[str, object], at: str) -> None:
    row = departures(pl.DataFrame([flight(**known)])).row(0, named=True)
    assert row["at"] == datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert row["delay"] == known.get("dep_delay", 0)


def test_cancelled_flights_did_not_depart() -> None:
    table = pl.DataFrame([flight(dep_time=None, dep_delay=None), flight(dest="SFO")])
    assert departures(table)["dest"].to_list() == ["SFO"]


def test_both_ends_of_a_window_are_included() -> None:
    own = events((NOON, 10), (NOON + 30 * MINUTE, 0), (NOON + 30 * MINUTE, 30))
    after = [0, 30, 60, 60 + 1 / 60, 90, 90 + 1 / 60]
    counts = [window(own, NOON + minutes * MINUTE, HOUR)["count"] for minutes in after]
    assert counts == [1, 3, 3, 2, 2, 0]
    assert window(own, NOON - MINUTE, HOUR) == EMPTY


def test_an_event_leaves_at_the_first_whole_second() -> None:
    odd = timedelta(milliseconds=300)
    own = events((NOON + odd, 1))
    assert window(own, NOON + HOUR + timedelta(milliseconds=999), HOUR)["count"] == 1
    assert window(own, NOON + HOUR + timedelta(seconds=1), HOUR)["count"] == 0


INSTANTS = st.integers(0, 200).map(lambda minutes: NOON + minutes * MINUTE)
PAIRS = st.lists(st.tuples(INSTANTS, st.integers(-30, 400)), max_size=30)


@given(PAIRS, INSTANTS, st.sampled_from([None, 30 * MINUTE, HOUR]))
def test_windows_agree_with_a_loop(pairs: list[tuple[datetime, int]], at: datetime, length: timedelta | None) -> None:
    assert unlike(window(events(*pairs), at, length), by_loop(pairs, at, length)) == []


def test_a_tile_with_eight_instants_is_exact_and_with_nine_is_not() -> None:
    length = 100 * 20 * MINUTE
    tile = datetime.fromtimestamp(NOON.timestamp() // 1200 * 1200, UTC)
    eight = events(*((tile + n * MINUTE, 1) for n in range(8) for _ in range(3)))
    nine = events(*((tile + n * MINUTE, 1) for n in range(9)))
    cutting, beside = tile + 5 * MINUTE + length, tile + 25 * MINUTE + length
    assert is_exact(eight, cutting, length)
    assert not is_exact(nine, cutting, length)
    assert is_exact(nine, beside, length)
    assert is_exact(nine, cutting, None)


def test_a_cut_must_fit_all_aggregates_at_once() -> None:
    length = 100 * HOUR
    own = events(*((NOON + n * MINUTE, n) for n in range(0, 200, 5)))
    at = NOON + HOUR + length
    near = _over(own, NOON + 80 * MINUTE, at)
    assert fits_a_cut(near, own, at, length)
    assert not fits_a_cut(_over(own, NOON + 130 * MINUTE, at), own, at, length)
    assert not fits_a_cut({**near, "sum": _over(own, NOON + 90 * MINUTE, at)["sum"]}, own, at, length)


def _over(own: pl.DataFrame, cut: datetime, at: datetime) -> Values:
    return window(own.filter(pl.col("at") > cut), at, None)


@pytest.mark.parametrize("offset", range(-60, 61, 5))
def test_every_cut_within_a_hundredth_fits(offset: int) -> None:
    length = 100 * HOUR
    own = events(*((NOON + n * MINUTE, n * n % 37) for n in range(0, 400, 5)))
    at = NOON + 2 * HOUR + length
    assert fits_a_cut(_over(own, at - length + offset * MINUTE, at), own, at, length)


def test_rounding_of_floats_is_no_difference_and_anything_else_is() -> None:
    right = window(events((NOON, 1), (NOON, 2), (NOON, 4)), NOON, None)
    average, stddev = right["average"], right["stddev"]
    assert average is not None
    assert stddev is not None
    assert unlike({**right, "average": average * (1 + 1e-12), "stddev": stddev * (1 + 1e-12)}, right) == []
    wrong = {"count": 4, "sum": 8, "average": 2.34, "minimum": None, "maximum": 5, "stddev": -1.0}
    assert unlike(wrong, right) == list(wrong)


def test_the_last_destinations_are_newest_first_and_later_rows_are_newer() -> None:
    table = [flight(sched_dep_time=100 * hour, dest=f"D{hour}") for hour in range(1, 8)] + [
        flight(sched_dep_time=700, dest="late row")
    ]
    own = departures(pl.DataFrame(table))
    seven = datetime(2013, 7, 1, 11, tzinfo=UTC)
    assert last_destinations(own, seven) == ["late row", "D7", "D6", "D5", "D4"]
    assert last_destinations(own, seven - MINUTE) == ["D6", "D5", "D4", "D3", "D2"]
    assert last_destinations(own, seven - DAY) == []


def test_weather_is_the_latest_within_the_hour_before() -> None:
    hours = ["14:00", "15:00", "16:01"]
    weather = pl.DataFrame(
        {"origin": ["JFK"] * 3, "time_hour": [f"2013-07-01T{hour}:00Z" for hour in hours], "temp": [14.0, 15.0, 16.0]}
    )
    planes = pl.DataFrame({"tailnum": ["N1"], "seats": [100], "added_at": ["2013-01-01T00:00:00Z"]})
    table = [flight(sched_dep_time=time) for time in (959, 1000, 1059, 1100, 1200, 1201, 1301, 1302)]
    table += [flight(sched_dep_time=1030, origin="LGA", tailnum="N2")]
    joined = with_plane_and_weather(departures(pl.DataFrame(table)), planes, weather).sort("position")
    assert joined["weather_temp"].to_list() == [None, 14.0, 14.0, 15.0, 15.0, 16.0, 16.0, None, None]
    assert joined["plane_seats"].to_list() == [100] * 8 + [None]


def served_windows(own: pl.DataFrame, *instants: datetime) -> pl.DataFrame:
    """Return what a correct server answers."""
    rows = [
        {"origin": "JFK", "at": at}
        | {
            f"{aggregate}_{name}": value
            for name, length in WINDOWS.items()
            for aggregate, value in (window(own, at, length) if at >= NOON else NOT_FOUND).items()
        }
        for at in instants
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def test_a_comparison_counts_values_and_names_what_differs() -> None:
    own = events((NOON, 10), (NOON + HOUR, 20))
    served = served_windows(own, NOON - HOUR, NOON, NOON + 3 * DAY)
    right = compare_windows(served, own, "origin")
    assert (right.compared, right.rounded, right.differences) == (72, 0, ())
    wrong = compare_windows(served.with_columns(pl.col("sum_7d") + 1), own, "origin")
    assert len(wrong.differences) == 2
    assert "origin JFK, 7d" in wrong.differences[0]
    assert "sum served 11, recomputed 10" in wrong.differences[0]


def test_a_hot_key_may_be_rounded_and_an_exact_one_may_not() -> None:
    hot = events(*((NOON + n * MINUTE, n) for n in range(60)))
    quiet = hot.filter(pl.col("delay") % 30 == 0)
    at = NOON + 7 * DAY + 20 * MINUTE
    for own, rounded, differences in ((hot, 6, 0), (quiet, 0, 1)):
        cut = {f"{name}_7d": value for name, value in _over(own, NOON + 31 * MINUTE, at).items()}
        report = compare_windows(pl.DataFrame([{"origin": "JFK", "at": at, **cut}]), own, "origin", {"7d": 7 * DAY})
        assert (report.rounded, len(report.differences)) == (rounded, differences)


def test_destinations_and_rows_are_compared() -> None:
    own = departures(pl.DataFrame([flight(), flight(dest="SFO", sched_dep_time=1300)]))
    at = [datetime(2013, 7, 1, 17, tzinfo=UTC)] * 2
    served = pl.DataFrame({"tailnum": ["N1", "N1"], "at": at, "destinations": [["SFO", "LAX"], ["LAX"]]})
    report = compare_destinations(served, own)
    assert (report.compared, len(report.differences)) == (2, 1)

    expected = pl.DataFrame({"k": [1, 2], "a": [1.5, None], "b": ["x", "y"]})
    assert compare_rows(expected, expected, ["k"], "row").differences == ()
    changed = pl.DataFrame({"k": [1, 2, 3], "a": [1.5, 0.0, None], "b": ["x", "z", None]})
    differences = compare_rows(changed, expected, ["k"], "row").differences
    assert len(differences) == 3
    assert differences[0] == "row (3,): served, and should not exist"
