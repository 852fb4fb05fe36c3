"""The description of the HTTP interface: complete, valid, and true of what the server answers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.unit.serving.conftest import Served
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.definitions.serde import dump
from umbel.serving.app import ROUTES
from umbel.serving.endpoint import Endpoint
from umbel.serving.openapi import document

FIRST = {"POST /api/v1/init": (), "POST /api/v1/delete": ("POST /api/v1/init",)}
"""Requests that must come before."""
FIRST |= {f"{method} /api/v1/secret/{{name}}": ("POST /api/v1/secret/{name}",) for method in ("PATCH", "DELETE")}
QUERY = {"GET /api/v1/progress": {"webhook": "events", "endpoint": "departures"}}
REFUSED = {
    "GET /api/v1/query_offline/status": 404,  # there is no such job
    "POST /api/v1/query_offline/cancel": 404,
    "POST /api/v1/dataset/{name}/erase": 400,  # the dataset of the test has no erase keys
}


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.fixture(scope="module")
def description(flights: Served) -> dict[str, Any]:
    answer = flights.http.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


def operation(description: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    return description["paths"][endpoint.path][endpoint.method.lower()]


def schemas(node: Any) -> list[dict[str, Any]]:
    """Return the schemas in a document: those of bodies, parameters and components."""
    if isinstance(node, list):
        return [each for inner in node for each in schemas(inner)]
    if not isinstance(node, dict):
        return []
    own = [node["schema"]] if "schema" in node else []
    return own + [each for name, inner in node.items() if name not in ("schema", "example") for each in schemas(inner)]


def test_the_description_is_openapi(description: dict[str, Any]) -> None:
    assert description["openapi"] == "3.1.0"
    assert set(description) == {"openapi", "info", "paths", "components"}
    every = [*schemas(description["paths"]), *description["components"]["schemas"].values()]
    assert len(every) > 50
    for schema in every:
        jsonschema_rs.meta.validate(schema)
    identities = [each["operationId"] for methods in description["paths"].values() for each in methods.values()]
    assert len(set(identities)) == len(identities) == len(ROUTES)


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(description)))
    assert references == {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}


@pytest.mark.parametrize("endpoint", ROUTES, ids=named)
def test_every_route_is_described(description: dict[str, Any], endpoint: Endpoint) -> None:
    found = operation(description, endpoint)
    assert found["summary"]
    described = {each["name"] for each in found["parameters"] if each["in"] == "path"}
    assert described == set(re.findall(r"\{(\w+)\}", endpoint.path))
    assert found["security"] == ([] if endpoint.role is None else [{"token": []}])
    for media, content in found.get("requestBody", {"content": {}})["content"].items():
        assert media in endpoint.media
        if media == "application/json":
            validator = jsonschema_rs.validator_for({**content["schema"], "components": description["components"]})
            validator.validate(content["example"])
            assert not validator.is_valid({}), "a body has required members"


def sent(served: Served, description: dict[str, Any], endpoint: Endpoint) -> Any:
    """Send the example of a route."""
    found = operation(description, endpoint)
    path = endpoint.path
    for each in found["parameters"]:
        if each["in"] == "path":
            path = path.replace("{" + each["name"] + "}", each["schema"]["examples"][0])
    required = {each["name"]: "7" for each in found["parameters"] if each["in"] == "query" and each["required"]}
    content: Any = None
    media = next(iter(found.get("requestBody", {"content": {"application/json": {}}})["content"]))
    if "requestBody" in found:
        content = json.dumps(found["requestBody"]["content"][media].get("example"))
    if media == "application/x-protobuf":
        content = dump(check_commit(DATASETS, FEATURESETS))
    headers = {"Content-Type": media} if endpoint.changes else {}
    params = required | QUERY.get(named(endpoint), {})
    return served.http.request(endpoint.method, path, params=params, content=content, headers=headers)


@pytest.mark.parametrize("endpoint", ROUTES, ids=named)
def test_examples_are_answered_as_described(fresh: Served, description: dict[str, Any], endpoint: Endpoint) -> None:
    by_name = {named(each): each for each in ROUTES}
    for before in FIRST.get(named(endpoint), ()):
        assert sent(fresh, description, by_name[before]).status_code == 200
    answer = sent(fresh, description, endpoint)
    status = REFUSED.get(named(endpoint), 200)
    assert answer.status_code == status, answer.text
    found = operation(description, endpoint)["responses"]["200" if status == 200 else "default"]["content"]
    (media,) = found
    assert answer.headers["content-type"].partition(";")[0] == media
    if media == "application/json":
        schema = {**found[media]["schema"], "components": description["components"]}
        jsonschema_rs.validator_for(schema).validate(answer.json())


def test_deep_readiness_is_described(flights: Served, description: dict[str, Any]) -> None:
    found = flights.http.get("/readyz?deep").json()
    schema = {"$ref": "#/components/schemas/Readiness", "components": description["components"]}
    jsonschema_rs.validator_for(schema).validate(found)
    assert set(found) > {"worker", "lag", "status", "revision"}


def test_every_struct_forbids_what_it_does_not_know_when_it_is_made() -> None:
    """A report of the runtime with a new member fails in tests rather than lose it silently."""
    types = [each for endpoint in ROUTES for each in endpoint.answers if isinstance(each, type)]
    structs = [each for each in types if issubclass(each, msgspec.Struct)]
    assert len(structs) > 10
    for each in structs:
        with pytest.raises(TypeError, match="Unexpected keyword"):
            each(**{"unknown member": 1})


def test_a_route_with_another_body_is_described_by_it() -> None:
    class Shape(msgspec.Struct):
        """A shape."""

        side: int

    async def shape(_: Any) -> Shape:
        """Return a shape."""
        return Shape(1)

    shape.__annotations__["return"] = Shape
    found = document([Endpoint("GET", "/shape", shape, None)])
    assert found["components"]["schemas"]["Shape"]["properties"] == {"side": {"type": "integer"}}


def test_the_page_runs_nothing_but_its_own_script(flights: Served) -> None:
    answer = flights.http.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["content-security-policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:|//\w|innerHTML|src=|\son\w+=", answer.text)


def test_the_description_needs_a_token_where_reading_does_and_the_page_none(flights: Served) -> None:
    unknown = {"Authorization": "Bearer none"}
    answer = flights.http.get("/openapi.json", headers=unknown)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert flights.http.get("/docs", headers=unknown).text == flights.http.get("/docs").text
