"""The client: what it sends, and what it makes of the answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from enum import Enum
from types import SimpleNamespace
from typing import Optional

import httpx
import numpy as np
import pandas as pd
import pytest

from tests.unit.client.server import Server
from tests.unit.refusals import refusal
from umbel.client import Client
from umbel.client.connection import RequestFailed, Unreachable
from umbel.client.plain import columns, plain
from umbel.connectors import S3, Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal, struct
from umbel.errors import InvalidValue, Overloaded, UnknownName
from umbel.featuresets import feature as F
from umbel.featuresets import featureset

__owner__ = "test@umbel.dev"

JAN = datetime(2024, 1, 1, tzinfo=UTC)
webhook = Webhook(name="hook")


@struct
class Point:
    x: float
    y: Optional[int]


@source(webhook.endpoint("things"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Things:
    uid: int = field(key=True, erase_key=True)
    price: Decimal[2]
    weight: float
    raw: bytes
    where: Point
    marks: dict[str, int]
    tags: list[str]
    t: datetime


@featureset
class Thing:
    uid: int
    price: Optional[Decimal[2]] = F(Things.price)
    weight: float = F(Things.weight, default=-1.0)
    where: Optional[Point] = F(Things.where)
    tags: list[str] = F(Things.tags, default=["none"])
    seen: Optional[datetime] = F(Things.t)


ROWS = pd.DataFrame(
    {
        "uid": [1, 2],
        "price": [Number("1.50"), Number("2.25")],
        "weight": pd.array([1.5, np.inf], dtype="Float64"),
        "raw": [b"\x00\xff", b""],
        "where": [Point(1.0, 2), {"x": 2.5, "y": None}],
        "marks": [{"a": 1}, {}],
        "tags": [["x", "y"], []],
        "t": [JAN, JAN + timedelta(microseconds=1)],
    }
)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def client(server):
    with Client("http://server/", "token", transport=server.transport) as client:
        client.commit(message="things", datasets=[Things], featuresets=[Thing])
        yield client


def body(server):
    """The last body sent."""
    return json.loads(next(each.content for each in reversed(server.requests) if each.content))


def test_commit(server, client):
    request = server.requests[0]
    assert (request.method, request.url.path) == ("POST", "/api/v1/commit")
    assert dict(request.url.params) == {
        "message": "things",
        "preview": "false",
        "incremental": "false",
        "backfill": "true",
    }
    assert request.headers["authorization"] == "Bearer token"
    assert request.headers["x-umbel-branch"] == "main"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert list(server.branch.definitions.datasets) == ["Things"]


def test_an_incremental_commit_is_checked_against_what_the_server_has(server, client):
    @featureset
    class More:
        uid: int
        weight: Optional[float] = F(Things.weight)

    answer = client.commit(message="more", featuresets=[More], incremental=True)
    assert (answer.status_code, answer.ok, answer.json()) == (200, True, {"revision": 1})
    assert list(server.branch.definitions.featuresets) == ["Thing", "More"]


def test_errors_are_found_before_anything_is_sent(server, client):
    sent = len(server.requests)
    with pytest.raises(ValueError, match="given twice"):
        client.commit(message="twice", datasets=[Things, Things])
    assert len(server.requests) == sent


def test_values_of_all_kinds_arrive_and_come_back(server, client):
    assert client.log("hook", "things", ROWS).ok
    rows, found = client.lookup(Things, pd.DataFrame({"uid": [1, 2, 3]}))
    expected, _ = server.mock.lookup(Things, pd.DataFrame({"uid": [1, 2, 3]}))
    pd.testing.assert_frame_equal(rows, expected)
    assert found.tolist() == [True, True, False]
    assert rows["where"][0] == Point(1.0, 2)
    assert rows["raw"].tolist() == [b"\x00\xff", b"", pd.NA]
    assert rows["weight"].tolist() == [1.5, np.inf, pd.NA]


def test_query(server, client):
    client.log("hook", "things", ROWS)
    frame = pd.DataFrame({"Thing.uid": [1, 3]})
    found = client.query([Thing.uid], [Thing], frame, workflow="w")
    assert {name: body(server)[name] for name in ("inputs", "outputs", "data", "workflow", "log")} == {
        "inputs": ["Thing.uid"],
        "outputs": ["Thing"],
        "data": {"Thing.uid": [1, 3]},
        "workflow": "w",
        "log": False,
    }
    pd.testing.assert_frame_equal(found, server.mock.query([Thing.uid], [Thing], frame))
    assert found["Thing.where"][0] == Point(1.0, 2)
    assert str(found["Thing.seen"].dtype) == "datetime64[ns, UTC]"


def test_features_named_by_text_have_their_types_too(server, client):
    client.log("hook", "things", ROWS)
    frame = pd.DataFrame({"Thing.uid": ["1"]})
    found = client.query(["Thing.uid"], ["Thing.price", "Thing.seen"], frame)
    assert found["Thing.price"].tolist() == [Number("1.50")]
    assert found["Thing.seen"].tolist() == [JAN]
    requested = [request.method for request in server.requests].count("GET")
    client.query(["Thing.uid"], ["Thing.price"], frame)
    assert [request.method for request in server.requests].count("GET") == requested, "the types are kept"


def test_inputs_are_checked_before_they_are_sent(client):
    with pytest.raises(InvalidValue, match=r"feature Thing\.uid: cannot cast to int"):
        client.query([Thing.uid], [Thing.price], pd.DataFrame({"Thing.uid": ["x"]}))
    with pytest.raises(InvalidValue, match="misses columns"):
        client.query([Thing.uid], [Thing.price], pd.DataFrame({"uid": [1]}))


def test_query_offline(server, client):
    client.log("hook", "things", ROWS)
    frame = pd.DataFrame({"who": [1, 1], "at": [JAN, JAN - timedelta(days=1)]})
    renamed = {Thing.uid: "who"}
    found = client.query_offline([Thing.uid], [Thing.price], "at", frame, feature_to_column_map=renamed)
    pd.testing.assert_frame_equal(
        found, server.mock.query_offline([Thing.uid], [Thing.price], "at", frame, feature_to_column_map=renamed)
    )
    for none in (frame.head(0), pd.DataFrame()):
        pd.testing.assert_frame_equal(
            client.query_offline([Thing.uid], [Thing.price], "at", none, feature_to_column_map=renamed),
            server.mock.query_offline([Thing.uid], [Thing.price], "at", none, feature_to_column_map=renamed),
        )
    with pytest.raises(Exception, match="'when' is not in"):
        client.query_offline([Thing.uid], [Thing.price], "when", frame)
    with pytest.raises(Exception, match="input_dataframe or input_s3"):
        client.query_offline([Thing.uid], [Thing.price], "at")


def test_an_offline_query_on_files_is_a_job(server, client):
    bucket = S3(name="s3").bucket("data", prefix="in", format="parquet")
    job = client.query_offline([Thing.uid], [Thing.price], "at", input_s3=bucket)
    assert body(server)["input"]["bucket"] == "data"
    assert client.track_offline_query(job["request_id"]) == {"request_id": "7", "status": "done"}
    assert client.cancel_offline_query("7")["status"] == "done"
    assert server.requests[-1].url.path == "/api/v1/query_offline/cancel"


def test_lookups_as_of_instants_and_of_one_field(server, client):
    client.log("hook", "things", ROWS)
    weights, found = client.lookup(
        "Things", pd.DataFrame({"uid": [1, 1]}), ["weight"], pd.Series([JAN, JAN - timedelta(days=1)])
    )
    assert body(server) == {
        "keys": {"uid": [1, 1]},
        "fields": ["weight"],
        "timestamps": ["2024-01-01T00:00:00Z", "2023-12-31T00:00:00Z"],
    }
    assert (weights.name, weights.tolist(), found.tolist()) == ("weight", [1.5, pd.NA], [True, False])
    with pytest.raises(ValueError, match="keys must be a pandas DataFrame"):
        client.lookup("Things", [1])
    with pytest.raises(KeyError, match="'Nothing' is not committed"):
        client.lookup("Nothing", pd.DataFrame({"uid": [1]}))


def test_rows_are_sent_in_batches(server, client):
    many = pd.concat([ROWS.head(1)] * 5).assign(uid=range(5))
    before = len(server.requests)
    client.log("hook", "things", many, batch_size=2)
    assert [len(json.loads(each.content)["data"]["uid"]) for each in server.requests[before:]] == [2, 2, 1]
    assert client.log("hook", "things", many.head(0)).status_code == 200
    with pytest.raises(ValueError, match="batch_size"):
        client.log("hook", "things", many, batch_size=0)


def test_a_batch_without_an_answer_is_sent_again_under_the_same_key(monkeypatch):
    monkeypatch.setattr("umbel.client.connection.PAUSES", (0.0, 0.0))
    keys = []

    def answer(request):
        keys.append(request.headers["idempotency-key"])
        if len(keys) == 1:
            raise httpx.ReadTimeout("lost", request=request)
        if len(keys) == 2:
            return httpx.Response(503, json={"code": "transient", "message": "busy"})
        return httpx.Response(200, json={})

    client = Client("http://server", transport=httpx.MockTransport(answer))
    assert client.log("hook", "things", ROWS.head(1)).ok
    assert len(keys) == 3
    assert len(set(keys)) == 1
    keys.clear()
    client.log("hook", "things", ROWS, batch_size=1)
    assert len(keys) == 4
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [("7", 7, 8.75), ("9999", 30, 37.5), ("", 5, 6.25), ("soon", 5, 6.25), ("0", 0.1, 0.125)],
)
def test_an_overloaded_server_is_called_again_when_it_says(monkeypatch, retry_after, least, most):
    waited, keys = [], []
    monkeypatch.setattr("umbel.client.connection.time", SimpleNamespace(sleep=waited.append))

    def answer(request):
        keys.append(request.headers["idempotency-key"])
        if len(keys) <= 5:
            return httpx.Response(
                429, json={"code": "overloaded", "message": "full"}, headers={"Retry-After": retry_after}
            )
        return httpx.Response(200, json={})

    assert Client("http://server", transport=httpx.MockTransport(answer)).log("hook", "things", ROWS.head(1)).ok
    assert len(set(keys)) == 1
    assert len(waited) == 5
    assert all(least <= each <= most for each in waited)


def test_retries_end_where_a_server_stays_overloaded(monkeypatch):
    waited = []
    monkeypatch.setattr("umbel.client.connection.time", SimpleNamespace(sleep=waited.append))
    refused = httpx.Response(429, text="too many requests", headers={"Retry-After": "20"})
    client = Client("http://server", transport=httpx.MockTransport(lambda _: refused))
    with pytest.raises(Overloaded, match="429: too many requests"):
        client.log("hook", "things", ROWS.head(1))
    assert 200 < sum(waited) <= 300


def test_refusals_keep_their_kind(client):
    for rows in (ROWS, ROWS.head(0)):
        with pytest.raises(ValueError, match="answered 400: no dataset has a source for endpoint") as caught:
            client.log("hook", "nowhere", rows)
        assert isinstance(caught.value, InvalidValue)
    with pytest.raises(UnknownName, match="branch 'nowhere' does not exist"):
        Client("http://server", transport=Server().transport, branch="nowhere").commit(message="x")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx.Response(500, text="broken"), "500: broken"),
        (httpx.Response(422, json={"code": "of-another-version", "message": "no"}), "422: no"),
        (httpx.Response(400, json=["no"]), "400"),
    ],
)
def test_other_failures(response, message):
    client = Client("http://server", transport=httpx.MockTransport(lambda request: response))
    with pytest.raises(RequestFailed, match=message):
        client.list_branches()


def test_a_server_that_is_busy():
    client = Client("http://server", transport=httpx.MockTransport(lambda request: httpx.Response(503)))
    with pytest.raises(Unreachable, match="503: Service Unavailable"):
        client.list_branches()


def test_a_server_that_cannot_be_reached():
    def refuse(request):
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(Unreachable, match=r"GET http://server/api/v1/branch/list failed: ConnectError refused"):
        Client("http://server", transport=httpx.MockTransport(refuse)).list_branches()


def test_branches(server, client):
    client.init_branch("dev")
    assert client.branch() == "dev"
    client.checkout("main")
    client.clone_branch("copy", "main")
    assert client.list_branches() == ["main", "dev", "copy"]
    client.delete_branch("copy")
    assert client.branch() == "main"
    client.checkout("later", init=True)
    assert client.list_branches() == ["main", "dev", "later"]
    with pytest.raises(ValueError, match="branch name"):
        client.init_branch("with space")


def test_inspect_erase_secrets_and_the_rest(server, client):
    client.log("hook", "things", ROWS)
    assert client.inspect(Things, n=1)["uid"].tolist() == [1]
    assert client.erase(Things, pd.DataFrame({"uid": [1]})).ok
    assert client.inspect("Things")["uid"].tolist() == [2]
    client.add_secret("key", "a")
    client.update_secret("key", "b")
    assert server.mock.get_secret("key") == "b"
    with pytest.raises(NotImplementedError, match="write-only"):
        client.get_secret("key")
    client.delete_secret("key")
    with pytest.raises(KeyError, match="key"):
        server.mock.get_secret("key")
    assert client.lineage() == {"edges": []}
    assert client.xray(datasets=[Things, "Others"]) == {"asked": ["Things", "Others"]}
    assert client.is_integration_client()


class Colour(str, Enum):  # noqa: UP042  `str` of a member of a StrEnum is its value
    RED = "red"


def test_plain_values():
    class Odd:
        pass

    assert plain(np.array([1.0, np.nan])) == [1.0, "NaN"]
    assert plain(np.int64(3)) == 3
    assert json.dumps(plain({Colour.RED: [Colour.RED]})) == '{"red": ["red"]}'
    assert plain({"at": JAN, "none": pd.NaT, "p": Point(1.0, pd.NA)}) == {
        "at": "2024-01-01T00:00:00+00:00",
        "none": None,
        "p": {"x": 1.0, "y": None},
    }
    with pytest.raises(TypeError, match="Odd"):
        plain(Odd())
    with refusal(TypeError, "column 'b'", "Odd", "(row 1)"):
        columns(pd.DataFrame({"a": [1, 2], "b": [None, Odd()]}))
    frame = pd.DataFrame({"i": [1.0, None], "f": pd.array([1.5, None], dtype="Float64"), "t": [JAN, None]})
    assert columns(frame) == {"i": [1.0, None], "f": [1.5, None], "t": ["2024-01-01T00:00:00+00:00", None]}


def test_one_thing_is_added_to_what_is_there(server, client):
    @featureset
    class More:
        uid: int
        weight: Optional[float] = F(Things.weight)

    assert client.add(More).ok
    assert list(server.branch.definitions.featuresets) == ["Thing", "More"]


def test_the_url_of_a_server():
    requested = []

    def answer(request):
        requested.append(str(request.url))
        return httpx.Response(200, json={"branches": ["main"]})

    for url in ("localhost:8425", "http://localhost:8425/", "https://umbel.example.com/at"):
        Client(url, transport=httpx.MockTransport(answer)).list_branches()
    path = "/api/v1/branch/list"
    assert requested == [f"http://localhost:8425{path}"] * 2 + [f"https://umbel.example.com/at{path}"]
    for url in (None, ""):
        with pytest.raises(TypeError, match="url"):
            Client(url)
