"""Events of the first and the last instant that Python has, such as the zero time of Go and .NET."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from umbel.api.bucketize import bucketize
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Session, Tumbling, Window
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "tests@example.com"
FIRST, LAST = (each.replace(tzinfo=UTC) for each in (datetime.min, datetime.max))
DAY = timedelta(days=1)


@source(Webhook(name="web").endpoint("events"), disorder="1d", cdc="append")
@dataset
class Event:
    k: int
    at: datetime


def counted(window: Any) -> Dataset:
    """Return a dataset of counts by window, after a Python function that gets the windows."""

    @dataset(index=True)
    class Counted:
        k: int = field(key=True)
        window: Window = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Event)
        def by_window(cls, events: Dataset):
            counts = events.groupby("k", window=window).aggregate(n=Count())
            return counts.filter(lambda df: df["window"].map(lambda each: each.begin < each.end or each.end == LAST))

    return Counted


def continuous(emit: str) -> Dataset:
    @dataset(index=True)
    class Counted:
        k: int = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Event)
        def recent(cls, events: Dataset):
            return events.groupby("k").aggregate(n=Count(window=Continuous("7d")), emit=emit)

    return Counted


def fed(made: Dataset, *instants: datetime) -> MockClient:
    client = MockClient()
    client.commit("events", datasets=[Event, made])
    for at in instants:
        client.log("web", "events", pd.DataFrame({"k": [1], "at": pd.Series([at], dtype=object)}))
    return client


@pytest.mark.parametrize(
    ("window", "at", "n"),
    [
        (Tumbling("7d"), FIRST + 3 * DAY, 2),
        (Hopping("2d", "1d"), FIRST + DAY, 1),
        (Hopping("2d", "1d"), FIRST + 2 * DAY, 2),
    ],
)
def test_windows_begin_in_year_1(window: Any, at: datetime, n: int) -> None:
    """A window that began before was an error of every function and lookup that met it."""
    made = counted(window)
    client = fed(made, FIRST, FIRST + DAY, datetime(2026, 1, 1, tzinfo=UTC))
    key = bucketize(at, window)
    assert key.begin == max(FIRST, key.begin)
    assert (key.end, client.lookup(made, pd.DataFrame({"k": [1], "window": [key]}), ["n"])[0].tolist()) == (at, [n])


def test_a_session_ends_at_the_last_instant() -> None:
    made = counted(Session("1h"))
    rows = fed(made, LAST, LAST - timedelta(seconds=1)).get_dataset_df(made)
    assert rows["window"].tolist() == [Window(begin=LAST - timedelta(seconds=1), end=LAST)]
    assert rows["n"].tolist() == [2]


@pytest.mark.parametrize("emit", ["eager", "final"])
def test_rows_leave_a_window_after_the_last_instant(emit: str) -> None:
    rows = fed(continuous(emit), LAST, LAST - DAY).get_dataset_df("Counted")
    assert rows["n"].tolist() == [1, 2]
    assert rows["at"].tolist() == [LAST - DAY, LAST]


@pytest.mark.parametrize("of", [lambda at: at, pd.Timestamp, lambda at: at.replace(tzinfo=None)])
def test_no_window_ended_before_year_1(of: Callable[[datetime], Any]) -> None:
    assert bucketize(of(FIRST), ("2h", "1h")) == Window(begin=FIRST, end=FIRST)
    assert bucketize(of(LAST), "1d") == Window(
        begin=LAST.replace(hour=0, minute=0, second=0, microsecond=0) - DAY,
        end=LAST.replace(hour=0, minute=0, second=0, microsecond=0),
    )
