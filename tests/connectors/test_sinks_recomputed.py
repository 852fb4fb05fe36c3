"""Positions of sinks: where history begins, after change logs are computed anew, and where a destination goes back."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.sink_shop import Shop, shop
from tests.connectors.sink_tables import Tables, deliver, events
from tests.deployed import Deployed, live, wait_until
from umbel.runtime import deliveries
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.deliveries import SinkDelivery
from umbel.runtime.recovery.rebuild import rebuild, rebuild_all, share
from umbel.runtime.sink_ids import begin_lineage, delivered_batch
from umbel.spark import backfill_step


@pytest.mark.spark
@pytest.mark.parametrize("crashes", [pytest.param(0, marks=pytest.mark.nightly), 3])
def test_a_dataset_that_is_added_later_is_sent_with_its_history(
    tables: Tables, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, crashes: int
) -> None:
    monkeypatch.setattr(backfill_step, "ROWS_AT_ONCE", 3)  # of history in a step, in each slot
    monkeypatch.setattr(deliveries, "AT_ONCE", 7)
    monkeypatch.setattr(deliveries, "READ_AT_ONCE", 10)
    read = heights_read(monkeypatch)
    with contextlib.closing(Shop(tmp_path, *tables.connectors())) as made:
        sale, user, large, norse = shop(*tables.connectors())
        made.deployed.commit([sale, user])
        for begin in range(0, 25, 5):
            made.sell(*[20.0 + begin + number for number in range(5)])
            for number in range(begin, begin + 5):
                made.move(number, f"City {number}")
            made.drain()
        made.deployed.commit([sale, user, large, norse])
        place = made.deployed.deployment
        graph = place.graph(place.catalog.latest())
        node = graph.outputs["Large"]
        with live(made.deployed, spark, small=1 << 40):
            wait_until(lambda: node.state_id in place.catalog.backfilled(), place.catalog.backfilled)
        steps = place.changes.sizes(node, until=-1)
        assert len(steps) > 1
        assert sum(steps.values()) == 25
        assert delivered_batch(place, graph, node) < min(steps)  # retention leaves them
        made.sell(100)
        made.move(3, "Bergen")
        made.drain()
        for _ in range(crashes):
            for name in ("Large", "Norse"):
                ends_behind_a_transaction(made.delivery(name))
        deliver(made)
        deliver(made)
        assert tables.amounts() == made.amounts
        assert dict(tables.run('SELECT "user", city FROM norse')) == made.cities
        deliver(made)
        assert tables.amounts() == made.amounts
        assert max(read) <= 10  # of the 25 changes of the backfill


def heights_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of changes of each read for a sink."""
    read, batches = list[int](), ChangeLogs.batches

    def read_batches(*arguments: Any, **which: Any) -> pl.DataFrame:
        found = batches(*arguments, **which)
        read.append(found.height)
        return found

    monkeypatch.setattr(ChangeLogs, "batches", read_batches)
    return read


def ends_behind_a_transaction(delivery: SinkDelivery) -> None:
    """Let a worker end right after the next transaction."""
    writer = delivery._open()
    write = writer.write

    def then_ends(*arguments: Any) -> None:
        write(*arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "write", then_ends)
        with pytest.raises(KeyboardInterrupt):
            delivery.step()


@pytest.mark.parametrize("is_restored", [False, True])
def test_rows_after_all_sources_are_read_again_are_sent(tables: Tables, made: Shop, is_restored: bool) -> None:
    if is_restored:
        begin_lineage(made.deployed.deployment.catalog)
    for number in range(5):
        made.sell(20.0 + number)
        made.move(number, f"City {number}")
        deliver(made)
    made.deployed.close()
    printed = rebuild_all(made.deployed.deployment)
    assert "all rows of Large, Norse are sent to their sinks again" in printed[-1]
    assert "those of Large, without keys, are there twice" in printed[-1]
    made.deployed = Deployed(made.folder)
    made.drain()
    made.sell(100)
    made.move(0, "Bergen")
    deliver(made)
    made.sell(101)
    deliver(made)
    assert tables.amounts() == sorted([*[20.0 + number for number in range(5)] * 2, 100, 101])
    assert tables.run('SELECT "user", city FROM norse ORDER BY 1') == [
        (0, "Bergen"),
        *((n, f"City {n}") for n in range(1, 5)),
    ]


@pytest.mark.spark
def test_a_rebuilt_dataset_is_sent_from_its_beginning(tables: Tables, made: Shop, spark: Any) -> None:
    place = made.deployed.deployment
    made.sell(20)
    made.move(1, "Oslo")
    deliver(made)
    made.sell(30)  # not delivered before it is rebuilt
    made.move(2, "Bergen")
    made.drain()
    found = rebuild(place, ["Large", "Norse"])
    with live(made.deployed, spark, small=1 << 40):
        wait_until(lambda: share(place, found) == 1.0, place.catalog.backfilled)
    assert events(made).count("all rows of Large, Norse are sent to their sinks again") == 1
    made.sell(40)
    deliver(made)
    deliver(made)
    assert tables.amounts() == [20, 20, 30, 40]
    assert tables.run('SELECT "user", city FROM norse ORDER BY 1') == [(1, "Oslo"), (2, "Bergen")]


@pytest.mark.spark
def test_a_dataset_that_is_removed_and_added_again_lacks_nothing(tables: Tables, made: Shop, spark: Any) -> None:
    place = made.deployed.deployment
    sale, user, large, norse = shop(*tables.connectors())
    made.sell(20)
    made.move(1, "Oslo")
    deliver(made)
    made.deployed.commit([sale, user])
    made.sell(30)
    made.move(2, "Bergen")
    made.drain()
    made.deployed.commit([sale, user, large, norse])
    states = {place.graph(place.catalog.latest()).outputs[name].state_id for name in ("Large", "Norse")}
    with live(made.deployed, spark, small=1 << 40):
        wait_until(lambda: states <= place.catalog.backfilled(), place.catalog.backfilled)
    made.sell(40)
    deliver(made)
    assert set(tables.amounts()) == {20, 30, 40}
    assert tables.run('SELECT "user", city FROM norse ORDER BY 1') == [(1, "Oslo"), (2, "Bergen")]


def test_a_destination_that_lost_its_last_transactions_gets_them_again(tables: Tables, made: Shop) -> None:
    made.sell(20)
    made.move(1, "Oslo")
    deliver(made)
    names = ("large", "norse", "umbel_sinks")
    tables.run(*(f"CREATE TABLE kept_{name} AS TABLE {name}" for name in names))
    made.sell(30)
    made.move(1, "Bergen")
    made.move(2, "Bodø")
    deliver(made)
    for name in names:  # a standby takes over that had not got the last transactions
        tables.run(f"DELETE FROM {name}", f"INSERT INTO {name} SELECT * FROM kept_{name}")
    made.sell(40)
    deliver(made)
    deliver(made)
    assert tables.amounts() == [20, 30, 40]
    assert tables.run('SELECT "user", city FROM norse ORDER BY 1') == [(1, "Bergen"), (2, "Bodø")]
    assert events(made).count("table 'large' has lost what it was sent after batch 0; it is sent again") == 1


def test_batches_that_have_nothing_to_send_hold_up_no_retention(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "PASSED", 0.0)
    until = datetime(2025, 1, 1, tzinfo=UTC)
    with contextlib.closing(Shop(tmp_path, *tables.connectors(), until=until)) as made:
        place = made.deployed.deployment
        for amount in (20, 30, 40):
            made.sell(amount)
            deliver(made)
        graph = place.graph(place.catalog.latest())
        assert delivered_batch(place, graph, graph.outputs["Large"]) == 2
        read, delivery = list[int | None](), made.delivery("Large")
        batches = type(place.changes).batches
        monkeypatch.setattr(
            type(place.changes),
            "batches",
            lambda *of, after, until: read.append(after) or batches(*of, after=after, until=until),
        )
        made.sell(50)
        made.drain()
        delivery.step()
        assert read == [2]  # a new worker reads the rest only
        assert tables.amounts() == []
