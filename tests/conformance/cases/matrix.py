"""Every aggregate in every kind of window: rows that only come, rows that are corrected, rows that come late.

What is expected is computed by the naive reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Optional

from tests import reference_operators as naive
from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from tests.reference import Change, continuous, is_found, live, value
from tests.reference_operators import Flow, Match
from umbel import datasets as aggregates
from umbel.datasets import dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Session, Tumbling, Window
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

EPOCH = instant("1970-01-01")
MICROSECOND = timedelta(microseconds=1)
WINDOWS: dict[str, Any] = {
    "Sliding": Continuous("1h"),
    "Ever": Continuous("forever"),
    "Hourly": Tumbling("1h"),
    "Hops": Hopping("2h", "1h"),
    "Cumulative": Hopping("forever", "1h"),
    "Sessions": Session("10m"),
}


def at(clock: str) -> datetime:
    return instant(f"2024-01-01T{clock}")


@dataset
class Events:
    uid: int
    x: Optional[int]
    t: datetime


@dataset(index=True)
class Right:
    uid: int = field(key=True)
    y: int
    since: datetime


def over(window: Any, of: str) -> dict[str, Any]:
    """Every aggregate, by the name of its result."""
    own = {} if isinstance(window, Session) else {"window": window}
    made = {
        "n": aggregates.Count(**own),
        "known": aggregates.Count(of=of, dropnull=True, **own),
        "different": aggregates.Count(of=of, unique=True, approx=True, **own),
        "total": aggregates.Sum(of=of, **own),
        "mean": aggregates.Average(of=of, **own),
        "low": aggregates.Min(of=of, default=0, **own),
        "high": aggregates.Max(of=of, default=0, **own),
        "spread": aggregates.Stddev(of=of, **own),
        "middle": aggregates.Quantile(of=of, p=0.5, default=-1.0, approx=True, **own),
        "newest": aggregates.LastK(of=of, limit=2, dedup=False, dropnull=True, **own),
        "oldest": aggregates.FirstK(of=of, limit=2, dedup=False, dropnull=True, **own),
        "values": aggregates.Distinct(of=of, unordered=True, dropnull=True, **own),
    }
    decayed = {"decayed": aggregates.ExpDecaySum(of=of, half_life="1h", **own)}
    return made | (decayed if isinstance(window, Continuous) else {})


RESULTS: dict[str, Any] = {
    "n": int, "known": int, "different": int, "total": int, "mean": float, "low": int, "high": int, "spread": float,
    "middle": float, "newest": list[int], "oldest": list[int], "values": list[int], "decayed": float,
}  # fmt: skip


def aggregated(name: str, window: Any, *, joined: bool) -> Any:
    """A dataset with every aggregate in a window, of the rows as they come or joined with a table that changes."""
    made = over(window, "y" if joined else "x")
    grouped_by = window if isinstance(window, Session) else None

    def body(cls, events, right):
        rows = events.join(right, how="left", on=["uid"]) if joined else events
        return rows.groupby("uid", window=grouped_by).aggregate(**made)

    keys = {"uid": int} | ({"window": Window} if grouped_by else {})
    fields = {key: field(key=True) for key in keys}
    hints = {**keys, **{each: RESULTS[each] for each in made}, "t": datetime}
    members = {"__annotations__": hints, **fields, "all_of_them": pipeline(inputs(Events, Right)(body))}
    return dataset(type(name, (), {**members, "__module__": __name__}), index=True)


def decaying(name: str, window: Any, *, joined: bool) -> Any:
    """A dataset with a decaying sum over a discrete window: its value depends on the instant of the lookup."""

    def body(cls, events, right):
        rows = events.join(right, how="left", on=["uid"]) if joined else events
        return rows.groupby("uid").aggregate(decayed=decay(window, "y" if joined else "x"))

    hints = {"uid": int, "decayed": float, "t": datetime}
    members = {"__annotations__": hints, "uid": field(key=True), "decaying": pipeline(inputs(Events, Right)(body))}
    return dataset(type(name, (), {**members, "__module__": __name__}), index=True)


def decay(window: Any, of: str) -> Any:
    return aggregates.ExpDecaySum(of=of, half_life="1h", window=window)


PLAIN = {name: aggregated(name, window, joined=False) for name, window in WINDOWS.items()}
JOINED = {f"{name}Joined": aggregated(f"{name}Joined", window, joined=True) for name, window in WINDOWS.items()}
DISCRETE = {name: window for name, window in WINDOWS.items() if isinstance(window, Tumbling | Hopping)}
DECAYING = {name: decaying(f"{name}Decaying", window, joined=False) for name, window in DISCRETE.items()}
DECAYING_JOINED = {name: decaying(f"{name}DecayingJoined", window, joined=True) for name, window in DISCRETE.items()}
DATASETS = [Events, Right, *PLAIN.values(), *JOINED.values(), *DECAYING.values(), *DECAYING_JOINED.values()]

CLOCKS = ["00:00:00", "00:05:00", "00:40:00", "01:00:00", "02:30:00", "04:10:00"]
XS = [3, None, -1, 3, 7, 0]
ROWS = [{"uid": 1, "x": x, "t": at(clock)} for clock, x in zip(CLOCKS, XS, strict=True)]
RIGHT = [{"uid": 1, "y": 5, "since": at("00:30")}, {"uid": 1, "y": 9, "since": at("02:00")}]
LATE = [{"uid": 1, "y": 2, "since": at("00:02")}]
PROBES = [at(clock) for clock in ("00:20", "00:45", "01:00", "01:45:01", "03:00", "05:00", "09:00")]


def micros(when: datetime) -> int:
    return (when - EPOCH) // MICROSECOND


def moment(instant_: int) -> datetime:
    return EPOCH + instant_ * MICROSECOND


def expected(right: Sequence[Any]) -> list[Step]:
    """What every dataset must hold once all rows are there."""
    rows = [Change(micros(row["t"]), micros(row["t"]), {"uid": 1, "x": row["x"]}, 1, n) for n, row in enumerate(ROWS)]
    starts = [
        Change(micros(row["since"]), micros(row["since"]), {"uid": 1, "y": row["y"]}, 1, n)
        for n, row in enumerate(right)
    ]
    plain = Flow(rows)
    joined = naive.as_of(plain, naive.upserted(starts, ("uid",)), Match(("uid",), ("y",), "since", inner=False))
    flows = [(name, plain, "x") for name in PLAIN] + [(name, joined, "y") for name in JOINED]
    steps = [step for name, flow, of in flows for step in _checks(name, flow, WINDOWS[name.removesuffix("Joined")], of)]
    decayed = [
        _decayed(f"{name}Decaying{end}", flow, decay(window, of), window)
        for end, flow, of in (("", plain, "x"), ("Joined", joined, "y"))
        for name, window in DISCRETE.items()
    ]
    return [*steps, *decayed]


def _decayed(name: str, flow: Flow, aggregate: Any, window: Any) -> Step:
    """Return the lookups of a decaying sum: of the rows in the last closed window, as of the instant of the lookup."""
    stride = window.duration_us if isinstance(window, Tumbling) else window.stride_us
    answers: dict[datetime, Sequence[Any] | None] = {}
    for queried_at in PROBES:
        end = micros(queried_at) // stride * stride
        closed = live(each for each in flow.changes if each.at < end)
        begin = (
            min((each.time for each in closed), default=end) if window.duration_us is None else end - window.duration_us
        )
        inside = [each for each in closed if each.time >= begin]
        answers[queried_at] = [value(aggregate, inside, micros(queried_at))] if closed else None
    return AsOf(name, {"uid": 1}, ("decayed",), answers)


def _checks(name: str, flow: Flow, window: Any, of: str) -> list[Step]:
    named = [each.named(result) for result, each in over(window, of).items()]
    columns = tuple(each.into_field for each in named)
    if isinstance(window, Session):
        found = naive.by_session(flow, ("uid",), named, window.gap_us).changes
        return [Table(name, ("uid", "window", *columns, "t"), [_row(each, ("window", *columns)) for each in found])]
    if isinstance(window, Continuous):
        values = [
            continuous(each, flow.changes, micros(queried_at), window.duration_us)
            for queried_at in PROBES
            for each in named
        ]
        assert all(is_found(flow.changes, micros(queried_at)) for queried_at in PROBES)
        size = len(named)
        answers = {queried_at: values[n * size : (n + 1) * size] for n, queried_at in enumerate(PROBES)}
        return [AsOf(name, {"uid": 1}, columns, answers)]
    seen = max(each.time for each in flow.changes)
    report = naive.aggregated(flow, ("uid",), named, seen).changes
    return [Table(name, ("uid", *columns, "t"), [_row(each, columns) for each in report if each.weight > 0])]


def _row(row: Change, columns: Sequence[str]) -> list[Any]:
    window = row.values.get("window")
    values = {**row.values, "window": window and tuple(map(moment, window))}
    return [1, *(values[name] for name in columns), moment(row.time)]


CASES = [
    Case("every aggregate in every window", DATASETS, [Log("Right", RIGHT), Log("Events", ROWS), *expected(RIGHT)]),
    Case(
        "every aggregate in every window, late rows last",
        DATASETS,
        [Log("Right", RIGHT), Log("Events", ROWS[3:]), Log("Events", ROWS[:3]), *expected(RIGHT)],
    ),
    Case(
        "every aggregate in every window, corrected by a table",
        DATASETS,
        [Log("Events", ROWS), Log("Right", RIGHT), Log("Right", LATE), *expected([*RIGHT, *LATE])],
    ),
]
