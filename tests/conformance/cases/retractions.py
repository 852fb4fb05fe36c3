"""Keys without rows in force: theirs were replaced, or have nothing but nulls.

Along a column of its own a row that was replaced never was: its key has no result, in no kind of window. Along the timestamp it
was there until it ended: its key keeps the results of nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Optional

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel import datasets as aggregates
from umbel.datasets import dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Tumbling
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

RESULTS = {
    "n": int,
    "known": int,
    "different": int,
    "total": int,
    "mean": float,
    "spread": float,
    "largest": Optional[int],
    "middle": Optional[float],
    "last": list[int],
    "values": list[int],
}
NOTHING = (0, 0, 0, 0, 0.0, -1.0, None, None, [], [])
NULL = (1, 0, 1, 0, 0.0, -1.0, None, None, [], [])
ONE = (1, 1, 1, 1, 1.0, 0.0, 1, 1.0, [1], [1])
THREE = (1, 1, 1, 3, 3.0, 0.0, 3, 3.0, [3], [3])
DEFAULTS = {"mean": 0.0, "spread": -1.0}


def at(clock: str) -> datetime:
    return instant(f"2024-01-01T{clock}")


@dataset(index=True)
class Order:
    uid: int = field(key=True)
    g: str
    x: Optional[int]
    w: datetime
    t: datetime = field(timestamp=True)


def over(window: Any) -> dict[str, Any]:
    """Aggregates of a column that may have nothing but nulls, by the name of the result."""
    return {
        "n": aggregates.Count(window=window),
        "known": aggregates.Count(of="x", dropnull=True, window=window),
        "different": aggregates.Count(of="x", unique=True, approx=True, window=window),
        "total": aggregates.Sum(of="x", window=window),
        "mean": aggregates.Average(of="x", window=window),
        "spread": aggregates.Stddev(of="x", window=window),
        "largest": aggregates.Max(of="x", window=window),
        "middle": aggregates.Quantile(of="x", p=0.5, approx=True, window=window),
        "last": aggregates.LastK(of="x", limit=2, dedup=False, dropnull=True, window=window),
        "values": aggregates.Distinct(of="x", unordered=True, dropnull=True, window=window),
    }


def by_group(name: str, window: Any, along: str | None) -> Any:
    """A dataset with the aggregates of the orders of a group over a window."""

    def body(cls, orders):
        return orders.groupby("g").aggregate(along=along, **over(window))

    hints = {"g": str, **RESULTS, "t": datetime}
    members = {"__annotations__": hints, "g": field(key=True), "grouped": pipeline(inputs(Order)(body))}
    return dataset(type(name, (), {**members, "__module__": __name__}), index=True)


WINDOWS = {
    "Cumulative": (Hopping("forever", "1h"), "w"),
    "Hourly": (Tumbling("1h"), "w"),
    "Hops": (Hopping("1h", "25m"), "w"),
    "Sliding": (Continuous("1h"), "w"),
    "Ever": (Continuous("forever"), "w"),
    "Ended": (Hopping("forever", "10m"), None),
    "EverEnded": (Continuous("forever"), None),
}
DATASETS = [Order, *(by_group(name, window, along) for name, (window, along) in WINDOWS.items())]

ROWS = [
    {"uid": 1, "g": "a", "x": 1, "w": at("01:10"), "t": at("00:05")},
    {"uid": 2, "g": "c", "x": 3, "w": at("01:30"), "t": at("00:10")},
    {"uid": 1, "g": "b", "x": None, "w": at("01:20"), "t": at("00:20")},
    {"uid": 3, "g": "d", "x": None, "w": at("05:30"), "t": at("00:40")},
]
"""The row of `a` is replaced by that of `b`, the value of `b` and `d` is null, `d` moves the stream on."""


def table(name: str, *rows: tuple[str, str, tuple[Any, ...]]) -> Table:
    """Expect rows: group, instant, values."""
    return Table(name, ("g", *RESULTS, "t"), [(group, *values, at(clock)) for group, clock, values in rows])


def as_of(name: str, group: str, expected: dict[str, tuple[Any, ...] | None]) -> AsOf:
    """Expect values of a group by the time of the day."""
    instants = {at(clock): values for clock, values in expected.items()}
    return AsOf(name, {"g": group}, tuple(RESULTS), instants, DEFAULTS)


EXPECTED: list[Step] = [
    table("Cumulative", ("b", "02:00", NULL), ("c", "02:00", THREE)),
    table(
        "Hourly",
        *(("b", "02:00", NULL), ("b", "03:00", NOTHING)),
        *(("c", "02:00", THREE), ("c", "03:00", NOTHING)),
    ),
    *(as_of(name, "a", dict.fromkeys(("00:30", "01:15", "02:00", "06:00"))) for name, (_, w) in WINDOWS.items() if w),
    as_of("Hourly", "b", {"01:30": None, "02:30": NULL, "03:30": NOTHING}),
    as_of("Hops", "b", {"01:29": None, "01:30": NULL, "02:44": NULL, "02:45": NOTHING}),
    as_of("Sliding", "b", {"01:19": None, "01:20": NULL, "02:20": NULL, "02:21": NOTHING}),
    as_of("Sliding", "d", {"05:20": None, "05:30": NULL, "06:31": NOTHING}),
    as_of("Ever", "c", {"01:29": None, "01:30": THREE}),
    table("Ended", ("a", "00:10", ONE), ("a", "00:30", NOTHING), ("b", "00:30", NULL), ("c", "00:20", THREE)),
    as_of("EverEnded", "a", {"00:04": None, "00:05": ONE, "00:20": NOTHING}),
    as_of("EverEnded", "b", {"00:19": None, "00:20": NULL}),
]

CASES = [
    Case("retractions: all rows of a group, in one call", DATASETS, [Log("Order", ROWS), *EXPECTED]),
    Case("retractions: all rows of a group, one by one", DATASETS, [*(Log("Order", [row]) for row in ROWS), *EXPECTED]),
    Case(
        "retractions: all rows of a group, before they came",
        DATASETS,
        [*(Log("Order", [row]) for row in reversed(ROWS)), *EXPECTED],
    ),
]
