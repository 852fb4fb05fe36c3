"""Purges by a running worker, between two of its batches."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed, live, wait_until
from tests.town import BOB, GONE, SECRET, START, People, PerRegion, person, where
from umbel.catalog.purges import Purges
from umbel.runtime.erasures import erase

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
