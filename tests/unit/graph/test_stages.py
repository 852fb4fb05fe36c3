"""The stage of a keyed operator: rows are exchanged only where they are not distributed by its key already."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from umbel.api.commit import check_commit
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling, Window
from umbel.expr import col
from umbel.graph.graph import Graph
from umbel.lib import inputs

__owner__ = "tests@example.com"
AT = datetime(2024, 1, 1, tzinfo=UTC)


@dataset
class Order:
    user: int
    item: int
    amount: float
    at: datetime


@dataset(index=True)
class User:
    user: int = field(key=True)
    city: str
    at: datetime


@dataset(index=True)
class PerUser:
    user: int = field(key=True)
    orders: int
    at: datetime

    @pipeline
    @inputs(Order, User)
    def counted(cls, orders, users):  # type: ignore[no-untyped-def]
        joined = orders.join(users, how="inner", on=["user"]).filter(col("amount") > 1.0).drop("city")
        return joined.groupby("user").aggregate(orders=Count(window=Continuous("forever")))


def _derived(build):  # type: ignore[no-untyped-def]
    @dataset(index=True)
    class PerBuyer:
        buyer: int = field(key=True)
        orders: int
        at: datetime

        @pipeline
        @inputs(Order)
        def counted(cls, orders):  # type: ignore[no-untyped-def]
            return build(orders.dedup("user", "item") if build is _by_two else orders.dedup("user"))

    return PerBuyer


def _renamed(orders):  # type: ignore[no-untyped-def]
    return orders.rename({"user": "buyer"}).groupby("buyer").aggregate(orders=Count(window=Continuous("forever")))


def _assigned(orders):  # type: ignore[no-untyped-def]
    other = orders.rename({"user": "buyer"}).assign(buyer=(col("buyer") + 1).astype(int))
    return other.groupby("buyer").aggregate(orders=Count(window=Continuous("forever")))


def _by_other(orders):  # type: ignore[no-untyped-def]
    return orders.rename({"item": "buyer"}).groupby("buyer").aggregate(orders=Count(window=Continuous("forever")))


def _by_two(orders):  # type: ignore[no-untyped-def]
    return orders.rename({"user": "buyer"}).groupby("buyer").aggregate(orders=Count(window=Continuous("forever")))


def _stages(*datasets: Dataset) -> dict[str, int]:
    graph = Graph(check_commit(list(datasets), []).datasets.values())
    return {node.operator.kind: node.stage for node in graph.nodes if node.is_keyed}


def test_an_index_a_join_and_an_aggregation_by_one_key_run_in_one_stage() -> None:
    assert set(_stages(Order, User, PerUser).values()) == {1}


@pytest.mark.parametrize(
    ("build", "stage"),
    [(_renamed, 1), (_assigned, 2), (_by_other, 2), (_by_two, 2)],
    ids=["renamed", "assigned", "by another column", "by one of two"],
)
def test_an_aggregation_after_dedup(build, stage: int) -> None:  # type: ignore[no-untyped-def]
    assert _stages(Order, _derived(build))["aggregate"] == stage


def test_timers_wait_for_the_rows_of_all_shards() -> None:
    @dataset
    class Once:
        user: int
        item: int
        amount: float
        at: datetime

        @pipeline
        @inputs(Order)
        def unique(cls, orders):  # type: ignore[no-untyped-def]
            return orders.dedup("user")

    @dataset
    class Visit:
        user: int = field(key=True)
        window: Window = field(key=True)
        orders: int
        at: datetime

        @pipeline
        @inputs(Once)
        def counted(cls, rows):  # type: ignore[no-untyped-def]
            return rows.groupby("user", window=Tumbling("1h")).aggregate(orders=Count())

    assert _stages(Order, Once, Visit) == {"dedup": 1, "aggregate": 2}, (
        "the newest of all rows fires them, not of a shard's"
    )
