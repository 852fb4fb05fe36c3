"""Pipelines on what pipelines make: corrections travel through all of them."""

from __future__ import annotations

from datetime import datetime

from tests.conformance.case import AsOf, Case, Log, Step, Table, instant
from umbel.datasets import Count, Max, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Hopping, Tumbling
from umbel.expr import col
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"


def at(clock: str) -> datetime:
    return instant(f"2024-01-01T{clock}")


@dataset
class Sales:
    shop: int
    item: str
    price: int
    t: datetime


@dataset(index=True)
class Prices:
    item: str = field(key=True)
    cost: int
    t: datetime


@dataset
class Profits:
    shop: int
    profit: int
    t: datetime

    @pipeline
    @inputs(Sales, Prices)
    def margin(cls, sales, prices):
        priced = sales.join(prices, how="inner", on=["item"])
        return priced.assign(profit=(col("price") - col("cost")).astype(int)).select("shop", "profit")


@dataset(index=True)
class Hourly:
    shop: int = field(key=True)
    profit: int
    sales: int
    t: datetime

    @pipeline
    @inputs(Profits)
    def total(cls, profits):
        hour = Tumbling("1h")
        return profits.groupby("shop").aggregate(profit=Sum(of="profit", window=hour), sales=Count(window=hour))


@dataset(index=True)
class Best:
    sales: int = field(key=True)
    best: int
    t: datetime

    @pipeline
    @inputs(Hourly)
    def best_hour(cls, hourly):
        ever = Hopping("forever", "1h")
        return hourly.groupby("sales").aggregate(best=Max(of="profit", default=0, window=ever))


@dataset(index=True)
class Total:
    shop: int = field(key=True)
    profit: int
    t: datetime

    @pipeline
    @inputs(Profits)
    def total(cls, profits):
        return profits.groupby("shop").aggregate(profit=Sum(of="profit", window=Continuous("forever")))


DATASETS = [Sales, Prices, Profits, Hourly, Best, Total]
PRICES = [{"item": "a", "cost": 1, "t": at("00:00")}, {"item": "a", "cost": 5, "t": at("01:30")}]
SALES = [
    {"shop": 1, "item": "a", "price": 10, "t": at("00:10")},
    {"shop": 1, "item": "b", "price": 99, "t": at("00:20")},
    {"shop": 1, "item": "a", "price": 20, "t": at("01:40")},
    {"shop": 2, "item": "a", "price": 7, "t": at("01:50")},
    {"shop": 2, "item": "a", "price": 9, "t": at("03:00")},
]
PROBES: list[Step] = [
    Table(
        "Profits",
        ("shop", "profit", "t"),
        [(1, 9, at("00:10")), (1, 15, at("01:40")), (2, 2, at("01:50")), (2, 4, at("03:00"))],
    ),
    AsOf(
        "Hourly",
        {"shop": 1},
        ("profit", "sales"),
        {at("00:59"): None, at("01:00"): (9, 1), at("02:00"): (15, 1), at("03:00"): (0, 0)},
    ),
    AsOf("Hourly", {"shop": 2}, ("profit", "sales"), {at("01:59"): None, at("02:00"): (2, 1), at("03:00"): (0, 0)}),
    AsOf(
        "Best",
        {"sales": 1},
        ("best",),
        {at("01:59"): None, at("02:00"): (9,), at("03:00"): (15,), at("05:00"): (15,)},
        {"best": 0},
    ),
    AsOf("Total", {"shop": 1}, ("profit",), {at("00:09"): None, at("00:10"): (9,), at("02:00"): (24,)}),
]
# Item b gets a cost before its sale: its profit joins all values of that hour.
LATE = Log("Prices", [{"item": "b", "cost": 90, "t": at("00:05")}])
CORRECTED: list[Step] = [
    AsOf("Hourly", {"shop": 1}, ("profit", "sales"), {at("01:00"): (18, 2), at("02:00"): (15, 1), at("03:00"): (0, 0)}),
    AsOf("Total", {"shop": 1}, ("profit",), {at("00:10"): (9,), at("00:20"): (18,), at("02:00"): (33,)}),
]
# The cost of a changes while its first sale is on: that sale's profit was another.
CHANGED = Log("Prices", [{"item": "a", "cost": 8, "t": at("00:10")}])
CHANGED_PROBES: list[Step] = [
    AsOf("Hourly", {"shop": 1}, ("profit", "sales"), {at("01:00"): (11, 2), at("02:00"): (15, 1)}),
    AsOf("Total", {"shop": 1}, ("profit",), {at("00:10"): (2,), at("00:20"): (11,), at("02:00"): (26,)}),
]

CASES = [
    Case(
        "a chain of pipelines, corrected twice",
        DATASETS,
        [Log("Prices", PRICES), Log("Sales", SALES), *PROBES, LATE, *CORRECTED, CHANGED, *CHANGED_PROBES],
    ),
    Case(
        "a chain of pipelines, everything at once and late rows first",
        DATASETS,
        [LATE, CHANGED, Log("Prices", PRICES), Log("Sales", SALES), *CHANGED_PROBES],
    ),
    Case(
        "a chain of pipelines, row by row and newest first",
        DATASETS,
        [
            *(Log("Sales", [row]) for row in reversed(SALES)),
            *(Log("Prices", [row]) for row in reversed(PRICES)),
            *PROBES,
            LATE,
            *CORRECTED,
        ],
    ),
]
