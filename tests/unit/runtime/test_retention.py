"""Retention of change logs in a deployment: what cannot be answered any more is refused, and everything else is as before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.catalog.catalog import JobEpoch
from umbel.catalog.purges import Purges
from umbel.cli.checks import _logs
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Max, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.errors import Damaged, HistoryDropped, InvalidValue
from umbel.lib import inputs
from umbel.query.lookups import Lookups
from umbel.runtime.batch import drain
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.completeness import DeploymentCompleteness, note_since, noted_since
from umbel.runtime.deployment import JOB
from umbel.runtime.history import replayed
from umbel.runtime.limits import Limits
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.rebuild import rebuild
from umbel.runtime.retention import drop_changes, retained_logs

__owner__ = "tests@example.com"
TODAY = datetime.now(UTC).replace(hour=12, minute=40, second=17, microsecond=0)
NOW = TODAY if datetime.now(UTC) > TODAY else TODAY - timedelta(days=1)
"""The end of the history. Which instants the tiles keep apart depends on the time of day."""
web = Webhook(name="web")


@source(web.endpoint("orders"), disorder="1h", cdc="append")
@dataset
class Order:
    user: int
    price: float
    t: datetime


@source(web.endpoint("people"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Person:
    email: str = field(key=True)
    city: str
    t: datetime


def counted(window: str, name: str = "PerUser") -> Any:
    @dataset(index=True)
    class PerUser:
        user: int = field(key=True)
        orders: int
        t: datetime

        @pipeline
        @inputs(Order)
        def count(cls, orders: Any) -> Any:
            return orders.groupby("user").aggregate(orders=Count(window=Continuous(window)))

    return PerUser


def per_city(window: str) -> Any:
    @dataset(index=True)
    class PerCity:
        city: str = field(key=True)
        people: int
        t: datetime

        @pipeline
        @inputs(Person)
        def count(cls, people: Any) -> Any:
            return people.groupby("city").aggregate(people=Count(window=Continuous(window)))

    return PerCity


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def limits_of(days: float) -> Limits:
    return Limits(change_log_age=(datetime.now(UTC) - ago(days)).total_seconds())


def minute(day: int, number: int) -> str:
    return (ago(day) + timedelta(minutes=number - 40)).isoformat()


AMID = 20 / 1440
"""Twenty minutes, in days: rows of a day come before and after it."""


class Shop:
    """A deployment with ten days of orders, and people who move."""

    def __init__(self, folder: Path) -> None:
        self.deployed = Deployed(folder)
        self.place = self.deployed.deployment

    def fill(self) -> None:
        self.deployed.commit([Order, Person, counted("forever"), per_city("forever")])
        for day in range(10, -1, -1):
            orders = [{"user": n % 3, "price": 1.0, "t": minute(day, n)} for n in range(36)]  # a tile has 8 instants
            people = [{"email": f"{n}@x", "city": f"city {(n + day) % 3}", "t": minute(day, n)} for n in range(36)]
            self.deployed.log("orders", orders)
            self.deployed.log("people", people)
            drain(self.place)
            self.deployed.flush_logs()

    @property
    def graph(self) -> Any:
        return self.place.graph(self.place.catalog.revision())

    def node(self, dataset: str) -> Any:
        return self.graph.outputs[dataset]

    def drop(self, limits: Limits | None = None) -> dict[str, int]:
        found = drop_changes(self.place, self.graph, limits or limits_of(5))
        return {log.partition("-")[0]: rows for log, rows in found.items()}

    def lookup(self, dataset: str, keys: dict[str, list[Any]], days: float) -> list[Any]:
        known = DeploymentCompleteness(self.place)
        lookups = Lookups(self.graph, self.place.store, partial(replayed, self.place), known)
        at = pl.Series([ago(days)], dtype=pl.Datetime("us", "UTC")).new_from_index(0, len(next(iter(keys.values()))))
        frame, _ = lookups.offline(dataset, pl.DataFrame(keys), at)
        return frame.drop("t").rows()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with rows, to be copied."""
    made = Shop(tmp_path_factory.mktemp("filled") / "umbel")
    made.fill()
    made.deployed.close()
    return made.place.directory


@pytest.fixture
def shop(filled: Path, tmp_path: Path) -> Iterator[Shop]:
    shutil.copytree(filled, tmp_path / "umbel")
    made = Shop(tmp_path / "umbel")
    yield made
    made.deployed.close()


USERS, CITIES = {"user": [0, 1, 2, 9]}, {"city": ["city 0", "city 1", "city 2"]}


def test_without_settings_nothing_is_dropped(shop: Shop) -> None:
    assert shop.drop(Limits()) == {}


def test_a_damaged_log_does_not_let_the_others_grow(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    drop = ChangeLogs.drop_oldest

    def drops(self: ChangeLogs, node: Any, *arguments: Any) -> int:
        if node.dataset == "Order":
            raise Damaged("a file of the log is missing")
        return drop(self, node, *arguments)

    monkeypatch.setattr(ChangeLogs, "drop_oldest", drops)
    with pytest.raises(Damaged, match="a file of the log is missing"):
        shop.drop()
    assert {log.partition("-")[0] for log in retained_logs(shop.place)} == {"Person"}


def test_answers_that_need_dropped_changes_are_refused_and_all_others_are_as_before(shop: Shop) -> None:
    before = {days: shop.lookup("PerUser", USERS, days) for days in (0, 2.5, 2 + AMID, 8 + AMID)}
    cities = {days: shop.lookup("PerCity", CITIES, days) for days in (0, 2.5, 2 + AMID, 4 + AMID, 8 + AMID)}
    people = shop.lookup("Person", {"email": ["1@x"]}, 8.5)
    assert len({tuple(each) for each in before.values()}) == 4
    assert shop.drop() == {"Order": 36 * 6, "Person": 2 * 36 * 5}
    assert shop.lookup("PerUser", USERS, 0) == before[0]
    assert shop.lookup("PerUser", USERS, 2.5) == before[2.5]  # the state has the answer
    assert shop.lookup("PerUser", USERS, 2 + AMID) == before[2 + AMID]  # the rows of that tile are still there
    with pytest.raises(
        HistoryDropped, match=r"'PerUser'.*UMBEL_CHANGE_LOG_AGE.*no instant can be answered from history"
    ):
        shop.lookup("PerUser", USERS, 8 + AMID)
    assert cities.pop(8 + AMID)
    assert {days: shop.lookup("PerCity", CITIES, days) for days in cities} == cities  # the rows of then are still there
    with pytest.raises(HistoryDropped, match=r"'PerCity'.*that can be answered from history is 20") as report:
        shop.lookup("PerCity", CITIES, 8 + AMID)
    assert (report.value.code, report.value.status) == ("history-dropped", 410)
    assert shop.lookup("Person", {"email": ["1@x"]}, 8.5) == people  # its versions are state
    assert [each for each in check(shop.place) if each.subject != "checkpoint"] == []


def test_a_later_pipeline_is_refused_if_it_needs_what_was_dropped(shop: Shop) -> None:
    shop.drop()
    head = shop.place.catalog.latest()
    with pytest.raises(HistoryDropped, match=r"Later cannot be computed from history.*never"):
        shop.deployed.commit([Order, Person, later("forever")])
    with pytest.raises(HistoryDropped, match=r"Later.*they would be right from 20"):
        shop.deployed.commit([Order, Person, later("7d")])
    assert shop.place.catalog.latest() == head
    shop.deployed.commit([Order, Person, later("2d")])
    assert shop.place.catalog.latest() > head


def later(window: str) -> Any:
    @dataset(index=True)
    class Later:
        user: int = field(key=True)
        most: float
        t: datetime

        @pipeline
        @inputs(Order)
        def largest(cls, orders: Any) -> Any:
            return orders.groupby("user").aggregate(most=Max(of="price", window=Continuous(window), default=0.0))

    return Later


def test_a_rebuild_is_refused_if_it_needs_what_was_dropped(shop: Shop) -> None:
    done = shop.place.catalog.backfilled()
    shop.drop()
    with pytest.raises(HistoryDropped, match="PerUser cannot be computed"):
        rebuild(shop.place, ["PerUser"])
    assert shop.place.catalog.backfilled() == done
    made = rebuild(shop.place, ["PerCity"])  # its input has all rows that are left
    assert shop.place.catalog.backfilled() == done - made.state_ids


def test_state_that_is_incomplete_answers_from_an_instant_on(shop: Shop) -> None:
    shop.drop()
    node = shop.node("PerCity")
    before = shop.lookup("PerCity", CITIES, 1)
    by = JobEpoch(JOB, shop.place.catalog.take_over(JOB))
    note_since(shop.place, shop.graph, {node.state_id}, by)
    (since,) = noted_since(shop.place.catalog).values()
    assert ago(6).timestamp() * 1e6 < since < ago(4).timestamp() * 1e6
    assert shop.lookup("PerCity", CITIES, 1) == before
    with pytest.raises(HistoryDropped, match="the oldest instant that can be answered"):
        shop.lookup("PerCity", CITIES, 7)
    note_since(shop.place, shop.graph, {shop.node("PerUser").state_id}, by)
    with pytest.raises(HistoryDropped, match="no instant can be answered"):
        shop.lookup("PerUser", USERS, 0)


def test_nothing_is_dropped_while_history_is_needed(shop: Shop) -> None:
    shop.place.catalog.backfill({shop.node("PerUser").state_id}, done=False)
    assert shop.drop() == {}
    shop.place.catalog.backfill({shop.node("PerUser").state_id}, done=True)
    Purges(shop.place.catalog).request(shop.place.catalog.latest())
    assert shop.drop() == {}


def test_doctor_and_metrics_tell_from_when_on_a_log_is_complete(shop: Shop) -> None:
    assert retained_logs(shop.place) == {}
    shop.drop()
    found = retained_logs(shop.place)
    assert set(found) == {shop.node("Order").log, shop.node("Person").log}
    assert all(ago(6).timestamp() < at < ago(4).timestamp() for at in found.values())
    texts = {each.subject: each.found for each in _logs(shop.place)}
    assert "complete from 20" in texts[f"log changes/{shop.node('Order').log}"]


def test_by_size(shop: Shop) -> None:
    _, size = shop.place.changes.measure(shop.node("Order"))
    assert shop.drop(Limits(change_log_bytes=size // 2))["Order"] > 0
    assert shop.place.changes.measure(shop.node("Order"))[1] <= size // 2


def test_a_dataset_has_a_retention_of_its_own(tmp_path: Path) -> None:
    @source(web.endpoint("clicks"), disorder="1h", cdc="append")
    @dataset(history="2d")
    class Click:
        user: int
        t: datetime

    shop = Shop(tmp_path)
    shop.deployed.commit([Click])
    for day in (4, 3, 0.5):
        shop.deployed.log("clicks", [{"user": day, "t": ago(day).isoformat()}])
        drain(shop.place)
        shop.deployed.flush_logs()
    assert shop.drop(Limits()) == {"Click": 2}
    shop.deployed.close()


def test_an_erase_key_that_is_not_the_whole_key_is_found_later(tmp_path: Path) -> None:
    @source(web.endpoint("visits"), disorder="1h", cdc="upsert")
    @dataset(index=True)
    class Visit:
        email: str = field(key=True, erase_key=True)
        page: str = field(key=True)
        t: datetime

    shop = Shop(tmp_path)
    shop.deployed.commit([Visit])
    for day in (9, 8, 1):
        shop.deployed.log("visits", [{"email": "a", "page": "p", "t": ago(day).isoformat()}])
        drain(shop.place)
        shop.deployed.flush_logs()
    assert shop.drop() == {}
    shop.deployed.close()


@pytest.mark.parametrize("text", ["never", "-1d", "5"])
def test_a_setting_that_is_no_duration_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBEL_CHANGE_LOG_AGE", text)
    with pytest.raises(InvalidValue, match="UMBEL_CHANGE_LOG_AGE"):
        Limits.from_environment()


def test_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBEL_CHANGE_LOG_AGE", "30d")
    monkeypatch.setenv("UMBEL_CHANGE_LOG_BYTES", "2GiB")
    found = Limits.from_environment()
    assert (found.change_log_age, found.change_log_bytes) == (30 * 86_400, 2 << 30)
