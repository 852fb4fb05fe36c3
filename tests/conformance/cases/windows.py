"""Windows: discrete ones show when they close, continuous ones slide (api 12.4, 12.5)."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Session, Tumbling, Window
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"


def at(clock: str, day: str = "2024-01-01") -> datetime:
    return instant(f"{day}T{clock}")


TIMES = ["00:00:00", "00:59:59", "01:00:00", "03:30:00", "04:10:00"]
ROWS = [{"uid": 1, "t": at(clock)} for clock in TIMES]
DAY_BEFORE = "2023-12-31"


@dataset
class Events:
    uid: int
    t: datetime


def counted(name: str, window):
    """A dataset that counts the events of each user in a window."""

    class Counted:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(Events)
        def count(cls, events):
            return events.groupby("uid").aggregate(n=Count(window=window))

    Counted.__name__ = Counted.__qualname__ = name
    return dataset(Counted, index=True)


Hourly = counted("Hourly", Tumbling("1h"))
LookedBack = counted("LookedBack", Tumbling("1h", lookback="1h"))
TwoHours = counted("TwoHours", Hopping("2h", "1h"))
Ever = counted("Ever", Hopping("forever", "1h"))
ThreeHours = counted("ThreeHours", Hopping("3h", "15m"))
Sliding = counted("Sliding", Continuous("1h"))
Total = counted("Total", Continuous("forever"))


def by_window(name: str, window):
    """A dataset that counts the events of each user in each window."""

    class Counted:
        uid: int = field(key=True)
        window: Window = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(Events)
        def count(cls, events):
            return events.groupby("uid", window=span).aggregate(n=Count())

    span = window
    Counted.__name__ = Counted.__qualname__ = name
    return dataset(Counted, index=True)


ByHour = by_window("ByHour", Tumbling("1h"))
Sessions = by_window("Sessions", Session("10m"))
BriefSessions = by_window("BriefSessions", Session("1.5s"))

DATASETS = [Events, Hourly, LookedBack, TwoHours, ThreeHours, Ever, Sliding, Total, ByHour]


def rows(name: str, counts: dict[str, int]) -> Table:
    return Table(name, ("uid", "n", "t"), [(1, n, at(clock)) for clock, n in counts.items()])


def spans(name: str, counts: dict[tuple[str, str], int]) -> Table:
    found = [(1, (at(begin), at(end)), n, at(end)) for (begin, end), n in counts.items()]
    return Table(name, ("uid", "window", "n", "t"), found)


CHANGE_POINTS = {
    "00:00:00": 1,
    "00:59:59": 2,
    "01:00:00": 3,
    "01:00:01": 2,
    "02:00:00": 1,
    "02:00:01": 0,
    "03:30:00": 1,
    "04:10:00": 2,
    "04:30:01": 1,
    "05:10:01": 0,
}

QUARTERS = {
    **dict.fromkeys(["00:15", "00:30", "00:45"], 1),
    "01:00": 2,
    **dict.fromkeys([f"{number // 4:02}:{number % 4 * 15:02}" for number in range(5, 13)], 3),
    "03:15": 2,
    "03:30": 2,
    "03:45": 3,
    "04:00": 2,
}
"""The events of the three hours before each quarter of an hour: those at its begin have left it."""

PROBES: list[Step] = [
    rows("Hourly", {"01:00": 2, "02:00": 1, "03:00": 0, "04:00": 1}),
    rows("LookedBack", {"01:00": 2, "02:00": 1, "03:00": 0}),
    rows("TwoHours", {"01:00": 2, "02:00": 3, "03:00": 1, "04:00": 1}),
    rows("ThreeHours", QUARTERS),
    rows("Ever", {"01:00": 2, "02:00": 3, "04:00": 4}),
    spans(
        "ByHour",
        {("00:00", "01:00"): 2, ("01:00", "02:00"): 1, ("02:00", "03:00"): 0, ("03:00", "04:00"): 1},
    ),
    rows("Sliding", CHANGE_POINTS),
    AsOf(
        "Hourly",
        {"uid": 1},
        ("n",),
        {
            at("00:59"): None,
            at("01:00"): (2,),
            at("02:30"): (1,),
            at("03:00"): (0,),
            at("03:59"): (0,),
            at("09:00"): (1,),
        },
    ),
    AsOf(
        "Sliding",
        {"uid": 1},
        ("n",),
        {
            at("23:59:59", DAY_BEFORE): None,
            **{at(clock): (n,) for clock, n in CHANGE_POINTS.items()},
            at("23:00"): (0,),
        },
    ),
    AsOf(
        "Total",
        {"uid": 1},
        ("n",),
        {at("23:59:59", DAY_BEFORE): None, at("00:00"): (1,), at("02:00"): (3,), at("23:00"): (5,)},
    ),
    AsOf("Sliding", {"uid": 2}, ("n",), {at("01:00"): None}),
    AsOf(
        "ByHour",
        {"uid": 1, "window": Window(at("00:00"), at("01:00"))},
        ("n",),
        {at("00:59"): None, at("01:00"): (2,), at("09:00"): (2,)},
    ),
    AsOf("ByHour", {"uid": 1, "window": Window(at("04:00"), at("05:00"))}, ("n",), {at("09:00"): None}),
]

SESSION_TIMES = ["00:00", "00:10", "00:25", "00:35:00", "01:00"]
SESSION_ROWS = [{"uid": 1, "t": at(clock)} for clock in SESSION_TIMES]
ENDS = ["00:10:00.000001", "00:35:00.000001", "01:00:00.000001"]
SESSIONS = spans("Sessions", {("00:00", ENDS[0]): 2, ("00:25", ENDS[1]): 2, ("01:00", ENDS[2]): 1})

BRIEF_TIMES = ["00:00:00.9", "00:00:02", "00:00:19.5", "00:00:21", "00:00:40", "00:00:41.9", "00:00:44"]
BRIEF_ROWS = [{"uid": 1, "t": at(clock)} for clock in BRIEF_TIMES]
BRIEF_SESSIONS = spans(
    "BriefSessions",
    {
        ("00:00:00.9", "00:00:02.000001"): 2,
        ("00:00:19.5", "00:00:21.000001"): 2,
        ("00:00:40", "00:00:41.900001"): 2,
        ("00:00:44", "00:00:44.000001"): 1,
    },
)

CASES = [
    Case("windows in one call", DATASETS, [Log("Events", ROWS), *PROBES]),
    Case("windows over several calls", DATASETS, [*(Log("Events", [row]) for row in ROWS), *PROBES]),
    Case("windows, newest first", DATASETS, [*(Log("Events", [row]) for row in reversed(ROWS)), *PROBES]),
    Case(
        "stream time is that of all keys",
        DATASETS,
        [
            Log("Events", ROWS[:2]),
            rows("Hourly", {}),
            Log("Events", [{"uid": 2, "t": at("01:00:00")}]),
            rows("Hourly", {"01:00": 2}),
        ],
    ),
    Case("sessions in one call", [Events, Sessions], [Log("Events", SESSION_ROWS), SESSIONS]),
    Case(
        "sessions, newest first",
        [Events, Sessions],
        [*(Log("Events", [row]) for row in reversed(SESSION_ROWS)), SESSIONS],
    ),
    Case("sessions of a fraction of a second", [Events, BriefSessions], [Log("Events", BRIEF_ROWS), BRIEF_SESSIONS]),
    Case(
        "sessions of a fraction of a second, newest first",
        [Events, BriefSessions],
        [*(Log("Events", [row]) for row in reversed(BRIEF_ROWS)), BRIEF_SESSIONS],
    ),
]
