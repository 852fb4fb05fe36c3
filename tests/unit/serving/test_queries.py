"""Queries and lookups over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.expr.test_steps import limited, limited_number
from tests.unit.refusals import refusal
from tests.unit.serving.conftest import NOON, Served
from umbel.client import Client
from umbel.errors import InvalidValue
from umbel.expr import col
from umbel.expr.tree import DEEPEST
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.serving import queries

__owner__ = "tests@example.com"
LATER = "2013-12-01T16:00:00Z"


def query(origins: list[Any], **extra: Any) -> dict[str, Any]:
    data = {"Origin.origin": origins}
    outputs = ["Origin.departures", "Origin.average", "Origin.is_late"]
    return {"inputs": ["Origin.origin"], "outputs": outputs, "data": data, "as_of": LATER, **extra}


def test_a_query_answers_columns(flights: Served) -> None:
    answer = flights.post("/api/v1/query", query(["JFK", "LGA", "EWR"]))
    assert answer.status_code == 200
    assert answer.json() == {
        "Origin.departures": [2, 1, 0],
        "Origin.average": [20.0, -5.0, 0.0],
        "Origin.is_late": [True, False, False],
    }


def test_rows_may_be_objects_and_outputs_featuresets(flights: Served) -> None:
    body = query([]) | {"data": [{"Origin.origin": "JFK"}], "outputs": ["Origin"]}
    answer = flights.post("/api/v1/query", body).json()
    assert list(answer) == ["Origin.origin", "Origin.departures", "Origin.average", "Origin.is_late"]
    assert answer["Origin.origin"] == ["JFK"]


def test_without_as_of_it_is_now(flights: Served) -> None:
    body = query(["JFK"])
    del body["as_of"]
    assert flights.post("/api/v1/query", body).json()["Origin.departures"] == [0]


def test_no_rows_have_no_answers(flights: Served) -> None:
    assert flights.post("/api/v1/query", query([])).json()["Origin.departures"] == []


def test_queries_that_come_together_get_their_own_answers(flights: Served) -> None:
    requested = [["JFK", "EWR"][: 1 + n % 2] if n % 3 else ["LGA"] * (n % 7) for n in range(60)]
    expected = {"JFK": 2, "EWR": 0, "LGA": 1}
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda origins: flights.post("/api/v1/query", query(origins)).json(), requested))
    assert [each["Origin.departures"] for each in answers] == [[expected[each] for each in row] for row in requested]


def test_one_bad_query_among_others_spoils_none(flights: Served) -> None:
    bodies = [query(["JFK"]) if n % 4 else query([{"not": "text"}]) for n in range(40)]
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(lambda body: flights.post("/api/v1/query", body).status_code, bodies))
    assert statuses == [200 if n % 4 else 400 for n in range(40)]


def test_large_queries_are_answered_too(flights: Served) -> None:
    answer = flights.post("/api/v1/query", query(["JFK", "LGA"] * 1000))
    assert answer.json()["Origin.departures"] == [2, 1] * 1000


def test_an_offline_query_answers_each_row_as_of_its_instant(flights: Served) -> None:
    body = query(["JFK", "JFK", "LGA"]) | {"timestamp_column": "at"}
    body["data"]["at"] = [NOON, LATER, NOON]
    answer = flights.post("/api/v1/query_offline", body)
    assert answer.json() == {
        "Origin.departures": [1, 2, 0],
        "Origin.average": [30.0, 20.0, 0.0],
        "Origin.is_late": [True, True, False],
        "at": [NOON, LATER, NOON],
    }


def test_the_columns_of_an_offline_query_may_have_other_names(flights: Served) -> None:
    named = query([]) | {"timestamp_column": "at", "feature_to_column_map": {"Origin.origin": "airport"}}
    for data in (
        {"airport": ["JFK", "LGA"], "at": [LATER] * 2},
        [{"airport": each, "at": LATER} for each in ("JFK", "LGA")],
    ):
        answer = flights.post("/api/v1/query_offline", named | {"data": data})
        assert answer.json()["Origin.departures"] == [2, 1], answer.text
    answer = flights.post("/api/v1/query_offline", named | {"data": {"Origin.origin": ["JFK"], "at": [LATER]}})
    assert (answer.status_code, "missing columns ['airport']" in answer.json()["message"]) == (400, True)
    strange = named | {"feature_to_column_map": {"Origin.orgin": "airport"}, "data": data}
    answer = flights.post("/api/v1/query_offline", strange)
    assert (answer.status_code, "which are no inputs" in answer.json()["message"]) == (400, True)


@pytest.mark.parametrize("more", [{}, {"output": {"bucket": "data", "prefix": "x"}}])
def test_instants_do_not_replace_an_output(flights: Served, more: dict[str, Any]) -> None:
    body = query(["JFK"]) | {"timestamp_column": "Origin.average"} | more
    body["data"]["Origin.average"] = [NOON]
    answer = flights.post("/api/v1/query_offline", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-value")
    assert "'Origin.average' has the name of an output" in answer.json()["message"]


def test_the_deepest_expression_is_answered(fresh: Served) -> None:
    @featureset
    class Deep:
        x: float
        total: float = F(sum((col("x") for _ in range(DEEPEST)), col("x")))

    client = Client("http://umbel", transport=fresh.transport)
    client.commit("deep", featuresets=[Deep])
    found = client.query(inputs=[Deep.x], outputs=[Deep.total], input_dataframe=pd.DataFrame({"Deep.x": [1.5, 2.0]}))
    assert found["Deep.total"].to_list() == [1.5 * (DEEPEST + 1), 2.0 * (DEEPEST + 1)]


def test_an_expression_with_repeated_parts_is_answered(fresh: Served) -> None:
    @featureset
    class Limited:
        a: int
        b: int
        score: int = F(limited(col("a"), 5))

    client = Client("http://umbel", transport=fresh.transport)
    client.commit("limited", featuresets=[Limited])
    rows = pd.DataFrame({"Limited.a": [50, 7], "Limited.b": [47, 3]})
    found = client.query(inputs=[Limited.a, Limited.b], outputs=[Limited.score], input_dataframe=rows)
    assert found["Limited.score"].to_list() == [100, limited_number(7, 3, 5)]
    with refusal(InvalidValue, "feature Limited.score", "does not fit in 64 bits"):
        rows.loc[1, "Limited.a"] = 2**62
        client.query(inputs=[Limited.a, Limited.b], outputs=[Limited.score], input_dataframe=rows)


def test_a_lookup_answers_rows(flights: Served) -> None:
    answer = flights.post("/api/v1/dataset/DelayOfOrigin/lookup", {"keys": [{"origin": "JFK"}], "as_of": LATER})
    assert answer.json() == {
        "data": {"origin": ["JFK"], "departures": [2], "average": [20.0], "at": ["2013-12-01T15:00:00Z"]},
        "found": [True],
    }


def test_a_lookup_takes_fields_and_a_timestamp_for_each_key(flights: Served) -> None:
    body = {"keys": {"origin": ["JFK", "JFK", "EWR"]}, "fields": ["departures"], "timestamps": [NOON, LATER, LATER]}
    answer = flights.post("/api/v1/dataset/DelayOfOrigin/lookup", body)
    assert answer.json()["data"]["departures"][:2] == [1, 2]
    assert answer.json()["found"] == [True, True, False]


def test_upserts_are_looked_up_by_key(fresh: Served) -> None:
    rows = [{"tailnum": "N1", "seats": n, "at": f"2013-12-01T1{n}:00:00Z"} for n in range(3)]
    fresh.log("planes", rows)
    fresh.process()
    answer = fresh.post("/api/v1/dataset/Plane/lookup", {"keys": {"tailnum": ["N1", "N2"]}}).json()
    assert answer["data"]["seats"] == [2, None]
    assert answer["found"] == [True, False]
    shown = fresh.http.get("/api/v1/dataset/Plane/inspect?n=2").json()["data"]
    assert shown["seats"] == [1, 2]


def test_extractors_run_and_get_secrets(fresh: Served) -> None:
    body = {"inputs": ["Greeting.name"], "outputs": ["Greeting.text"], "data": {"Greeting.name": ["you", "me"]}}
    assert fresh.post("/api/v1/secret/make", {"value": "?"}).status_code == 200
    refused = fresh.post("/api/v1/query", body)
    assert refused.status_code == 422  # there is no secret of this name yet
    assert ("no secret 'mark'" in refused.text, "make" in refused.text) == (True, False)  # readers see no names
    assert fresh.post("/api/v1/secret/mark", {"value": "!"}).status_code == 200
    assert fresh.post("/api/v1/query", body).json() == {"Greeting.text": ["you!", "me!"]}
    offline = body | {"timestamp_column": "at", "data": {"Greeting.name": ["you"], "at": [NOON]}}
    assert fresh.post("/api/v1/query_offline", offline).json()["Greeting.text"] == ["you!"]


def test_an_alias_of_a_provided_column_has_the_dtype_of_its_type(fresh: Served) -> None:
    @featureset
    class Provided:
        count: Optional[int]

    @featureset
    class Renamed:
        count: Optional[int] = F(Provided.count)

    fresh.post("/api/v1/secret/mark", {"value": "!"})
    client = Client("http://umbel", transport=fresh.transport)
    client.commit("alias", featuresets=[Provided, Renamed], incremental=True)
    frame = pd.DataFrame({"Provided.count": [None, 4], "Greeting.name": ["a", "b"]})
    for others in ([], ["Greeting.text"], ["Provided.count"]):
        found = client.query(["Provided.count", "Greeting.name"], ["Renamed.count", *others], frame)
        assert str(found["Renamed.count"].dtype) == "Int64"
    assert str(found["Provided.count"].dtype) == "float64"


def test_dtypes_of_many_columns_are_left_out(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of a thousand columns would be a header that proxies refuse."""
    fresh.post("/api/v1/secret/mark", {"value": "!"})
    client = Client("http://umbel", transport=fresh.transport)
    body = {"inputs": ["Greeting.name"], "outputs": ["Greeting.text"], "data": {"Greeting.name": ["you"]}}
    length = len(fresh.post("/api/v1/query", body).headers["X-UMBEL-DTYPES"])

    def shown() -> Any:
        return client.query(["Greeting.name"], ["Greeting.text"], pd.DataFrame({"Greeting.name": ["you"]}))

    for most, is_there in ((length, True), (length - 1, False)):
        monkeypatch.setattr(queries, "LONGEST_DTYPES", most)
        assert ("X-UMBEL-DTYPES" in fresh.post("/api/v1/query", body).headers) is is_there
    assert (shown()["Greeting.text"].dtype, shown()["Greeting.text"].tolist()) == ("string", ["you!"])


def test_an_extractor_that_fails_says_so(fresh: Served) -> None:
    fresh.post("/api/v1/secret/mark", {"value": "!"})
    body = {"inputs": ["Greeting.name"], "outputs": ["Greeting.text"], "data": {"Greeting.name": ["nobody"]}}
    answer = fresh.post("/api/v1/query", body)
    assert answer.status_code == 422
    assert "nobody is not somebody" in answer.json()["message"]
    assert answer.json()["code"] == "extractor-refused"


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"inputs": ["Origin.orgin"]}, 400, "did you mean 'origin'"),
        ({"outputs": ["Orgin"]}, 404, "did you mean 'Origin'"),
        ({"outputs": ["Origin.origin", "Greeting.text"]}, 400, "Greeting"),
        ({"inputs": ["Origin"]}, 400, "is a featureset"),
        ({"inputs": "Origin.origin"}, 400, "list of strings"),
        ({"outputs": [3]}, 400, "list of strings"),
        ({"outputs": None}, 400, "list of strings"),
        ({"data": {}}, 400, "missing columns ['Origin.origin']"),
        ({"data": 3}, 400, "expected an object of lists"),
        ({"data": [1, 2]}, 400, "expected an object of lists"),
        ({"data": {"Origin.origin": "JFK"}}, 400, "expected a list"),
        ({"data": {"Origin.origin": [{}]}}, 400, "Origin.origin"),
        ({"data": {"Origin.origin": [None]}}, 400, "null"),
        ({"data": {"Origin.origin": ["a"], "Origin.average": [1, 2]}}, 400, "differ in length"),
        ({"as_of": "yesterday"}, 400, "as_of"),
        ({"as_of": []}, 400, "as_of"),
        ({"as_of": 10**30}, 400, "as_of"),
        ({"log": "yes"}, 400, "'log' must be true or false"),
        ({"log": True, "sampling_rate": 1.5}, 400, "'sampling_rate' must be from 0 to 1"),
        ({"sampling_rate": -0.1}, 400, "'sampling_rate' must be from 0 to 1"),
        ({"sampling_rate": "0.5"}, 400, "'sampling_rate' must be a number"),
        ({"sampling_rate": True}, 400, "'sampling_rate' must be a number"),
        ({"workflow": 7}, 400, "'workflow' must be text"),
        ({"workflow": ""}, 400, "'workflow' must have from 1 to 128"),
        ({"workflow": "a\nb"}, 400, "'workflow' must have from 1 to 128"),
        ({"workflow": "w" * 129}, 400, "'workflow' must have from 1 to 128"),
    ],
)
def test_queries_that_make_no_sense(flights: Served, change: dict[str, Any], status: int, words: str) -> None:
    body = query(["JFK"]) | change
    answer = flights.http.post("/api/v1/query", json=body)
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text
    assert set(answer.json()) == {"code", "message", "hint"}


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("Nothing", {"keys": []}, 404, "Nothing"),
        ("DelayOfOrigin", {}, 400, "lacks 'keys'"),
        ("DelayOfOrigin", {"keys": 7}, 400, "expected an object of lists"),
        ("DelayOfOrigin", {"keys": {"orign": ["JFK"]}}, 400, "is 'orign' meant to be 'origin'"),
        ("DelayOfOrigin", {"keys": {"origin": ["JFK"]}, "fields": ["x"]}, 400, "no field 'x'"),
        ("DelayOfOrigin", {"keys": {"origin": ["JFK"]}, "fields": "x"}, 400, "list of strings"),
        ("DelayOfOrigin", {"keys": {"origin": ["JFK"]}, "timestamps": []}, 400, "1 keys, but 0 timestamps"),
        ("DelayOfOrigin", {"keys": {"origin": ["JFK"]}, "timestamps": "now"}, 400, "must be a list"),
        ("DelayOfOrigin", {"keys": {"origin": ["JFK"]}, "timestamps": [None]}, 400, "timestamps"),
        ("DelayOfOrigin", {"keys": {"origin": ["JFK"]}, "timestamps": [LATER], "as_of": LATER}, 400, "both"),
        ("Departure", {"keys": {"origin": ["JFK"]}}, 400, "no index"),
    ],
)
def test_lookups_that_make_no_sense(flights: Served, name: str, body: Any, status: int, words: str) -> None:
    answer = flights.post(f"/api/v1/dataset/{name}/lookup", body)
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


def test_offline_queries_that_make_no_sense(flights: Served) -> None:
    body = query(["JFK"]) | {"timestamp_column": "at"}
    assert "missing columns ['at']" in flights.post("/api/v1/query_offline", body).json()["message"]
    assert flights.post("/api/v1/query_offline", body | {"input": {"type": "Files"}}).status_code == 400
    body["data"]["at"] = ["no instant"]
    assert "no instant" in flights.post("/api/v1/query_offline", body).json()["message"]


DEEP = b"[" * 1020 + b"]" * 1020


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("query", b'{"inputs":%s,"outputs":[],"data":[]}'),
        ("query", b'{"inputs":[],"outputs":[],"data":[],"log":%s}'),
        ("query_offline", b'{"inputs":[],"outputs":[],"data":[],"timestamp_column":"t","feature_to_column_map":%s}'),
        ("query_offline", b'{"inputs":[],"outputs":[],"timestamp_column":"t","input":%s}'),
        (
            "query_offline",
            b'{"inputs":[],"outputs":[],"timestamp_column":"t","input":{"bucket":"b","prefix":%s}}',
        ),
        ("dataset/Departure/lookup", b'{"keys":[],"timestamps":{"a":%s}}'),
    ],
)
def test_what_is_nested_deeply_is_refused(flights: Served, path: str, body: bytes) -> None:
    """Its text in a message must not be made by Python's own repr, which ends in a RecursionError."""
    answer = flights.http.post(f"/api/v1/{path}", content=body % DEEP, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.text) < 5000


def test_a_long_unknown_name_is_answered_at_once(flights: Served) -> None:
    """Close names are not searched for: that takes the square of its length."""
    answer = flights.post("/api/v1/query", query(["JFK"]) | {"outputs": ["Origin." + "o" * 200_000]})
    assert answer.status_code == 400
    assert "did you mean" not in answer.text
