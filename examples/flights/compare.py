"""Served values against the recomputation: how many were compared, and which differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from examples.flights.recompute import EMPTY, WINDOWS, Values, fits_a_cut, is_exact, last_destinations, unlike, window

NOT_FOUND: Values = {**EMPTY, "count": None, "sum": None}
"""What is served for a key without any event so far: nothing, or the aggregate's default."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing served values.

    Args:
        compared: how many values.
        rounded: how many of them are right for a cut that is not T − w itself, as hot keys' may be.
        differences: a line for each value, or window, that is wrong.
    """

    compared: int = 0
    rounded: int = 0
    differences: tuple[str, ...] = ()

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.compared + other.compared, self.rounded + other.rounded, self.differences + other.differences
        )


def compare_windows(
    served: pl.DataFrame,
    events: pl.DataFrame,
    key: str,
    windows: Mapping[str, timedelta | None] = WINDOWS,
    not_found: Values = NOT_FOUND,
) -> Comparison:
    """Compare every window of every served row.

    Args:
        served: `key`, `at` (the queried instant), and a column `<aggregate>_<window>` for each of both.
        events: the departures, of all keys.
        not_found: what is served before a key's first event.
    """
    of_key = {name: part for (name,), part in events.partition_by(key, as_dict=True).items()}
    total = Comparison()
    for row in served.iter_rows(named=True):
        own = of_key.get(row[key], events.clear())
        for name, length in windows.items():
            values = {aggregate: row[f"{aggregate}_{name}"] for aggregate in EMPTY}
            total += _compare_window(f"{key} {row[key]}, {name}", values, own, row["at"], length, not_found)
    return total


def compare_destinations(served: pl.DataFrame, events: pl.DataFrame) -> Comparison:
    """Compare the last destinations of planes: `served` has `tailnum`, `at`, `destinations`."""
    of_plane = {name: part for (name,), part in events.partition_by("tailnum", as_dict=True).items()}
    total = Comparison()
    for tailnum, at, destinations in served.select("tailnum", "at", "destinations").iter_rows():
        expected = last_destinations(of_plane.get(tailnum, events.clear()), at)
        total += _compare_value(f"destinations of {tailnum} at {at}", destinations or [], expected)
    return total


def compare_rows(served: pl.DataFrame, expected: pl.DataFrame, by: list[str], what: str) -> Comparison:
    """Compare all columns of `expected` that `served` has, row by row.

    Args:
        by: the columns that tell which row is which; unique in `expected`.
        what: the name of the rows in messages.
    """
    columns = [name for name in expected.columns if name in served.columns and name not in by]
    matched = served.select(by + columns).join(expected.select(by + columns), on=by, how="left", suffix="_expected")
    total = Comparison(differences=_missing(served, expected, by, what))
    for name in columns:
        wrong = matched.filter(pl.col(name).ne_missing(pl.col(f"{name}_expected")))
        lines = [
            f"{what} {row[: len(by)]}, {name}: served {row[-2]!r}, recomputed {row[-1]!r}"
            for row in wrong.select(*by, name, f"{name}_expected").iter_rows()
        ]
        total += Comparison(matched.height, 0, tuple(lines))
    return total


def _compare_window(
    what: str, values: Values, events: pl.DataFrame, at: datetime, length: timedelta | None, not_found: Values
) -> Comparison:
    expected = not_found if events.filter(pl.col("at") <= at).is_empty() else window(events, at, length)
    wrong = unlike(values, expected)
    if not wrong:
        return Comparison(len(values))
    if length is not None and not is_exact(events, at, length) and fits_a_cut(values, events, at, length):
        return Comparison(len(values), rounded=len(values))
    differing = ", ".join(f"{name} served {values[name]!r}, recomputed {expected[name]!r}" for name in wrong)
    return Comparison(len(values), differences=(f"{what} at {at}: {differing}",))


def _compare_value(what: str, served: object, expected: object) -> Comparison:
    if served == expected:
        return Comparison(1)
    return Comparison(1, differences=(f"{what}: served {served!r}, recomputed {expected!r}",))


def _missing(served: pl.DataFrame, expected: pl.DataFrame, by: list[str], what: str) -> tuple[str, ...]:
    strangers = served.join(expected, on=by, how="anti")
    return tuple(f"{what} {row}: served, and should not exist" for row in strangers.select(by).iter_rows())
