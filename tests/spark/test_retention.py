"""A pipeline that is added after changes were dropped: right from an instant on, and refused before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deployed import live, wait_until
from tests.unit.runtime.test_retention import AMID, USERS, Order, Person, Shop, ago, counted, later, per_city
from umbel.errors import HistoryDropped
from umbel.runtime.completeness import DeploymentCompleteness, noted_since
from umbel.runtime.recovery.rebuild import rebuild

pytestmark = pytest.mark.spark
__owner__ = "tests@example.com"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_later_pipeline_is_right_from_an_instant_on(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "umbel")
    shop.fill()
    cities = {days: shop.lookup("PerCity", {"city": ["city 1"]}, days) for days in (0, 3 + AMID)}
    shop.drop()
    done = rebuild(shop.place, ["PerCity"]).state_ids
    shop.deployed.commit([Order, Person, counted("forever"), per_city("forever"), later("2d")])
    (new,) = {shop.node("Later").state_id} - shop.place.catalog.backfilled()
    with live(shop.deployed, spark, small=1 << 40):
        wait_until(lambda: {new, *done} <= shop.place.catalog.backfilled(), shop.place.catalog.backfilled)
    since = noted_since(shop.place.catalog)
    assert set(since) == {new, shop.node("PerCity").state_id}
    assert ago(4).timestamp() * 1e6 < since[new] < ago(2).timestamp() * 1e6
    assert shop.lookup("Later", USERS, 0) == [(0, 1.0), (1, 1.0), (2, 1.0), (9, 0.0)]
    assert {days: shop.lookup("PerCity", {"city": ["city 1"]}, days) for days in cities} == cities
    for dataset, keys in (("Later", USERS), ("PerCity", {"city": ["city 1"]})):
        with pytest.raises(HistoryDropped, match="the oldest instant that can be answered is 20"):
            shop.lookup(dataset, keys, 8)
    known = DeploymentCompleteness(shop.place)
    assert known.of_log(shop.node("Order")) > float("-inf")
    shop.deployed.close()
