"""No request breaks the server: requests are made from the application's own description of its routes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.serving.conftest import NOON, Served
from umbel.serving.app import ROUTES
from umbel.serving.endpoint import Endpoint

PLACE = {"bucket": "data", "prefix": "in/", "format": "json"}
WORDS = [
    *("Origin.origin", "Origin", "Origin.departures", "origin", "at", "events", "departures", "main", "", "..", "\0"),
    *(NOON, "now", "data", "true", "-1", "1e999", "\ud800", "DelayOfOrigin", "Plane", "a/b", "é", "x" * 300),
]
TEXTS = st.sampled_from(WORDS) | st.text(max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.just({"arn": "nothing"})
)
NAMES = st.sampled_from([*WORDS, "bucket", "prefix", "path", "format", "source", "aws_access_key_id", "suffix"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
SENSIBLE: dict[str, Any] = {
    "inputs": ["Origin.origin"],
    "outputs": ["Origin"],
    "data": {"Origin.origin": ["JFK"], "at": [NOON]},
    "timestamp_column": "at",
    "keys": [{"origin": "JFK"}],
    "webhook": "events",
    "endpoint": "elsewhere",
    "erase_keys": [{"tailnum": "N1"}],
    "branch": "other",
    "value": "v",
    "input": PLACE,
    "output": PLACE,
    "as_of": NOON,
    "fields": ["average"],
}
PATHS = st.sampled_from(["DelayOfOrigin", "Plane", "Departure", "nothing", "%00", "%ff", "a%2Fb", "é", "x" * 2000])
HEADERS = {
    "host": st.sampled_from(["umbel", "localhost:8425", "", "evil.example", "umbel, umbel", "[::1", "\u00e9", "a b"]),
    "origin": st.sampled_from(["http://umbel", "null", "http://evil.example", "", "http://[", "x"]),
    "authorization": st.sampled_from(["Bearer", "Basic YTpi", "Bearer \u00ff", ""]),
    "content-type": st.sampled_from(["application/json", "text/plain", "application/x-protobuf", "", "\u00ff"]),
    "content-encoding": st.sampled_from(["identity", "gzip"]),
    "content-length": st.sampled_from(["0", "-1", "9" * 30, "x"]),
    "x-umbel-branch": st.sampled_from(["main", "nowhere", "", "\u00ff"]),
    "idempotency-key": st.sampled_from(["k", "", "x" * 2000, "\u00ff"]),
    "x-forwarded-for": st.sampled_from(["::1", ",", "\u00ff"]),
}


@st.composite
def bodies(draw: st.DrawFn, endpoint: Endpoint) -> bytes:
    """Draw a body: what the endpoint takes with some members replaced or left out, or nothing of the kind."""
    if draw(st.integers(0, 9)) == 0 or endpoint.body is None:
        return draw(st.binary(max_size=40) | VALUES.map(_json))
    members = msgspec.structs.fields(endpoint.body)
    optional = draw(
        st.lists(st.sampled_from([each.name for each in members if not each.required] or [""]), unique=True)
    )
    body = {name: SENSIBLE.get(name) for name in (*(each.name for each in members if each.required), *optional) if name}
    strange = draw(st.dictionaries(st.sampled_from([*body]), VALUES, max_size=2))
    left_out = draw(st.sets(st.sampled_from([*body]), max_size=1)) if draw(st.integers(0, 9)) == 0 else set()
    return _json({name: value for name, value in (body | strange).items() if name not in left_out})


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a request for one of the application's routes."""
    endpoint = draw(st.sampled_from(ROUTES))
    path = endpoint.path.replace("{name}", draw(PATHS))
    declared = msgspec.structs.fields(endpoint.parameters) if endpoint.parameters else ()
    params = draw(st.dictionaries(st.sampled_from([*(each.name for each in declared), "deep"]), TEXTS, max_size=3))
    headers = {"content-type": endpoint.media[0]} if endpoint.changes else {}
    if draw(st.integers(0, 3)) == 0:
        headers |= draw(st.fixed_dictionaries({}, optional=HEADERS))
    twice = draw(st.sampled_from([*headers] or ["host"])) if draw(st.integers(0, 19)) == 0 else None
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {
        "method": endpoint.method,
        "url": path,
        "params": {name: value.encode("utf-8", "replace").decode() for name, value in params.items()},
        "headers": pairs + [pair for pair in pairs if twice and pair[0] == twice.encode()],
        "content": draw(bodies(endpoint)) if endpoint.changes else None,
    }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


# `idle` lets no job begin: the rest of the server is what it is
@examples(2000, suppress_health_check=[*HealthCheck], derandomize=True)
@given(drawn=requests())
def test_no_request_breaks_the_server(idle: Served, drawn: dict[str, Any]) -> None:
    answer = idle.http.request(**drawn)
    if answer.status_code == 503 and drawn["url"] == "/readyz" and answer.json()["code"] == "unhealthy":
        return  # the deep check: no worker runs
    assert answer.status_code < 500, (drawn, answer.text)
    if answer.status_code >= 400 and drawn["method"] != "HEAD":
        assert set(answer.json()) == {"code", "message", "hint"}
        assert str(idle.deployment.directory) not in answer.text


def test_every_route_is_described() -> None:
    for endpoint in ROUTES:
        assert endpoint.role is not None or endpoint.path in ("/healthz", "/readyz", "/docs"), endpoint
        assert endpoint.body is None or endpoint.changes, endpoint
