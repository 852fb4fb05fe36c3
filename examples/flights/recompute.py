"""What the flights' features must be, computed anew from the tables by plain Polars. Nothing of umbel is used here.

A window of length w at the instant T covers the departures from T − w to T, both included; an event leaves it at the
first whole second after its time + w. What is served comes from tiles of w/100: where the tile that T − w falls into
holds at most 8 distinct instants the served values must be these, else those over (cut, T] for one instant `cut` that
is no further than w/100 from T − w.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from math import isclose

import polars as pl

WINDOWS: Mapping[str, timedelta | None] = {
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "forever": None,
}
AGGREGATES: Mapping[str, pl.Expr] = {
    "count": pl.len().cast(pl.Int64),
    "sum": pl.col("delay").sum(),
    "average": pl.col("delay").mean(),
    "minimum": pl.col("delay").min(),
    "maximum": pl.col("delay").max(),
    "stddev": pl.col("delay").std(ddof=0),
}
EMPTY: Mapping[str, int | float | None] = {
    "count": 0,
    "sum": 0,
    "average": 0.0,
    "minimum": None,
    "maximum": None,
    "stddev": -1.0,
}
"""The values of a window with nothing in it."""

TILES = 100
INSTANTS = 8
WITHIN = timedelta(hours=1)
Values = Mapping[str, int | float | None]


def departures(flights: pl.DataFrame) -> pl.DataFrame:
    """Return the flights that left, with the UTC instant `at` they did, `delay` in minutes, and their `position`.

    The instant is the scheduled local time at the origin, in its time zone, plus the delay.
    """
    numbered = flights.with_row_index("position").filter(pl.col("dep_time").is_not_null())
    parts = numbered.partition_by("time_zone", as_dict=True)
    return pl.concat(part.with_columns(_departed(str(zone))) for (zone,), part in parts.items()).sort("at", "position")


def observations(weather: pl.DataFrame) -> pl.DataFrame:
    """Return the weather rows with `observed_at`, their UTC instant."""
    instant = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    return weather.with_columns(instant.alias("observed_at")).sort("observed_at")


def with_plane_and_weather(events: pl.DataFrame, planes: pl.DataFrame, weather: pl.DataFrame) -> pl.DataFrame:
    """Return the departures with their plane's columns (`plane_…`) and the weather's (`weather_…`) at their origin.

    The weather is the latest observed not after the departure and at most an hour before it; null where there is none.
    """
    of_plane = planes.drop("added_at").rename(lambda name: name if name == "tailnum" else f"plane_{name}")
    observed = observations(weather).rename(lambda name: name if name == "origin" else f"weather_{name}")
    return (
        events.join(of_plane, on="tailnum", how="left", maintain_order="left")
        .sort("at")
        .join_asof(
            observed,
            left_on="at",
            right_on="weather_observed_at",
            by="origin",
            tolerance=WITHIN,
            coalesce=False,
            check_sortedness=False,  # both sides are sorted above; polars cannot tell where there is a `by`
        )
        .sort("at", "position")
    )


def window(events: pl.DataFrame, at: datetime, length: timedelta | None) -> Values:
    """Return every aggregate of one key's departures over the window that ends at `at`; None is forever."""
    return _values(events.filter(_covered(at, length)))


def is_exact(events: pl.DataFrame, at: datetime, length: timedelta | None) -> bool:
    """Return whether the tiles answer this window exactly: whether the one it cuts has not collapsed."""
    if length is None:
        return True
    width = length // timedelta(microseconds=1) // TILES
    tile = pl.col("at").dt.epoch("us") // width
    cut = pl.lit(_low(at, length)).dt.cast_time_unit("us").dt.epoch("us") // width
    return events.filter(tile == cut)["at"].n_unique() <= INSTANTS


def last_destinations(events: pl.DataFrame, at: datetime, limit: int = 5) -> list[str]:
    """Return where one plane's departures up to `at` went, newest first; of equal instants the later row is newer."""
    past = events.filter(pl.col("at") <= at).sort("at", "position", descending=True)
    return past["dest"].head(limit).to_list()


def unlike(served: Values, expected: Values) -> list[str]:
    """Return the names of the aggregates that differ: whole numbers at all, others by rounding that is no error."""
    return [name for name in expected if not _alike(name, served, expected)]


def fits_a_cut(served: Values, events: pl.DataFrame, at: datetime, length: timedelta) -> bool:
    """Tell whether one cut within w/100 of T − w gives all the served values."""
    return any(not unlike(served, expected) for expected in _by_cut(events, at, length))


def _departed(zone: str) -> tuple[pl.Expr, pl.Expr]:
    scheduled = pl.datetime(
        "year", "month", "day", pl.col("sched_dep_time") // 100, pl.col("sched_dep_time") % 100, time_zone=zone
    )
    delay = pl.duration(minutes="dep_delay")
    return (scheduled.dt.convert_time_zone("UTC") + delay).alias("at"), pl.col("dep_delay").alias("delay")


def _covered(at: datetime, length: timedelta | None) -> pl.Expr:
    upto = pl.col("at") <= at
    return upto if length is None else upto & (pl.col("at") >= _low(at, length))


def _low(at: datetime, length: timedelta) -> datetime:
    return at.replace(microsecond=0) - length


def _values(covered: pl.DataFrame) -> Values:
    if covered.is_empty():
        return EMPTY
    return covered.select(**AGGREGATES).row(0, named=True)


def _by_cut(events: pl.DataFrame, at: datetime, length: timedelta) -> Iterator[Values]:
    low, error = _low(at, length), length / TILES
    inside = events.filter(pl.col("at") > low - error, pl.col("at") <= at)
    yield _values(inside)
    for cut in inside.filter(pl.col("at") <= low + error)["at"].unique().sort():
        yield _values(inside.filter(pl.col("at") > cut))


def _alike(name: str, served: Values, expected: Values) -> bool:
    ours, theirs = expected[name], served[name]
    if ours is None or theirs is None:
        return ours is theirs
    if name == "stddev" and expected["count"]:
        # it comes from a difference of squares, whose rounding is relative to the squares
        square = ours**2 + (expected["average"] or 0) ** 2
        return theirs >= 0 and isclose(ours**2, theirs**2, rel_tol=0, abs_tol=1e-9 * max(square, 1e-300))
    return ours == theirs if isinstance(ours, int) else isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
