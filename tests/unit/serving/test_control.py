"""Commits, health, metrics, secrets, inspection; and the client against the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from tests.unit.serving.asgi import serving_admin
from tests.unit.serving.conftest import DEPARTURES, Served
from tests.unit.serving.flights import DATASETS, FEATURESETS, Departure, Greeting, Origin
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.definitions.serde import dump, load
from umbel.errors import InvalidValue, NotSupported, UnknownName
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

PROTOBUF = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        serving_admin(Deployment.at(tmp_path, shards=1)) as transport,
        httpx.Client(transport=transport, base_url="http://umbel") as http,
    ):
        yield http


def test_an_empty_server_is_ready_to_be_committed_to(empty: httpx.Client) -> None:
    assert empty.get("/healthz").json() == {"status": "ok"}
    assert empty.get("/readyz").json() == {"status": "ready, nothing is committed", "revision": 0}
    body = {"inputs": [], "outputs": ["Origin"], "data": {}}
    assert empty.post("/api/v1/query", json=body).status_code == 404
    content = dump(check_commit(DATASETS, FEATURESETS))
    report = empty.post("/api/v1/commit?message=first&preview=true", content=content, headers=PROTOBUF).json()
    assert (report["revision"], report["new"]) == (None, sorted(each.__name__ for each in [*DATASETS, *FEATURESETS]))
    assert empty.get("/readyz").json()["revision"] == 0
    report = empty.post("/api/v1/commit?message=first", content=content, headers=PROTOBUF).json()
    assert report["revision"] == 1
    assert empty.get("/readyz").json() == {"status": "ready", "revision": 1}
    retained = empty.get("/api/v1/commit")
    assert retained.headers["X-UMBEL-REVISION"] == "1"
    assert dump(load(retained.content)) == content
    assert empty.post(
        "/api/v1/query", json=body | {"data": {"Origin.origin": []}, "inputs": ["Origin.origin"]}
    ).is_success


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x0a\x03abc", b"definitions", bytes(range(256))])
def test_bytes_that_are_no_definitions(empty: httpx.Client, content: bytes) -> None:
    answer = empty.post("/api/v1/commit", content=content, headers=PROTOBUF)
    if content:
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-value")
        assert "definitions" in answer.json()["message"]


def test_flags_are_flags(empty: httpx.Client) -> None:
    assert empty.post("/api/v1/commit?preview=maybe", content=b"", headers=PROTOBUF).status_code == 400


def test_a_commit_by_another_process_is_seen(tmp_path: Path) -> None:
    deployment = Deployment.at(tmp_path, shards=1)
    with (
        serving_admin(deployment) as transport,
        httpx.Client(transport=transport, base_url="http://umbel") as http,
    ):
        commit(Deployment.at(tmp_path, shards=1), check_commit(DATASETS, FEATURESETS))
        body: dict[str, Any] = {"webhook": "events", "endpoint": "departures", "data": DEPARTURES}
        assert http.post("/api/v1/log", json=body).status_code == 200  # at once
        deadline = time.monotonic() + 10
        while http.get("/api/v1/lineage").json() == {} and time.monotonic() < deadline:
            time.sleep(0.01)
        assert http.get("/api/v1/lineage").json()["Departure"] == {"kind": "dataset", "reads": ["webhook:events"]}


def test_metrics_are_served(flights: Served) -> None:
    flights.http.get("/healthz")
    answer = flights.http.get("/api/v1/metrics")
    lines = answer.text.splitlines()
    assert 'umbel_dataset_rows{dataset="Departure",outcome="rows"} 3.0' in lines
    assert 'umbel_logged_rows_total{endpoint="departures",webhook="events"} 3.0' in lines
    assert "umbel_revision 1.0" in lines
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("umbel_state_"))
    rows = sum(float(value) for name, value in values.items() if name.startswith("umbel_state_rows"))
    assert rows >= 3
    assert sum(float(value) for name, value in values.items() if 'part="journal"' in name) > 0
    assert values['umbel_state_maintenance{shard="0",work="merge"}'] == "0.0"
    assert any(line.startswith('umbel_source_newest_seconds{source="Departure@1/0#') for line in lines)
    assert any(line.startswith('umbel_request_seconds_count{route="/healthz",status="200"}') for line in lines)


def test_secrets_live_their_life(fresh: Served) -> None:
    path, kind = "/api/v1/secret/token", {"Content-Type": "application/json"}
    assert fresh.http.patch(path, json={"value": "b"}).status_code == 404
    assert fresh.http.delete(path, headers=kind).status_code == 404
    assert fresh.http.post(path, json={"value": 7}).status_code == 400
    assert fresh.http.post(path, json={"value": "a"}).status_code == 200
    assert fresh.http.post(path, json={"value": "b"}).status_code == 400
    assert fresh.http.patch(path, json={"value": "äß"}).status_code == 200
    assert fresh.deployment.vault.get("token") == "äß"
    assert fresh.http.delete(path, headers=kind).status_code == 200
    assert fresh.deployment.vault.names() == []
    key = fresh.deployment.directory / "secret.key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_rows_are_inspected(flights: Served) -> None:
    report = flights.http.get("/api/v1/dataset/DelayOfOrigin/inspect").json()[
        "data"
    ]  # of now, when all has left the window
    assert (sorted(report["origin"]), report["departures"]) == (["JFK", "LGA"], [0, 0])
    assert all(at > "2013-12-01" for at in report["at"])
    assert len(flights.http.get("/api/v1/dataset/DelayOfOrigin/inspect?n=1").json()["data"]["origin"]) == 1
    assert flights.http.get("/api/v1/dataset/Nothing/inspect").status_code == 404
    shown = flights.http.get("/api/v1/dataset/Departure/inspect?n=2").json()["data"]
    assert shown["delay"] == [10, -5]


def test_properties_are_shown(flights: Served) -> None:
    shown = flights.http.get("/api/v1/xray").json()
    assert [each["name"] for each in shown["datasets"]] == ["Departure", "Plane", "DelayOfOrigin"]
    assert shown["datasets"][2]["reads"] == ["Departure"]
    params = {"featuresets": ["Origin"], "properties": ["owner", "reads"]}
    assert flights.http.get("/api/v1/xray", params=params).json() == {
        "datasets": [],
        "featuresets": [{"name": "Origin", "owner": "tests@example.com", "reads": ["DelayOfOrigin"]}],
    }
    assert flights.http.get("/api/v1/xray?datasets=Plan").status_code == 404
    unknown = flights.http.get("/api/v1/xray?properties=owner&properties=feilds")
    assert (unknown.status_code, "did you mean 'fields'?" in unknown.json()["message"]) == (404, True)


def test_the_client_does_all_of_it(fresh: Served) -> None:
    client = Client("http://umbel", transport=fresh.transport)
    frame = pd.DataFrame(DEPARTURES).assign(ratio=[0.5, None, None])
    assert client.commit("again", datasets=DATASETS, featuresets=FEATURESETS).json()["new"] == []
    assert client.log("events", "departures", frame).ok
    fresh.process()
    requested = pd.DataFrame({"Origin.origin": ["JFK", "EWR"], "at": pd.to_datetime(["2013-12-01T16:00Z"] * 2)})
    answer = client.query_offline([Origin.origin], [Origin.departures, Origin.is_late], "at", requested)
    assert isinstance(answer, pd.DataFrame)
    assert answer["Origin.departures"].tolist() == [2, 0]
    assert client.query([Origin.origin], [Origin], requested[["Origin.origin"]])["Origin.departures"].tolist() == [0, 0]
    rows, found = client.lookup(
        "DelayOfOrigin", requested[["Origin.origin"]].set_axis(["origin"], axis=1), timestamps=requested["at"]
    )
    assert (rows["departures"].tolist()[0], found.tolist()) == (2, [True, False])
    assert client.inspect(Departure, n=5)["delay"].tolist() == [30, 10, -5]
    assert client.list_branches() == ["main"]
    assert client.add_secret("mark", "!").ok
    with pytest.raises(NotSupported, match="write-only"):
        client.get_secret("mark")
    assert "Origin" in client.lineage()
    with pytest.raises(InvalidValue, match="erase"):
        client.erase("Plane", pd.DataFrame({"tailnum": ["N1"]}))
    client.checkout("dev")
    with pytest.raises(UnknownName, match="branch 'dev' does not exist"):
        client.inspect(Departure)


def test_an_incremental_commit_keeps_the_rest(fresh: Served) -> None:
    client = Client("http://umbel", transport=fresh.transport)
    report = client.commit("less", datasets=[Departure], featuresets=[], incremental=True).json()
    assert (report["removed"], report["unchanged"]) == ([], sorted(each.__name__ for each in [*DATASETS, *FEATURESETS]))
    report = client.commit("less", datasets=DATASETS, featuresets=[Origin]).json()
    assert report["removed"] == ["Greeting"]
    with pytest.raises(InvalidValue, match="Greeting"):
        client.query([Greeting.name], [Greeting.text], pd.DataFrame({"Greeting.name": ["you"]}))
