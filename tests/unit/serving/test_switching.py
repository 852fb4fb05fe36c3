"""What a server answers while a commit waits for its backfill."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.connectors import source
from umbel.datasets import dataset, field, index
from umbel.errors import UmbelError
from umbel.runtime.batch import drain
from umbel.runtime.branches import init

__owner__ = "tests@example.com"
from tests.shop import AMOUNTS, Shop, definitions, opened_shop, sales, totals, webhook


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path) as opened:
        yield opened


def test_a_feature_of_the_new_version_alone_is_said_to_come(shop: Shop) -> None:
    shop.commit(definitions(2, renamed=True), incremental=False)
    status, report, headers = shop.refused("spent")
    assert (status, report["code"], headers["retry-after"]) == (503, "backfilling", "1")
    assert "revision 2 of branch 'main' is being backfilled; revision 1 serves until then" in report["message"]
    assert shop.refused("spend")[1]["code"] == "invalid-value"  # will never be there
    assert shop.answer("total") == [sum(AMOUNTS)]
    drain(shop.place)
    assert shop.answer("spent") == [sum(AMOUNTS)]
    assert shop.refused("total")[0] == 400


def test_a_lookup_by_new_keys_or_of_new_fields_is_said_to_come(shop: Shop) -> None:
    @source(webhook.endpoint("sales"), disorder="14d", cdc="upsert")
    @index
    @dataset
    class Last:
        user: int = field(key=True)
        amount: int
        at: datetime

    sale = sales()
    total, user = totals(sale)
    shop.commit(check_commit([sale, total, Last], [user]))
    with pytest.raises(UmbelError, match="is being backfilled; revision 1 serves"):
        shop.client.lookup("Last", pd.DataFrame({"user": [1]}), fields=["amount"])
    drain(shop.place)
    shop.look()
    assert shop.client.lookup("Last", pd.DataFrame({"user": [1]}), fields=["amount"])[0].tolist() == [30]


def test_nothing_serves_on_a_first_commit_over_data_that_is_there(shop: Shop) -> None:
    init(shop.place, "dev")
    report = shop.commit(definitions(7), branch="dev")
    assert report["status"][0]["serving"] < report["revision"]
    dev = Client("http://umbel", branch="dev", transport=shop.transport)
    with pytest.raises(UmbelError, match="is being backfilled"):
        dev.lookup("Total", pd.DataFrame({"user": [1]}))
    drain(shop.place)
    assert shop.answer("total", branch="dev") == [sum(AMOUNTS)]


def users(version: int) -> Any:
    @source(webhook.endpoint("users"), disorder="14d", cdc="upsert")
    @index
    @dataset(version=version)
    class Person:
        user: int = field(key=True, erase_key=True)
        amount: int
        at: datetime

    return check_commit([Person], [])


def test_rows_erased_while_a_commit_waits_are_gone_before_and_after(tmp_path: Path, shop: Shop) -> None:
    shop.commit(users(1))
    shop.log(AMOUNTS, "users", user=1)
    shop.log(AMOUNTS, "users", user=2)
    drain(shop.place)
    shop.commit(users(2))
    drain(shop.place, batches=1)
    shop.look()
    shop.client.erase("Person", pd.DataFrame({"user": [1]}))
    keys = pd.DataFrame({"user": [1, 2]})
    assert shop.status()["state"] == "backfilling"
    assert shop.client.lookup("Person", keys)[1].tolist() == [False, True]
    drain(shop.place)
    shop.look()
    assert shop.status()["state"] == "serving"
    assert shop.client.lookup("Person", keys)[1].tolist() == [False, True]


def test_erased_rows_stay_erased_in_a_later_version(tmp_path: Path, shop: Shop) -> None:
    """The raise read the rows again, and the digests of the erased keys were those of the version before."""

    keys = pd.DataFrame({"user": [1, 2]})
    shop.commit(users(1))
    shop.log(AMOUNTS, "users", user=1)
    shop.log(AMOUNTS, "users", user=2)
    drain(shop.place)
    shop.look()
    shop.client.erase("Person", pd.DataFrame({"user": [1]}))
    for version in (2, 3):
        shop.commit(users(version))
        drain(shop.place)
        shop.log([1], "users", user=1)
        drain(shop.place)
        shop.look()
        assert shop.status()["state"] == "serving"
        assert shop.client.lookup("Person", keys)[1].tolist() == [False, True]


def test_metrics_and_readiness_tell_of_it(shop: Shop) -> None:
    shop.commit(definitions(2))
    drain(shop.place, batches=1)
    report = shop.http.send("GET", "/readyz", "main").json()
    assert "version 2 of Total is being backfilled" in report["backfilling"][0]
    metrics = shop.http.send("GET", "/api/v1/metrics", "main").text
    assert 'umbel_backfill_share{branch="main",committed="2",serving="1"} 0.' in metrics
    status = shop.client.branch_status()
    assert status["serving"] == 1
    assert (0 < status["rows_done"] < status["rows_total"], status["rows_total"]) == (True, len(AMOUNTS))
    assert f'umbel_backfill_rows_done{{branch="main",committed="2",serving="1"}} {status["rows_done"]}.0' in metrics
    assert f'umbel_backfill_rows_total{{branch="main",committed="2",serving="1"}} {len(AMOUNTS)}.0' in metrics
    found = shop.http.send("GET", "/api/v1/progress", "main").json()
    assert (found["status"], found["worker"]) == (status, "never started")
    drain(shop.place)
    assert "umbel_backfill_share{" not in shop.http.send("GET", "/api/v1/metrics", "main").text
    assert "backfilling" not in shop.http.send("GET", "/readyz", "main").json()


def test_types_of_answers_are_those_of_the_version_that_answers(shop: Shop) -> None:
    def texts(version: int, kind: Any) -> Any:
        @source(webhook.endpoint("texts"), disorder="14d", cdc="upsert")
        @index
        @dataset(version=version)
        class Text:
            user: int = field(key=True)
            amount: kind
            at: datetime

        return [Text]

    client, keys = shop.client, pd.DataFrame({"user": [1]})
    client.commit("one", datasets=texts(1, int))
    shop.log(AMOUNTS, "texts")
    drain(shop.place)
    shop.look()
    assert client.lookup("Text", keys)[0]["amount"].dtype == pd.Int64Dtype()
    client.commit("two", datasets=texts(2, float))
    assert client.lookup("Text", keys)[0]["amount"].dtype == pd.Int64Dtype()
    drain(shop.place)
    shop.look()
    assert client.lookup("Text", keys)[0]["amount"].dtype == pd.Float64Dtype()
