"""Branches over HTTP: a clone has the data of its origin without a copy, and parts from it where they differ."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.serving.conftest import DEPARTURES, Served
from tests.unit.serving.flights import DATASETS, FEATURESETS, Departure, Origin, Plane
from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.errors import InvalidValue, UnknownName
from umbel.expr import col
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "tests@example.com"
webhook = Webhook(name="events")
NOW = "2013-12-02T12:00:00Z"
PLANES = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [100, 200], "at": pd.to_datetime([NOW] * 2)})


def planes(version: int = 1, *, erase: bool = True, **options: Any) -> Any:
    @source(webhook.endpoint("planes"), disorder="1d", cdc="upsert", **options)
    @dataset(index=True, version=version)
    class Plane:
        tailnum: str = field(key=True, erase_key=erase)
        seats: int
        at: datetime

    return Plane


def client_of(served: Served, branch: str | None = None) -> Client:
    return Client("http://umbel", branch=branch, transport=served.transport)


def seats(client: Client, *names: str) -> list[Any]:
    return client.lookup("Plane", pd.DataFrame({"tailnum": list(names)}))[0]["seats"].tolist()


def departures(client: Client) -> list[int]:
    requested = pd.DataFrame({"Origin.origin": ["JFK"], "at": pd.to_datetime(["2013-12-01T16:00Z"])})
    return client.query_offline([Origin.origin], [Origin.departures], "at", requested)["Origin.departures"].tolist()


def test_a_clone_has_the_data_at_once(fresh: Served) -> None:
    main = client_of(fresh)
    fresh.log("departures", DEPARTURES)
    main.log("events", "planes", PLANES)
    fresh.process()
    dev = client_of(fresh)
    assert dev.clone_branch("dev", from_branch="main").ok
    assert dev.branch() == "dev"
    assert main.list_branches() == ["main", "dev"]
    assert seats(dev, "N1", "N3") == [100, pd.NA]
    assert departures(dev) == [2]
    assert dev.inspect(Departure)["delay"].tolist() == [30, 10, -5]
    assert len(fresh.deployment.graph(fresh.deployment.catalog.latest()).nodes) == len(fresh.deployment.graph(1).nodes)
    fresh.log("departures", [{"origin": "JFK", "delay": 1, "at": "2013-12-01T15:10:00Z"}])
    fresh.process()
    assert (departures(main), departures(dev)) == ([3], [3])


def test_branches_part_where_they_differ(fresh: Served) -> None:
    main, dev = client_of(fresh), client_of(fresh)
    main.log("events", "planes", PLANES)
    fresh.process()
    dev.clone_branch("dev", "main")
    big = planes(2, erase=False, where=lambda df: df["seats"] > 150)
    report = dev.commit("big ones", datasets=[big], incremental=True).json()
    assert report["changed"] == ["Plane"]
    fresh.process()
    assert seats(dev, "N1", "N2") == [pd.NA, 200]
    assert seats(main, "N1", "N2") == [100, 200]
    main.log("events", "planes", PLANES.assign(seats=[500, 50], at=pd.to_datetime(["2013-12-03"] * 2, utc=True)))
    fresh.process()
    assert seats(main, "N1", "N2") == [500, 50]
    assert seats(dev, "N1", "N2") == [500, 200]
    # main moves on; what the branch has stays
    main.commit("new", datasets=[planes(3, erase=False)], incremental=True)
    fresh.process()
    assert seats(dev, "N1", "N2") == [500, 200]
    assert seats(main, "N1", "N2") == [500, 50]
    assert [each["version"] for each in dev.xray(datasets=["Plane"])["datasets"]] == [2]
    assert [each["version"] for each in main.xray(datasets=["Plane"])["datasets"]] == [3]


def test_the_origin_moves_on_and_the_clone_stays(fresh: Served) -> None:
    main, dev = client_of(fresh), client_of(fresh)
    main.log("events", "planes", PLANES)
    fresh.process()
    dev.clone_branch("dev", "main")
    main.commit("big ones", datasets=[planes(2, erase=False, where=lambda df: df["seats"] > 150)], incremental=True)
    fresh.process()
    assert (seats(main, "N1", "N2"), seats(dev, "N1", "N2")) == ([pd.NA, 200], [100, 200])
    main.log("events", "planes", PLANES.assign(tailnum=["N3", "N4"]))
    fresh.process()
    assert (seats(main, "N3", "N4"), seats(dev, "N3", "N4")) == ([pd.NA, 200], [100, 200])


def test_an_empty_branch(fresh: Served) -> None:
    dev = client_of(fresh)
    dev.init_branch("dev")
    with pytest.raises(UnknownName, match="Plane"):
        seats(dev, "N1")
    dev.commit("the same", datasets=DATASETS, featuresets=FEATURESETS)
    dev.log("events", "planes", PLANES)
    fresh.process()
    assert seats(dev, "N1") == seats(client_of(fresh), "N1") == [100]
    with pytest.raises(InvalidValue, match="dev"):
        dev.init_branch("dev")


def test_a_deleted_branch_is_gone(fresh: Served) -> None:
    dev, other = client_of(fresh), client_of(fresh, "dev")
    dev.clone_branch("dev", "main")
    dev.delete_branch("dev")
    assert (dev.branch(), dev.list_branches()) == ("main", ["main"])
    for call in (lambda: seats(other, "N1"), lambda: other.inspect(Plane), other.lineage, lambda: other.commit("m")):
        with pytest.raises(UnknownName, match=r"branch 'dev' does not exist; branches: main"):
            call()
    other.checkout("dev", init=True)
    assert other.list_branches() == ["main", "dev"]
    with pytest.raises(UnknownName, match="Plane"):
        seats(other, "N1")


def test_erasure_is_of_one_branch_and_sticks(fresh: Served) -> None:
    main, dev = client_of(fresh), client_of(fresh)
    main.commit("erasable", datasets=[planes(2)], incremental=True)
    main.log("events", "planes", PLANES)
    fresh.process()
    dev.clone_branch("dev", "main")
    assert dev.erase("Plane", pd.DataFrame({"tailnum": ["N1"]})).status_code == 200
    fresh.process()
    assert (seats(main, "N1", "N2"), seats(dev, "N1", "N2")) == ([100, 200], [pd.NA, 200])
    assert dev.inspect("Plane")["tailnum"].tolist() == ["N2"]
    main.log("events", "planes", PLANES.assign(seats=[7, 8], at=pd.to_datetime(["2013-12-03"] * 2, utc=True)))
    fresh.process()
    assert (seats(main, "N1", "N2"), seats(dev, "N1", "N2")) == ([7, 8], [pd.NA, 8])
    heir = client_of(fresh)
    heir.clone_branch("heir", "dev")
    assert seats(heir, "N1", "N2") == [pd.NA, 8]
    heir.delete_branch("heir")
    assert dev.erase("Nothing", pd.DataFrame({"tailnum": ["N1"]})).status_code == 404


def test_nan_within_a_key_is_null(fresh: Served) -> None:
    @source(webhook.endpoint("tags"), disorder="1d", cdc="upsert")
    @dataset(index=True)
    class Tagged:
        tags: list[Optional[str]] = field(key=True, erase_key=True)
        at: datetime

    main = client_of(fresh)
    main.commit("tags", datasets=[Tagged], incremental=True)
    for tags in (["a", float("nan")], ["a", "NaN"]):
        main.log("events", "tags", pd.DataFrame({"tags": [tags], "at": [NOW]}))
    fresh.process()
    keys = pd.DataFrame({"tags": [["a", None], ["a", float("nan")], ["a", "NaN"]]})
    assert main.lookup("Tagged", keys)[1].tolist() == [True, True, True]
    main.erase("Tagged", keys.iloc[[1]])
    assert main.lookup("Tagged", keys)[1].tolist() == [False, False, True]


def test_keys_without_columns_are_refused_as_in_process(fresh: Served) -> None:
    mock = MockClient()
    for client in (client_of(fresh), mock):
        client.commit("planes", datasets=[planes(2)], incremental=True)
        with pytest.raises(InvalidValue, match="the columns must be its erase keys \\['tailnum'\\], found \\[\\]"):
            client.erase("Plane", pd.DataFrame({}))
    for keys in (None, "N1", 1):
        answer = fresh.post("/api/v1/dataset/Plane/erase", {"erase_keys": keys})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-type")


def test_what_every_branch_has_erased_is_not_taken_in(fresh: Served) -> None:
    main = client_of(fresh)
    main.commit("erasable", datasets=[planes(2)], incremental=True)
    main.erase("Plane", pd.DataFrame({"tailnum": ["N1"]}))
    main.log("events", "planes", PLANES)
    fresh.process()
    counts = fresh.deployment.catalog.counts()
    assert (counts["Plane", "erased"], counts["Plane", "rows"]) == (1, 1)
    assert seats(main, "N1", "N2") == [pd.NA, 200]


def test_the_guard_of_backfills_knows_all_branches(fresh: Served) -> None:
    dev = client_of(fresh)
    fresh.log("departures", DEPARTURES)
    fresh.process()

    @dataset(index=True)
    class LateOrigin:
        origin: str = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Departure)
        def count(cls, departures: Dataset):
            late = departures.filter(col("delay") > 0)
            return late.groupby("origin").aggregate(n=Count(window=Continuous("1d")))

    dev.init_branch("dev")
    assert dev.commit("the same", DATASETS, FEATURESETS, backfill=False).json()["recomputed"] == []
    report = dev.commit("more", [LateOrigin], incremental=True, preview=True).json()
    assert (report["revision"], report["new"], report["recomputed"]) == (None, ["LateOrigin"], ["LateOrigin"])
    with pytest.raises(InvalidValue, match="LateOrigin"):
        dev.commit("more", [LateOrigin], incremental=True, backfill=False)
    with pytest.raises(UnknownName, match="LateOrigin"):
        dev.inspect("LateOrigin")
    assert dev.commit("more", [LateOrigin], incremental=True).json()["recomputed"] == ["LateOrigin"]
    other = client_of(fresh)
    other.init_branch("other")
    assert other.commit("as dev", [*DATASETS, LateOrigin], backfill=False).json()["recomputed"] == []
