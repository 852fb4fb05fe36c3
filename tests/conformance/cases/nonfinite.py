"""NaN and infinities: once a row with one is replaced or deleted, sums and all that sums are what the rows that are left make.

They come from divisions: 0/0 is NaN, 1/0 and −1/0 are infinite.
"""

from __future__ import annotations

from datetime import datetime
from math import inf, nan, sqrt
from typing import Any, Optional

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel import datasets as aggregates
from umbel.datasets import dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Tumbling
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

NAN, HIGH, LOW = (0.0, 0.0), (1.0, 0.0), (-1.0, 0.0)
"""Dividends and divisors."""

VALUES = {
    "n": int,
    "total": float,
    "mean": float,
    "spread": float,
    "least": Optional[float],
    "most": Optional[float],
    "middle": Optional[float],
    "last": list[float],
}
NOTHING = (0, 0.0, 0.0, -1.0, None, None, None, [])
DEFAULTS = {"mean": 0.0, "spread": -1.0}


def at(clock: str) -> datetime:
    return instant(f"2024-01-01T{clock}")


@dataset(index=True)
class Reading:
    sensor: int = field(key=True)
    g: str
    a: float
    b: float
    w: datetime
    t: datetime = field(timestamp=True)


@dataset
class Event:
    g: str
    a: float
    b: float
    t: datetime = field(timestamp=True)


def over(window: Any) -> dict[str, Any]:
    """Aggregates of the quotient, by the name of the result."""
    return {
        "n": aggregates.Count(window=window),
        "total": aggregates.Sum(of="v", window=window),
        "mean": aggregates.Average(of="v", window=window),
        "spread": aggregates.Stddev(of="v", window=window),
        "least": aggregates.Min(of="v", window=window),
        "most": aggregates.Max(of="v", window=window),
        "middle": aggregates.Quantile(of="v", p=0.5, approx=True, window=window),
        "last": aggregates.LastK(of="v", limit=1, dedup=False, window=window),
    }


def by_group(name: str, source: Any, window: Any, along: str | None, *, decays: bool = False) -> Any:
    """A dataset with the aggregates of the quotients of a group over a window."""

    def body(cls, rows):
        computed = over(window)
        if decays:
            computed["recent"] = aggregates.ExpDecaySum(of="v", half_life="1s", window=window)
        quotients = rows.assign(v=(col("a") / col("b")).astype(float))
        return quotients.groupby("g").aggregate(along=along, **computed)

    hints = {"g": str, **VALUES, **({"recent": float} if decays else {}), "t": datetime}
    members = {"__annotations__": hints, "g": field(key=True), "grouped": pipeline(inputs(source)(body))}
    return dataset(type(name, (), {**members, "__module__": __name__}), index=True)


DATASETS = [
    Reading,
    by_group("Ever", Reading, Continuous("forever"), None, decays=True),
    by_group("Sliding", Reading, Continuous("1h"), "w"),
    by_group("Hourly", Reading, Tumbling("1h"), "w"),
    by_group("Cumulative", Reading, Hopping("forever", "10m"), None),
]
APPENDED = [Event, by_group("Passing", Event, Continuous("1h"), None, decays=True)]


def reading(sensor: int, quotient: tuple[float, float], clock: str) -> dict[str, Any]:
    a, b = quotient
    return {"sensor": sensor, "g": "g", "a": a, "b": b, "w": at(f"01:0{sensor}"), "t": at(clock)}


ROWS = [
    reading(1, (1.0, 1.0), "00:00"),
    reading(2, NAN, "00:05"),
    reading(2, (3.0, 1.0), "00:15"),
    reading(2, HIGH, "00:25"),
    reading(3, LOW, "00:35"),
    reading(2, (2.0, 1.0), "00:45"),
    reading(3, (6.0, 1.0), "00:55"),
    {**reading(4, (1.0, 1.0), "00:56"), "g": "z", "w": at("05:00")},
]
"""One sensor stays; two have a value that is no finite number, and then one that is; the last moves the stream on."""


def values(*found: float) -> tuple[Any, ...]:
    """What two values make, the newest last."""
    a, b = found
    return (2, a + b, (a + b) / 2, abs(a - b) / 2, min(found), max(found), max(found), [b])


ONE = (1, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, [1.0])
WITH_NAN = (2, nan, nan, nan, 1.0, 1.0, nan, [nan])
WITH_HIGH = (2, inf, inf, nan, 1.0, inf, inf, [inf])
WITH_BOTH = (3, nan, nan, nan, -inf, inf, 1.0, [-inf])
WITH_LOW = (3, -inf, -inf, nan, -inf, 2.0, 1.0, [2.0])
LEFT = (3, 9.0, 3.0, sqrt(14 / 3), 1.0, 6.0, 2.0, [6.0])
STATES = {
    "00:00": ONE,
    "00:05": WITH_NAN,
    "00:15": values(1.0, 3.0),
    "00:25": WITH_HIGH,
    "00:35": WITH_BOTH,
    "00:45": WITH_LOW,
    "00:55": LEFT,
}
"""The values from instants on."""


def as_of(name: str, expected: dict[str, tuple[Any, ...] | None], *more: str) -> AsOf:
    return AsOf(name, {"g": "g"}, (*VALUES, *more), {at(clock): each for clock, each in expected.items()}, DEFAULTS)


DECAYED = {"00:05": nan, "00:15": 3.0, "00:25": inf, "00:35": nan, "00:45": -inf, "00:55": 6.0}
"""What is left after many half-lives: the value of the instant itself, and what never decays."""

EXPECTED: list[Step] = [
    as_of("Ever", STATES),
    AsOf("Ever", {"g": "g"}, ("recent",), {at(clock): (each,) for clock, each in DECAYED.items()}, DEFAULTS),
    as_of("Sliding", {"01:00": None, "01:03": LEFT, "02:01": LEFT, "02:04": NOTHING}),
    as_of("Hourly", {"02:00": LEFT}),
    Table(
        "Cumulative",
        ("g", *VALUES, "t"),
        [
            ("g", *STATES[before], at(clock))
            for before, clock in (
                ("00:05", "00:10"),
                ("00:15", "00:20"),
                ("00:25", "00:30"),
                ("00:35", "00:40"),
                ("00:45", "00:50"),
            )
        ],
    ),
]

EVENTS = [
    {"g": "g", "a": 1.0, "b": 1.0, "t": at("00:00")},
    {"g": "g", "a": 1.0, "b": 0.0, "t": at("00:10")},
    {"g": "g", "a": -1.0, "b": 0.0, "t": at("00:20")},
    {"g": "g", "a": 5.0, "b": 1.0, "t": at("01:15")},
    {"g": "g", "a": 7.0, "b": 1.0, "t": at("01:30")},
]
PASSED: list[Step] = [
    as_of(
        "Passing",
        {
            "00:00": (*ONE, 1.0),
            "00:10": (*WITH_HIGH, inf),
            "00:20": (*WITH_BOTH, nan),
            "01:15": (2, -inf, -inf, nan, -inf, 5.0, 5.0, [5.0], -inf),
            "01:30": (*values(5.0, 7.0), 7.0),
        },
        "recent",
    )
]


def _ordered(order: tuple[int, ...]) -> Case:
    steps: list[Step] = [Log("Reading", [ROWS[place]]) for place in order]
    return Case(f"nonfinite: replaced, in order {''.join(map(str, order))}", DATASETS, [*steps, *EXPECTED])


ORDERS = (tuple(range(8))[::-1], (1, 6, 4, 0, 2, 3, 5, 7))

CASES = [
    Case("nonfinite: replaced, in one call", DATASETS, [Log("Reading", ROWS), *EXPECTED]),
    *map(_ordered, ORDERS),
    Case("nonfinite: leaving a window", APPENDED, [Log("Event", EVENTS), *PASSED]),
    Case("nonfinite: leaving a window, late", APPENDED, [*(Log("Event", [row]) for row in EVENTS[::-1]), *PASSED]),
]
