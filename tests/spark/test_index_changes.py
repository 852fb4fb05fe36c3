"""A dataset that loses its index and gets one again has all of its history."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tests.deployed import Deployed, live, wait_until
from tests.sales import Row, at, sales
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.recovery.check import check

__owner__ = "spark@umbel.dev"

SMALL = 2 << 20


def definitions(*, is_indexed: bool, is_read: bool) -> list[Any]:
    @source(Webhook(name="web").endpoint("sales"), disorder="30d", cdc="append")
    @dataset
    class Sales:
        user: int
        amount: float
        t: datetime

    @dataset(index=is_indexed)
    class Newest:
        user: int = field(key=True)
        amount: float
        t: datetime

        @pipeline
        @inputs(Sales)
        def newest(cls, rows):
            return rows.groupby("user").latest()

    @dataset(index=True)
    class Total:
        zero: int = field(key=True)
        users: int
        amount: float
        t: datetime

        @pipeline
        @inputs(Newest)
        def total(cls, rows):
            forever = Continuous("forever")
            zero = rows.assign("zero", int, lambda df: df["user"] * 0)
            return zero.groupby("zero").aggregate(users=Count(window=forever), amount=Sum(of="amount", window=forever))

    return [Sales, Newest, Total] if is_read else [Sales, Newest]


def newest(rows: list[Row], until: Any) -> dict[int, float]:
    """Return the last amount of each user up to an instant."""
    found = dict[int, float]()
    for row in sorted(rows, key=lambda row: row["t"]):
        if row["t"] <= until:
            found[row["user"]] = row["amount"]
    return found


def test_a_change_log_that_begins_late_has_what_was_before(tmp_path: Path, spark: Any) -> None:
    """The dataset's own log began when its index went: new readers, and the index made anew, knew no earlier row."""
    deployed, rows = Deployed(tmp_path / "umbel"), sales(0, 30)
    place = deployed.deployment

    def commit(**settings: bool) -> None:
        deployed.commit(definitions(**settings))
        nodes = place.graph(place.catalog.latest()).nodes
        sent = sales(len(rows), 1)
        deployed.log("sales", sent)
        rows.extend(sent)
        caught_up({"Sales": len(rows)})
        wait_until(lambda: {node.state_id for node in nodes} <= place.catalog.backfilled(), place.catalog.backfilled)

    deployed.commit(definitions(is_indexed=True, is_read=False))
    deployed.log("sales", rows)
    with live(deployed, spark, SMALL) as caught_up:
        caught_up({"Sales": len(rows)})
        commit(is_indexed=False, is_read=False)
        commit(is_indexed=False, is_read=True)
        [total] = deployed.lookup("Total", [{"zero": 0}], [at(100_000)])
        last = newest(rows, at(100_000))
        assert (total["users"], total["amount"]) == (len(last), sum(last.values()))
        commit(is_indexed=False, is_read=False)
        commit(is_indexed=True, is_read=False)
    for until in (at(5), at(15), at(25), at(100_000)):
        users = [{"user": user} for user in newest(rows, until)]
        found = deployed.lookup("Newest", users, [until] * len(users))
        assert {row["user"]: row["amount"] for row in found} == newest(rows, until)
    assert list(check(place)) == []
    deployed.close()
