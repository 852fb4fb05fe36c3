"""Purges by a running worker, between two of its batches."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed, live, wait_until
from tests.town import BOB, GONE, SECRET, START, People, PerRegion, person, where
from umbel.catalog.purges import Purges
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.erasures import erase
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.rebuild import rebuild

pytestmark = pytest.mark.spark
__owner__ = "tests@example.com"


def test_a_running_worker_purges_between_two_batches(spark: Any, tmp_path: Path) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([People, PerRegion])
    catalog, at = deployed.deployment.catalog, START + timedelta(days=1)
    with live(deployed, spark, 2 << 20) as caught_up:
        deployed.log("people", [person(GONE, 0, SECRET), person(BOB, 0, "bob")])
        caught_up({"People": 2})
        before = deployed.lookup("PerRegion", [{"region": "eu"}], [at])
        revision = erase(deployed.deployment, "main", "People", {"email": pl.Series([GONE])})
        Purges(catalog).request(revision)
        deployed.log("people", [person("new@example.com", 1, "new"), person(GONE, 1, "again")])
        wait_until(lambda: not Purges(catalog).is_open, lambda: Purges(catalog).progress)
        caught_up({"People": 3})
        assert Purges(catalog).progress.error == ""
        assert where(tmp_path / "umbel", SECRET) == []
        assert before[0]["people"] == 2
        assert deployed.lookup("PerRegion", [{"region": "eu"}], [at])[0]["people"] == 3  # it has counted the erased row
    assert where(tmp_path / "umbel", SECRET) == []
    deployed.close()


@dataset(index=True)
class PerName:
    name: str = field(key=True)
    people: int
    t: datetime

    @pipeline
    @inputs(People)
    def count(cls, people: Any) -> Any:
        named = people.dropnull("name").groupby("name")
        return named.aggregate(people=Count(window=Continuous("forever")))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_backfill_after_a_purge_does_not_see_erased_rows(spark: Any, tmp_path: Path) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([People, PerRegion])
    catalog, at = deployed.deployment.catalog, START + timedelta(days=1)
    names = [{"name": "bob"}, {"name": SECRET}]
    with live(deployed, spark, 2 << 20) as caught_up:
        for minute in range(3):
            deployed.log("people", [person(GONE, minute, SECRET), person(f"{minute}@example.com", minute, "bob")])
            caught_up({"People": 2 * minute + 2})
        Purges(catalog).request(erase(deployed.deployment, "main", "People", {"email": pl.Series([GONE])}))
        deployed.log("people", [person("3@example.com", 4, "bob")])
        wait_until(lambda: not Purges(catalog).is_open, lambda: Purges(catalog).progress)
        deployed.commit([People, PerRegion, PerName])
        graph = deployed.deployment.graph(catalog.latest())
        wait_until(lambda: {node.state_id for node in graph.nodes} <= catalog.backfilled(), catalog.backfilled)
        deployed.log("people", [person("4@example.com", 5, "bob")])
        caught_up({"People": 8})
        found = deployed.lookup("PerName", names, [at] * 2)
        assert [None if each is None else each["people"] for each in found] == [5, None]
        made = rebuild(deployed.deployment, ["PerRegion"])
        wait_until(lambda: made.state_ids <= catalog.backfilled(), catalog.backfilled)
        assert deployed.lookup("PerRegion", [{"region": "eu"}], [at])[0]["people"] == 5  # now without the erased row
        assert where(tmp_path / "umbel", SECRET) == []
        assert [each for each in check(deployed.deployment) if each.subject != "checkpoint"] == []
    deployed.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_purge_that_is_requested_during_a_backfill_comes_after_it(spark: Any, tmp_path: Path) -> None:
    deployed = Deployed(tmp_path / "umbel")
    deployed.commit([People, PerRegion])
    catalog, at = deployed.deployment.catalog, START + timedelta(days=1)
    with live(deployed, spark, 2 << 20) as caught_up:
        deployed.log("people", [person(GONE, 0, SECRET), person(BOB, 0, "bob")])
        caught_up({"People": 2})
    deployed.commit([People, PerRegion, PerName])
    Purges(catalog).request(erase(deployed.deployment, "main", "People", {"email": pl.Series([GONE])}))
    with live(deployed, spark, 2 << 20) as caught_up:
        wait_until(lambda: not Purges(catalog).is_open, lambda: Purges(catalog).progress)
        assert Purges(catalog).progress.error == ""
        assert deployed.lookup("PerName", [{"name": "bob"}], [at])[0]["people"] == 1
        deployed.log("people", [person(BOB, 1, "bobby")])
        caught_up({"People": 3})
        found = deployed.lookup("PerName", [{"name": "bob"}, {"name": "bobby"}], [at] * 2)
        assert [None if each is None else each["people"] for each in found] == [0, 1]
    deployed.close()
