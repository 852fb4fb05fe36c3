"""Rows logged straight into a keyed dataset that a pipeline makes: upserts, like those of a source."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Optional

import pandas as pd
import pytest

from tests.seeds import seeds
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"


def at(minute: float) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


@dataset
class Clicks:
    uid: int
    v: int
    t: datetime


@dataset(index=True)
class Last:
    v: int
    uid: int = field(key=True)
    t: datetime

    @pipeline
    @inputs(Clicks)
    def last(cls, clicks):
        return clicks.groupby("uid").latest()


@dataset
class Unindexed:
    uid: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(Clicks)
    def last(cls, clicks):
        return clicks.groupby("uid").latest()


@dataset(index=True)
class Positive:
    """A row of `Last` that turns negative ends its key here."""

    uid: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(Last)
    def positive(cls, last):
        return last.filter(col("v") > 0)


@dataset(index=True)
class ByValue:
    v: int = field(key=True)
    n: int
    s: int
    t: datetime

    @pipeline
    @inputs(Last)
    def count(cls, last):
        window = Continuous("forever")
        return last.groupby("v").aggregate(n=Count(window=window), s=Sum(of="uid", window=window))


@dataset
class Seen:
    uid: int
    w: int
    t: datetime


@dataset
class Joined:
    uid: int
    w: int
    v: Optional[int]
    t: datetime

    @pipeline
    @inputs(Seen, Last)
    def join(cls, seen, last):
        return seen.join(last, how="left", on=["uid"])


@dataset(index=True)
class Total:
    k: int = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Unindexed)
    def total(cls, rows):
        counted = rows.assign("k", int, lambda df: df["uid"] * 0)
        return counted.groupby("k").aggregate(n=Count(window=Continuous("forever")))


@dataset(index=True)
class Answered:
    uid: int = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Clicks)
    def count(cls, clicks):
        return clicks.groupby("uid").aggregate(n=Count(window=Continuous("forever")))


DATASETS = [Clicks, Last, Unindexed, Positive, ByValue, Seen, Joined, Total, Answered]


@pytest.fixture
def client():
    made = MockClient()
    made.commit(message="m", datasets=DATASETS)
    return made


def rows(*values):
    return pd.DataFrame([{"uid": uid, "v": v, "t": at(minute)} for uid, v, minute in values])


def found(client, dataset, minute, **key):
    values, is_there = client.lookup(dataset, pd.DataFrame([key]), timestamps=pd.Series([at(minute)]))
    return values.iloc[0].to_dict() if is_there[0] else None


def counts(client, minute, *values):
    """Return how many users have each value."""
    known = [found(client, "ByValue", minute, v=v) for v in values]
    return [row["n"] if row else 0 for row in known]


def test_of_one_key_and_timestamp_the_last_row_of_the_call_wins(client):
    client.log_to("Last", rows((1, 10, 1), (1, 11, 1), (2, 12, 1), (1, 13, 1)))
    assert sorted(client.get_dataset_df("Last")["v"]) == [12, 13]
    assert found(client, "Last", 2, uid=1)["v"] == 13
    assert counts(client, 9, 10, 11, 12, 13) == [0, 0, 1, 1]


def test_a_row_ends_the_previous_one_of_its_key(client):
    client.log_to("Last", rows((1, 10, 1), (1, 11, 2)))
    client.log_to("Last", rows((1, 12, 4)))
    client.log_to("Last", rows((1, 9, 3)))  # a late one
    assert [found(client, "Last", minute, uid=1)["v"] for minute in (1, 2, 3, 4)] == [10, 11, 9, 12]
    assert counts(client, 20, 10, 11, 9, 12) == [0, 0, 0, 1]


def test_counts_and_joins_see_one_row_of_a_key(client):
    client.log_to("Unindexed", rows((1, 10, 1), (1, 11, 1), (1, 12, 2), (2, 5, 2)))
    assert found(client, "Total", 9, k=0)["n"] == 2
    client.log_to("Last", rows((1, 10, 1), (1, 11, 1)))
    client.log_to("Seen", pd.DataFrame({"uid": [1, 2], "w": [1, 2], "t": [at(5), at(5)]}))
    assert sorted(client.get_dataset_df("Joined")["v"].fillna(-1).tolist()) == [-1, 11]


def test_rows_of_the_pipeline_and_rows_logged_supersede_each_other(client):
    client.log_to("Clicks", rows((1, 10, 1), (1, 20, 5)))
    client.log_to("Last", rows((1, 13, 3), (1, 15, 5)))
    assert [found(client, "Last", minute, uid=1)["v"] for minute in (1, 3, 5)] == [10, 13, 15]
    client.log_to("Clicks", rows((1, 12, 2), (1, 30, 7)))
    assert [found(client, "Last", minute, uid=1)["v"] for minute in (1, 2, 3, 5, 7)] == [10, 12, 13, 15, 30]
    assert counts(client, 20, 10, 12, 13, 15, 30) == [0, 0, 0, 0, 1]


def test_a_pipeline_ends_its_own_rows_alone(client):
    client.log_to("Last", rows((1, 10, 1), (2, 10, 1)))
    assert found(client, "Positive", 1, uid=1)["v"] == 10
    client.log_to("Positive", rows((1, 99, 3)))
    client.log_to("Last", rows((1, -1, 5), (2, -1, 5)))
    assert found(client, "Positive", 6, uid=1)["v"] == 99
    assert found(client, "Positive", 6, uid=2) is None
    client.log_to("Positive", rows((2, 98, 5.5)))
    assert found(client, "Positive", 6, uid=2)["v"] == 98


def test_a_failing_call_leaves_nothing_and_branches_are_apart(client):
    client.log_to("Last", rows((1, 10, 1)))
    client.clone_branch("other", "main")
    client.log_to("Last", rows((1, 11, 2)))
    assert found(client, "Last", 3, uid=1)["v"] == 11
    client.checkout("main")
    assert found(client, "Last", 3, uid=1)["v"] == 10


def test_rows_of_values_computed_by_lookups_supersede_them(client):
    client.log_to("Clicks", rows((1, 10, 1), (1, 20, 2)))
    client.log_to("Answered", pd.DataFrame({"uid": [1, 1], "n": [70, 71], "t": [at(3), at(3)]}))
    assert found(client, "Answered", 4, uid=1)["n"] == 71


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_order_and_calls_have_no_influence(client, seed):
    chance = random.Random(seed)
    made = [(chance.randint(1, 2), chance.randint(1, 9), minute) for minute in chance.sample(range(1, 30), 8)]
    direct = [(chance.randint(1, 2), chance.randint(1, 9), minute + 0.5) for minute in chance.sample(range(1, 30), 8)]
    feeds = [("Clicks", row) for row in made] + [("Last", row) for row in direct]
    chance.shuffle(feeds)
    for name, row in feeds:
        client.log_to(name, rows(row))
    everything = sorted([*made, *direct], key=lambda row: row[2])
    for minute in range(1, 32):
        for uid in (1, 2):
            expected = [v for key, v, since in everything if key == uid and since <= minute]
            values = found(client, "Last", minute, uid=uid)
            assert (values and values["v"]) == (expected[-1] if expected else None)
    last = {uid: v for uid, v, _ in everything}
    assert counts(client, 60, *range(1, 10)) == [sum(each == v for each in last.values()) for v in range(1, 10)]
