"""The version before serves until the new one has caught up; then a branch switches, all of its commit at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

from umbel.api.commit import check_commit
from umbel.catalog.switching import switch
from umbel.connectors import Files, source
from umbel.datasets import dataset
from umbel.errors import InvalidValue, Terminal, UmbelError
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.offline.answering import Answering
from umbel.offline.request import OfflineRequest
from umbel.runtime.batch import drain
from umbel.runtime.branches import delete, init
from umbel.runtime.commit import commit
from umbel.runtime.deployment import JOB, Deployment, replaced
from umbel.runtime.switching import Switch, switches
from umbel.testing import mock

__owner__ = "tests@example.com"
from tests.shop import AMOUNTS, NOON, Shop, definitions, opened_shop, sales, totals


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path) as opened:
        yield opened


def test_the_version_before_serves_until_the_new_one_has_caught_up(shop: Shop) -> None:
    assert shop.answer("total", "sales") == [sum(AMOUNTS), len(AMOUNTS)]
    report = shop.commit(definitions(2))
    assert (report["serving"], report["status"][0]["state"]) == (1, "backfilling")
    (state,) = report["status"]
    assert "version 2 of Total is being backfilled: 0 %; version 1 serves" in state["message"]
    shares, read = list[float](), len(AMOUNTS)
    while shop.status()["state"] == "backfilling":
        shop.log([1])  # what serves is fed as before
        read += 1
        drain(shop.place, batches=1)
        assert shop.answer("sales") == [read]
        shares.append(shop.status()["share"])
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1 == shares[-1]
    assert shop.status()["serving"] > report["revision"]
    graph = shop.place.graph(shop.place.catalog.latest())
    assert graph.datasets["Total"].version == 2
    assert replaced("main") not in graph.names
    assert shop.answer("sales") == [read]


def test_what_serves_is_fed_by_a_changed_source_as_well(shop: Shop) -> None:
    """A source with another disorder was another feed: what served was looked for beside it, where nothing was."""
    sale = sales(disorder="15d")
    total, user = totals(sale, version=2, window="30d")
    assert shop.commit(check_commit([sale, total], [user]))["serving"] == 1
    graph = shop.place.graph(shop.place.catalog.latest())
    serving, later = (graph.branch(name).outputs["Sale"] for name in (replaced("main"), "main"))
    assert serving is later
    assert serving.state_id == shop.place.graph(1).outputs["Sale"].state_id
    assert shop.answer("total", "sales") == [sum(AMOUNTS), len(AMOUNTS)]


def test_state_that_served_stays_until_the_switch_and_goes_after_it(shop: Shop) -> None:
    first = shop.place.graph(1).outputs["Total"].state_id
    shop.commit(definitions(2))
    drain(shop.place, batches=1)
    assert first in shop.state_ids()
    drain(shop.place)
    assert first not in shop.state_ids()
    assert first not in shop.place.catalog.backfilled()


def test_state_is_retained_for_servers_that_do_not_know_of_the_switch(shop: Shop, monkeypatch: Any) -> None:
    from umbel.runtime.batch import MicroBatch

    first, forget = shop.place.graph(1).outputs["Total"].state_id, MicroBatch.forget_removed
    monkeypatch.setattr(MicroBatch, "forget_removed", lambda self, retained_for: forget(self))  # as the worker does
    shop.commit(definitions(2))
    drain(shop.place)
    assert shop.status()["state"] == "serving"
    assert first in shop.state_ids()
    monkeypatch.undo()
    shop.log([1])
    drain(shop.place)
    assert first not in shop.state_ids()


def test_what_needs_no_new_state_serves_at_once(shop: Shop) -> None:
    sale = sales()
    total, _ = totals(sale)

    @featureset
    class User:
        user: int
        twice: int = F(total.total, default=-1)

    report = shop.commit(check_commit([sale, total], [User]))
    assert (report["serving"], report["status"]) == (report["revision"], [])
    assert shop.answer("twice") == [sum(AMOUNTS)]


def test_a_second_commit_takes_the_place_of_one_that_waits(shop: Shop) -> None:
    shop.commit(definitions(2))
    drain(shop.place, batches=1)
    assert shop.commit(definitions(3))["serving"] == 1
    assert shop.answer("sales") == [len(AMOUNTS)]
    drain(shop.place)
    assert shop.place.graph(shop.place.catalog.latest()).datasets["Total"].version == 3
    assert shop.answer("sales") == [len(AMOUNTS)]


def test_going_back_serves_at_once(shop: Shop) -> None:
    waits = shop.commit(definitions(2))["revision"]
    drain(shop.place, batches=1)
    shop.log([5])
    report = shop.commit(definitions(1))
    assert (report["serving"], report["status"]) == (report["revision"], [])
    assert report["revision"] > waits
    drain(shop.place)
    assert shop.answer("total") == [sum(AMOUNTS) + 5]
    assert shop.status()["state"] == "serving"


def test_only_what_serves_may_be_gone_back_to(shop: Shop) -> None:
    shop.commit(definitions(3))
    with pytest.raises(InvalidValue, match="version 2 is lower than version 3"):
        shop.commit(definitions(2))
    drain(shop.place)
    with pytest.raises(InvalidValue, match="version 1 is lower than version 3"):
        shop.commit(definitions(1))


def test_what_has_no_data_yet_serves_at_once(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path / "umbel", shards=1)
    report = commit(place, definitions())
    assert (report["serving"], report["status"]) == (report["revision"], [])
    (tmp_path / "files").mkdir()
    files = Files(name="files", folder=str(tmp_path / "files"))

    def committed() -> dict[str, Any]:
        @source(files.path("*.ndjson"), disorder="14d", cdc="append", every="1s")
        @dataset(version=committed.version)
        class Sale:
            user: int
            amount: int
            at: datetime

        committed.version += 1
        return commit(place, check_commit([Sale], []))

    committed.version = 2
    assert committed()["status"] == []
    (tmp_path / "files" / "a.ndjson").write_text(f'{{"user":1,"amount":1,"at":"{NOON}"}}\n')
    assert committed()["status"][0]["state"] == "backfilling"
    place.catalog.close()


def test_a_clone_of_a_branch_that_waits_serves_what_its_origin_does(shop: Shop) -> None:
    shop.commit(definitions(2))
    drain(shop.place, batches=1)
    init(shop.place, "dev", clone_from="main")
    assert shop.status("dev")["state"] == "backfilling"
    assert shop.answer("sales", branch="dev") == [len(AMOUNTS)]
    drain(shop.place)
    assert {shop.status(each)["state"] for each in ("main", "dev")} == {"serving"}
    assert shop.answer("sales", branch="dev") == [len(AMOUNTS)]
    delete(shop.place, "dev")
    assert switches(shop.place, shop.place.catalog.latest()) == []


def test_a_branch_that_takes_over_what_another_computes_waits_for_it(shop: Shop) -> None:
    shop.commit(definitions(2))
    drain(shop.place, batches=1)
    init(shop.place, "dev")
    assert shop.commit(definitions(2), branch="dev")["status"] != []
    drain(shop.place)
    assert shop.answer("sales", branch="dev") == [len(AMOUNTS)]


def test_the_catalog_knows_for_every_revision_what_served(shop: Shop) -> None:
    catalog = shop.place.catalog
    shop.commit(definitions(2))
    served = [catalog.serving(revision).get("main") for revision in range(1, catalog.latest() + 1)]
    assert served == [1, 1]
    drain(shop.place)
    later = [catalog.serving(revision).get("main") for revision in range(1, catalog.latest() + 1)]
    assert later == [1, 1, 3]
    epoch = catalog.take_over(JOB)
    assert switch(catalog, JOB, epoch, "main", 2) is None  # not the last commit any more
    with pytest.raises(UmbelError, match="another worker has taken it over"):
        switch(catalog, JOB, epoch - 1, "main", 3)


def test_a_worker_that_reads_anew_does_not_hold_back_what_serves(shop: Shop) -> None:
    shop.commit(definitions(2))
    shop.log([1] * 8)
    drain(shop.place, batches=2)
    assert shop.status()["state"] == "backfilling"
    assert shop.answer("sales") == [len(AMOUNTS) + 8]


@mock
def test_the_mock_client_has_the_final_values_at_once(client: Any) -> None:
    sale = sales()
    client.commit("one", [sale, *totals(sale)[:1]], totals(sale)[1:])
    rows = pd.DataFrame({"user": [1] * 3, "amount": [1, 2, 3], "at": [datetime(2024, 1, 1, tzinfo=UTC)] * 3})
    client.log("events", "sales", rows)
    assert client.lookup("Total", pd.DataFrame({"user": [1]}))[0]["total"].tolist() == [6]


def test_a_graph_without_some_operators_is_one_of_its_own(shop: Shop) -> None:
    graph = shop.place.graph(1)
    total, entry = graph.outputs["Total"], graph.outputs["Sale"]
    assert graph.awaiting({total.state_id}) == {total.state_id}
    assert graph.awaiting({total.state_id, entry.state_id}) == set()
    less = graph.without({total.state_id})
    assert [node.number for node in less.nodes] == list(range(len(less.nodes)))
    assert total.state_id not in {node.state_id for node in less.nodes}
    assert less.outputs["Sale"].readers == []
    assert less.outputs["Sale"].is_logged
    assert [node.state_id for node, _ in graph.outputs["Sale"].readers] == [total.state_id]
    assert graph.without({entry.state_id}).nodes == []
    assert isinstance(less.entries["Sale"].operator.schema.empty(), pl.DataFrame)


def test_a_job_goes_on_while_a_commit_waits(shop: Shop) -> None:
    state_id = shop.place.graph(shop.place.catalog.latest()).outputs["Total"].state_id
    requested = OfflineRequest(("User.user",), ("User.total",), "at", {}, "tests", 1, {"Total": state_id})
    shop.commit(definitions(2))
    Answering(shop.place, "main", requested).follow()
    drain(shop.place)
    with pytest.raises(Terminal, match="was changed or removed"):
        Answering(shop.place, "main", requested)


def test_many_datasets_with_one_state_are_one_sentence() -> None:
    versions = {"A": (1, None), "B": (1, None), "C": (1, None), "D": (1, None), "E": (2, 1)}
    assert Switch("main", 0, 1, versions, 0.261).message == (
        "version 1 of A, B and 2 more is being backfilled: 26 %; nothing serves yet; "
        "version 2 of E is being backfilled: 26 %; version 1 serves"
    )
