"""The client in process, as unit tests of features use it: what a commit, a log call and a query take, and how that grows.

All times are those of the processor, so that what else runs on the machine does not count.

python -m benchmarks.in_process
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.figure import Figure
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "benchmarks@umbel.dev"

MANY, ROWS = 20, 1_000
"""Datasets of the wide commit, and rows logged to each."""
SIZES = (1_000, 10_000, 100_000)
TRIALS = 3
GROWTH = 2.0
"""How much longer a row may take among ten times as many: less than this is linear, but for what fits into caches."""
SINGLES = 50
BEGIN = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
MONTH = 30 * 86_400

webhook = Webhook(name="benchmark")


@source(webhook.endpoint("events"), disorder="14d", cdc="append")
@dataset
class Events:
    """What users did."""

    uid: int
    amount: int
    at: datetime


@source(webhook.endpoint("users"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Users:
    """One row for each user."""

    uid: int = field(key=True)
    amount: int
    at: datetime


@dataset(index=True)
class Daily:
    """Continuous windows."""

    uid: int = field(key=True)
    events: int
    total: int
    at: datetime

    @pipeline
    @inputs(Events)
    def by_day(cls, events: Any) -> Any:
        return events.groupby("uid").aggregate(
            events=Count(window=Continuous("1d")), total=Sum(of="amount", window=Continuous("7d"))
        )


@dataset(index=True)
class Hourly:
    """Discrete windows, behind a Python function."""

    uid: int = field(key=True)
    events: int
    at: datetime

    @pipeline
    @inputs(Events)
    def by_hour(cls, events: Any) -> Any:
        return (
            events.filter(lambda rows: rows["amount"] > 0).groupby("uid").aggregate(events=Count(window=Tumbling("1h")))
        )


@featureset
class Features:
    """The queried features."""

    uid: int = F()
    events: int = F(Daily.events, default=0)
    total: int = F(Daily.total, default=0)
    hour: int = F(Hourly.events, default=0)
    amount: int = F(Users.amount, default=0)


def run() -> list[Figure]:
    """Measure the wide commit, then log calls and queries of growing size."""
    wide = min(_wide() for _ in range(TRIALS))
    figures = [Figure(f"commit {MANY} datasets and a featureset, log {ROWS:,} rows to each", wide, "s", at_most=1.0)]
    took = {size: [min(parts) for parts in zip(*(_steps(size) for _ in range(TRIALS)), strict=True)] for size in SIZES}
    for place, step in enumerate(("log rows to a table", "log events to two aggregations", "query 4 features online")):
        figures += [Figure(f"{step}, {size:,}", took[size][place] * 1000, "ms") for size in SIZES]
        grown = took[SIZES[-1]][place] / took[SIZES[-2]][place] / (SIZES[-1] / SIZES[-2])
        note = f"{SIZES[-1]:,} against {SIZES[-2]:,}; 1 is linear"
        figures.append(Figure(f"{step}: growth of the time per row", grown, "×", at_most=GROWTH, note=note))
    return [*figures, *_singles()]


def _singles() -> list[Figure]:
    """Measure log calls of one row each, into empty tables and full ones."""
    client = MockClient()
    client.commit(message="steps", datasets=[Events, Users, Daily, Hourly], featuresets=[Features])
    rows = _rows(SIZES[-1])
    empty = _one_by_one(client, rows[:SINGLES])
    client.log("benchmark", "events", rows)
    full = _one_by_one(client, rows[-SINGLES:])
    note = f"{SIZES[-1]:,} rows are there; two aggregations"
    return [
        Figure("log one event, into empty tables", empty * 1000, "ms"),
        Figure("log one late event, into full tables", full * 1000, "ms", note=note),
        Figure("log one late event: growth with what is there", full / empty, "×", at_most=GROWTH),
    ]


def _one_by_one(client: MockClient, rows: pd.DataFrame) -> float:
    """Return the median seconds of a log call of one row."""
    took = [_timed(partial(client.log, "benchmark", "events", rows[row : row + 1])) for row in range(len(rows))]
    return float(np.median(took))


def _wide() -> float:
    """Return the seconds of a commit of many datasets and a log call to each."""
    made = [_table(number) for number in range(MANY)]
    shown = _shown(made)
    begun = time.process_time()
    client = MockClient()
    client.commit(message="wide", datasets=made, featuresets=[shown])
    rows = _rows(ROWS)
    for number in range(MANY):
        client.log("benchmark", f"wide{number}", rows)
    return time.process_time() - begun


def _table(number: int) -> Any:
    annotations = {"uid": int, "amount": int, "at": datetime}
    shape = {"__module__": __name__, "__annotations__": annotations, "uid": field(key=True)}
    made = dataset(index=True)(type(f"Wide{number}", (), shape))
    return source(webhook.endpoint(f"wide{number}"), disorder="14d", cdc="upsert")(made)


def _shown(made: list[Any]) -> Any:
    annotations = {"uid": int} | {f"amount{number}": int for number in range(MANY)}
    features = {"uid": F()} | {f"amount{number}": F(each.amount, default=0) for number, each in enumerate(made)}
    return featureset(type("Wide", (), {"__module__": __name__, "__annotations__": annotations, **features}))


def _steps(size: int) -> list[float]:
    """Return the seconds of each step at a size."""
    client = MockClient()
    client.commit(message="steps", datasets=[Events, Users, Daily, Hourly], featuresets=[Features])
    rows = _rows(size)
    requested = pd.DataFrame({"Features.uid": rows["uid"]})
    return [
        _timed(lambda: client.log("benchmark", "users", rows)),
        _timed(lambda: client.log("benchmark", "events", rows)),
        _timed(lambda: client.query(inputs=[Features.uid], outputs=[Features], input_dataframe=requested)),
    ]


def _timed(step: Callable[[], object]) -> float:
    begun = time.process_time()
    step()
    return time.process_time() - begun


def _rows(size: int) -> pd.DataFrame:
    """Return rows of a month, about ten of each user."""
    draw = np.random.default_rng(size)
    at = pd.to_datetime(BEGIN + draw.integers(0, MONTH, size), unit="s", utc=True)
    return pd.DataFrame(
        {"uid": draw.integers(0, max(size // 10, 1), size), "amount": draw.integers(-9, 99, size), "at": at}
    )
