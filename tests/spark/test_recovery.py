"""What is lost is computed again by the worker, from what is left."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.errors import StreamingQueryException

from tests.deployed import Deployed, live, wait_until
from tests.sales import USERS, Row, at, base, check_all, sales
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.lib import inputs
from umbel.runtime import retries
from umbel.runtime.batch import BatchReport, Counts, MicroBatch
from umbel.runtime.deployment import JOB
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.rebuild import Rebuild, rebuild, share
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.manifest import read_latest

__owner__ = "spark@umbel.dev"

SMALL = 2 << 20


class Market:
    """A deployment whose worker processes sales, and what was sold so far."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark, self.rows, self.waves = folder, spark, list[Row](), 0
        self.users = [*USERS[0], *USERS[1]]
        self.deployed = Deployed(folder / "umbel")
        self.deployed.commit(base(folder / "files"))
        self.deployed.log("users", self.users)

    def sell(self, small: int = SMALL) -> None:
        """Send a wave, and run the worker until it is processed."""
        rows = sales(self.waves * 100, 100)
        self.deployed.log("sales", rows)
        self.rows, self.waves = [*self.rows, *rows], self.waves + 1
        with live(self.deployed, self.spark, small) as caught_up:
            caught_up({"Sales": len(self.rows), "Users": len(self.users)})

    def flush(self) -> None:
        for shard in self.deployed.deployment.store._shards:  # type: ignore[attr-defined]
            maintain(shard, flush_bytes=1)

    def reopened(self) -> Deployed:
        self.deployed.close()
        self.deployed = Deployed(self.folder / "umbel")
        return self.deployed

    def work(self, condition: Any) -> None:
        """Run the worker until a condition is true."""
        with live(self.deployed, self.spark, SMALL):
            wait_until(condition, lambda: (self.deployed.taken(), self.deployed.deployment.catalog.events(3)), 60)


@pytest.fixture
def market(tmp_path: Path, spark: Any) -> Iterator[Market]:
    made = Market(tmp_path, spark)
    made.sell()
    made.flush()
    made.sell()
    made.flush()
    yield made
    made.deployed.close()


def run_of(market: Market, dataset: str) -> Path:
    """Return a run of a dataset's state."""
    place = market.deployed.deployment
    state_id = place.graph(place.catalog.latest()).outputs[dataset].state_id
    for shard in place.store._shards:  # type: ignore[attr-defined]
        for table, entries in read_latest(shard.files).runs.items():
            if table.startswith(state_id):
                return Path(shard.files.root / "runs" / entries[0].parts[0].name)
    raise AssertionError("there is no such run")


@pytest.mark.parametrize("dataset", [pytest.param("Totals", marks=pytest.mark.nightly), "Priced"])
def test_a_pipeline_is_rebuilt(market: Market, dataset: str) -> None:
    made = rebuild(market.deployed.deployment, [dataset])
    assert set(made.datasets) == {"Totals"} if dataset == "Totals" else {"Totals", "Priced", "Last"}
    assert share(market.deployed.deployment, made) == 0.0
    market.work(lambda: share(market.deployed.deployment, made) == 1.0)
    check_all(market.deployed, market.rows, market.users)
    market.sell()
    check_all(market.deployed, market.rows, market.users)
    assert list(check(market.reopened().deployment)) == []


def test_a_worker_that_ends_right_after_a_rebuild_runs_its_batch_again(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, finish = rebuild(market.deployed.deployment, ["Priced"]), MicroBatch.finish
    ended = list[int]()

    def ends(batch: MicroBatch, report: BatchReport) -> Counts:
        if share(market.deployed.deployment, made) == 1.0 and not ended:
            ended.append(batch.stamp.batch)
            raise MemoryError  # a reported error of another kind would not be of its size
        return finish(batch, report)

    monkeypatch.setattr(MicroBatch, "finish", ends)
    with suppress(StreamingQueryException):
        market.work(lambda: bool(ended))
    market.sell()
    market.sell()
    check_all(market.deployed, market.rows, market.users)
    assert list(check(market.reopened().deployment)) == []


def test_a_batch_that_ends_the_worker_each_time_is_read_in_smaller_ones(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in tasks of Spark; `tests/unit/runtime/test_retries.py` has what the driver runs."""
    market, small = Market(tmp_path, spark), 0
    market.sell(small)  # Spark may run this batch again, which must go the same way
    finish, ended, rows = MicroBatch.finish, list[int](), sales(900, 100)
    before = market.deployed.deployment.catalog.progress(JOB, sys.maxsize)

    def ends(batch: MicroBatch, report: BatchReport) -> Counts:
        assert before is not None
        if batch.stamp.batch > before.number and batch.plan.size > 3000:
            ended.append(batch.plan.size)
            raise MemoryError  # a reported error of another kind would not be of its size
        return finish(batch, report)

    monkeypatch.setattr(MicroBatch, "finish", ends)
    monkeypatch.setattr(retries, "LEAST", 500)
    (market.folder / "files" / "a").mkdir(parents=True, exist_ok=True)
    for number, begin in enumerate(range(0, len(rows), 5)):
        lines = b"".join(orjson.dumps(row) + b"\n" for row in rows[begin : begin + 5])
        (market.folder / "files" / "a" / f"{number:02d}.ndjson").write_bytes(lines)
    market.rows += rows
    while market.deployed.taken()["Sales"] < len(market.rows):
        assert len(ended) < 7
        with suppress(AssertionError), live(market.deployed, market.spark, small) as caught_up:
            caught_up({"Sales": len(market.rows)})
    assert len(ended) in (2, 4)
    assert ended[0] == ended[1]
    check_all(market.deployed, market.rows, market.users)
    monkeypatch.setattr(MicroBatch, "finish", finish)
    market.sell(small)
    check_all(market.deployed, market.rows, market.users)
    assert list(check(market.reopened().deployment)) == []
    market.deployed.close()


def test_a_rebuild_requested_while_a_batch_begins(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    place, begin, made = market.deployed.deployment, MicroBatch.begin, list[Rebuild]()

    def requested(*arguments: Any) -> MicroBatch:
        batch = begin(*arguments)
        if not made:
            made.append(rebuild(place, ["Priced"]))
        return batch

    monkeypatch.setattr(MicroBatch, "begin", requested)
    market.sell()
    market.work(lambda: share(place, made[0]) == 1.0)
    market.sell()
    check_all(market.deployed, market.rows, market.users)
    assert list(check(market.reopened().deployment)) == []


def test_a_removed_run_is_rebuilt_and_the_rest_goes_on(market: Market) -> None:
    run_of(market, "Totals").unlink()
    place = market.reopened().deployment
    (found,) = list(check(place))
    assert "Totals" in found.lost
    assert "Last" not in found.lost
    ((_, done),) = list(repair_all(place, [found]))
    assert done == "given up; the worker rebuilds Totals"
    market.reopened()
    market.work(lambda: not set(_state_ids(market)) - market.deployed.deployment.catalog.backfilled())
    check_all(market.deployed, market.rows, market.users)
    market.sell()
    check_all(market.deployed, market.rows, market.users)
    assert list(check(market.reopened().deployment)) == []


def test_a_removed_change_log_is_rebuilt(market: Market) -> None:
    place = market.deployed.deployment
    before = market.deployed.changes("Priced").drop("_seq")
    shutil.rmtree(place.directory / "changes" / place.graph(1).outputs["Priced"].log)
    place = market.reopened().deployment
    found = list(check(place))
    assert [each.subject for each in found] == ["change log of Priced"]
    ((_, done),) = list(repair_all(place, found))
    assert done == "the worker rebuilds Last, Priced, Totals"
    market.work(lambda: not set(_state_ids(market)) - market.deployed.deployment.catalog.backfilled())
    check_all(market.deployed, market.rows, market.users)
    assert market.deployed.changes("Priced").drop("_seq").sort("t", "user").equals(before.sort("t", "user"))


def sharing() -> list[Any]:
    """Return a source, and two datasets whose pipelines begin with the same operator."""

    @source(Webhook(name="web").endpoint("sales"), disorder="30d", cdc="append")
    @dataset
    class Sales:
        user: int
        amount: float
        t: datetime

    @dataset(index=True)
    class Largest:
        user: int = field(key=True)
        amount: float
        t: datetime

        @pipeline
        @inputs(Sales)
        def largest(cls, rows):
            return rows.dedup("user", "amount").filter(col("amount") > 1).groupby("user").latest()

    @dataset(index=True)
    class Counted:
        user: int = field(key=True)
        count: int
        t: datetime

        @pipeline
        @inputs(Sales)
        def counted(cls, rows):  # begins like `Largest`: the old operator gets a log only now
            larger = rows.dedup("user", "amount").filter(col("amount") > 2)
            return larger.groupby("user").aggregate(count=Count(window=Continuous("forever")))

    return [Sales, Largest, Counted]


def test_a_new_pipeline_has_the_history_behind_an_operator_without_log(tmp_path: Path, spark: Any) -> None:
    deployed, rows = Deployed(tmp_path / "umbel"), sales(0, 20)
    definitions = sharing()
    deployed.commit(definitions[:2])
    deployed.log("sales", rows)
    with live(deployed, spark, SMALL) as caught_up:
        caught_up({"Sales": 20})
        deployed.commit(definitions)
        place = deployed.deployment
        nodes = place.graph(place.catalog.latest()).nodes
        wait_until(lambda: {node.state_id for node in nodes} <= place.catalog.backfilled(), place.catalog.backfilled)
        deployed.log("sales", sales(20, 20))
        caught_up({"Sales": 40})
    late, users = [at(100_000)] * 5, [{"user": user} for user in range(5)]
    distinct = {(row["user"], row["amount"]) for row in sales(0, 40) if row["amount"] > 2}
    counted = Counter(user for user, _ in distinct)
    assert [row["count"] for row in deployed.lookup("Counted", users, late)] == [counted[user] for user in range(5)]
    assert [row["user"] for row in deployed.lookup("Largest", users, late)] == list(range(5))
    assert list(check(deployed.deployment)) == []
    deployed.close()


def _state_ids(market: Market) -> list[str]:
    place = market.deployed.deployment
    return [node.state_id for node in place.graph(place.catalog.latest()).nodes]


def test_a_removed_checkpoint_is_written_again_and_reported(market: Market) -> None:
    shutil.rmtree(market.folder / "umbel" / "checkpoint")
    market.sell()
    check_all(market.deployed, market.rows, market.users)
    assert "the checkpoint is missing" in market.deployed.deployment.catalog.events(1)[0].text
