"""Features: lookups with and without default, expressions, extractors (api 12.8)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Optional

import pandas as pd

from tests.conformance.case import Case, Features, Log, instant
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs

__owner__ = "conformance@umbel.dev"

JAN1 = instant("2024-01-01")
DAY = timedelta(days=1)


@dataset(index=True)
class K:
    uid: int = field(key=True)
    v: int
    s: Optional[str]
    t: datetime


@dataset
class Visits:
    uid: int
    t: datetime


@dataset(index=True)
class Visited:
    uid: int = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Visits)
    def count(cls, visits):
        return visits.groupby("uid").aggregate(n=Count(window=Continuous("1d")))


@featureset
class User:
    uid: int
    v: Optional[int] = F(K.v)
    s: str = F(K.s, default="d")
    visits: int = F(Visited.n, default=0)
    double: Optional[int] = F(col("v") * 2)
    label: str

    @extractor
    @inputs("v", "s")
    @outputs("label")
    def make_label(cls, ts, v, s):
        return pd.Series([f"{s}{0 if n is pd.NA else n}" for n, s in zip(v, s, strict=True)], name="label")


@featureset
class Guest:
    host: int
    uid: int = F(User.uid)
    visits: int = F(User.visits)


@featureset
class Measured:
    """Features of other types than the keys of the datasets they are looked up in."""

    uid: float
    v: Optional[int] = F(K.v)
    visits: int = F(Visited.n, default=-1)


@featureset
class Written:
    uid: str
    v: Optional[int] = F(K.v)
    visits: int = F(Visited.n, default=-1)


DATASETS = [K, Visits, Visited]
ROWS = [{"uid": 1, "v": 10, "s": "a", "t": JAN1}, {"uid": 2, "v": 20, "s": None, "t": JAN1}]
VISITS = [{"uid": 1, "t": JAN1 + n * timedelta(hours=1)} for n in range(3)]
USERS = [{"User.uid": uid} for uid in (1, 2, 3)]

CASES = [
    Case(
        "features as of now",
        DATASETS,
        [
            Log("K", ROWS),
            Log("Visits", VISITS),
            Features(
                USERS,
                {
                    "User.v": [10, 20, None],
                    "User.s": ["a", "d", "d"],
                    "User.double": [20, 40, None],
                    "User.label": ["a10", "d20", "d0"],
                    "User.visits": [0, 0, 0],
                },
            ),
            Features([{"User.uid": 1, "User.v": 7}], {"User.double": [14], "User.v": [7], "User.label": ["a7"]}),
            Features([{"User.uid": 1}], {"Guest.uid": [1], "Guest.visits": [0]}),
        ],
        [User, Guest],
    ),
    Case(
        "features as of instants",
        DATASETS,
        [
            Log("K", ROWS),
            Log("Visits", VISITS),
            Features(
                [{"User.uid": 1}] * 5,
                {
                    "User.v": [None, 10, 10, 10, 10],
                    "User.s": ["d", "a", "a", "a", "a"],
                    "User.visits": [0, 1, 3, 2, 0],
                    "User.label": ["d0", "a10", "a10", "a10", "a10"],
                },
                [JAN1 - DAY, JAN1, JAN1 + DAY, JAN1 + DAY + timedelta(seconds=1), JAN1 + 3 * DAY],
            ),
        ],
        [User, Guest],
    ),
    Case(
        "features looked up by values of another type than the key, of which some are no such key",
        DATASETS,
        [
            Log("K", ROWS),
            Log("Visits", VISITS),
            Features(
                [{"Measured.uid": uid} for uid in (1.0, 1.5, 2.0, 1e300)],
                {"Measured.v": [10, None, 20, None], "Measured.visits": [3, -1, -1, -1]},
                [JAN1 + DAY] * 4,
            ),
            Features(
                [{"Written.uid": uid} for uid in ("1", "01", "one", "", "2")],
                {"Written.v": [10, None, None, None, 20], "Written.visits": [3, -1, -1, -1, -1]},
                [JAN1 + DAY] * 5,
            ),
            Features(
                [{"Measured.uid": uid} for uid in (1.5, 2.0)],
                {"Measured.v": [None, 20], "Measured.visits": [-1, -1]},
            ),
        ],
        [Measured, Written],
    ),
]
