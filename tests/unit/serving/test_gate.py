"""The gate before every endpoint: hosts, origins, content types, tokens and roles, as a browser, a stranger or a client asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cloudpickle
import httpx
import pytest

from tests.deployed import wait_until
from tests.unit.serving.asgi import serving
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.catalog.audit import AuditLog
from umbel.catalog.tokens import Role, Tokens
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.serving import gate
from umbel.serving.app import ROUTES, application
from umbel.serving.attempts import ADDRESSES, MOST, WITHIN, Attempts
from umbel.serving.endpoint import Endpoint
from umbel.serving.policy import Policy

JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
QUERY = {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": ["JFK"]}}
LOG = {"webhook": "events", "endpoint": "departures", "data": []}


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[tuple[httpx.Client, Deployment]]:
    """Run a server with flights committed, for clients that have no token."""
    deployment = Deployment.at(folder, shards=1)
    commit(deployment, check_commit(DATASETS, FEATURESETS))
    with (
        serving(application(deployment, policy=Policy(**options))) as transport,
        httpx.Client(transport=transport, base_url="http://localhost:8425") as http,
    ):
        yield http, deployment
    deployment.store.close()
    deployment.catalog.close()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """Return a server on the loopback address, and a token of each role.

    Attempts with wrong tokens count as a minute apart: the tests make more of them than are allowed.
    """
    clock = count(0.0, WITHIN)
    with ExitStack() as stack:
        with patch.object(gate, "Attempts", lambda: Attempts(lambda: next(clock))):
            http, deployment = stack.enter_context(served(tmp_path_factory.mktemp("local")))
        tokens = Tokens(deployment.catalog)
        yield http, {role.label: tokens.create(role.label, role) for role in Role}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def requested(http: httpx.Client, endpoint: Endpoint, headers: dict[str, str]) -> httpx.Response:
    """Ask an endpoint with nothing that it would take: who is admitted is refused for that."""
    path = endpoint.path.replace("{name}", "Nothing")
    kind = {"Content-Type": endpoint.media[0]} if endpoint.changes else {}
    return http.request(endpoint.method, path, headers={**kind, **headers}, content=b"" if endpoint.changes else None)


@pytest.mark.parametrize("endpoint", ROUTES, ids=lambda it: f"{it.method} {it.path}")
def test_each_endpoint_needs_its_role(local: Any, endpoint: Endpoint) -> None:
    http, tokens = local
    for role in Role:
        answer = requested(http, endpoint, bearer(tokens[role.label]))
        is_admitted = role >= (endpoint.role or Role.READER)
        assert (answer.status_code == 403) == (not is_admitted), answer.text
        assert answer.status_code != 401
        if not is_admitted:
            assert answer.json()["code"] == "forbidden"
    is_open = endpoint.role is None or endpoint.role <= Role.WRITER
    assert (requested(http, endpoint, {}).status_code == 401) == (not is_open)
    assert requested(http, endpoint, bearer("umbel_ab_cd")).status_code == (200 if endpoint.role is None else 401)


ADMIN_ONLY = {
    "erase",
    "replay",
    "commit",
    "branch init",
    "branch delete",
    "secret add",
    "secret update",
    "secret delete",
}


def test_what_changes_the_deployment_is_for_admins_and_audited() -> None:
    acting = [each for each in ROUTES if each.role == Role.ADMIN and not each.path.endswith("/plan")]  # changes nothing
    assert {each.action for each in acting} == ADMIN_ONLY
    assert all(each.role == Role.ADMIN for each in ROUTES if each.action)


BOMB = """
import pathlib
class Bomb:
    def __reduce__(self):
        return (pathlib.Path({path!r}).touch, ())
"""


@pytest.mark.parametrize("preview", ["true", "false"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer umbel_ab_cd"},
        {"Authorization": "Basic YTpi"},
        {"as": "reader"},
        {"as": "writer"},
        {"as": "admin", "Origin": "http://evil.example"},
        {"as": "admin", "Origin": "null"},
        {"as": "admin", "Origin": "http://localhost:3000"},
        {"as": "admin", "Host": "evil.example"},
        {"as": "admin", "Sec-Fetch-Site": "cross-site"},
        {"as": "admin", "Content-Type": "text/plain"},
        {"as": "admin", "Content-Type": ""},
    ],
)
def test_no_pickle_is_opened_before_the_gate_is_passed(
    local: Any, tmp_path: Path, headers: dict[str, str], preview: str
) -> None:
    http, tokens = local
    target = tmp_path / "touched"
    module: dict[str, Any] = {}
    exec(BOMB.format(path=str(target)), module)
    proof = bearer(tokens[headers["as"]]) if "as" in headers else {}
    sent = {**PROTOBUF, **proof, **{name: value for name, value in headers.items() if name != "as"}}
    answer = http.post(
        "/api/v1/commit", params={"preview": preview}, content=cloudpickle.dumps(module["Bomb"]()), headers=sent
    )
    assert answer.status_code in (401, 403, 415)
    assert not target.exists()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8425", "[::1]:8425", "localhost."])
def test_names_of_the_loopback_address_are_answered(local: Any, host: str) -> None:
    assert local[0].post("/api/v1/query", json=QUERY, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("0.0.0.0:8425", 403),
        ("169.254.169.254", 403),
        ("", 400),
        ("localhost@evil.example", 400),
        ("localhost, evil.example", 400),
        ("http://localhost", 400),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/lineage", "/api/v1/metrics", "/readyz?deep=true"])
def test_other_names_are_not(local: Any, host: str, status: int, path: str) -> None:
    assert local[0].get(path, headers={"Host": host}).status_code == status


def test_health_is_for_everybody_who_can_ask(local: Any) -> None:
    for path in ("/healthz", "/readyz"):
        assert local[0].get(path, headers={"Host": "probe.example", "Origin": "null"}).status_code == 200


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Content-Type", "Content-Length"])
def test_a_header_that_is_there_twice_is_refused(local: Any, name: str) -> None:
    values = {"Host": "localhost", "Origin": "http://localhost:8425", "Content-Type": "application/json"}
    value = values.get(name, "2").encode()
    headers = [(b"Host", b"localhost:8425"), (b"Content-Type", b"application/json"), (name.encode(), value)]
    headers += [(name.encode(), value)] if name in ("Origin", "Authorization", "Content-Length") else []
    answer = local[0].post("/api/v1/query", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-value")
    assert "twice" in answer.json()["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:8425.evil.example"},
        {"Origin": "http://localhost:8425@evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_refused(local: Any, headers: dict[str, str]) -> None:
    http, tokens = local
    for proof in ({}, bearer(tokens["admin"])):
        answer = http.post("/api/v1/log", json=LOG, headers={**headers, **proof})
        assert (answer.status_code, answer.json()["code"]) == (403, "origin-not-allowed")
        assert http.get("/api/v1/lineage", headers={**headers, **proof}).status_code == 403
    assert http.post("/api/v1/log", json=LOG, headers={"Origin": "http://localhost:8425"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_refused(local: Any, kind: str) -> None:
    for path in ("/api/v1/log", "/api/v1/query_offline/cancel?request_id=7"):
        assert local[0].post(path, content=b"{}", headers={"Content-Type": kind}).status_code == 415


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"])
def test_what_a_proxy_passes_on_is_not_of_this_machine(local: Any, header: str) -> None:
    answer = local[0].post("/api/v1/query", json=QUERY, headers={header: "127.0.0.1"})
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    "options",
    [
        {"requires_token": True},
        {"is_behind_proxy": True},
        {"host": "0.0.0.0", "tls_cert": "c", "tls_key": "k"},
        {"host": "192.0.2.7", "tls_cert": "c", "tls_key": "k"},
    ],
)
def test_elsewhere_everything_needs_a_token(tmp_path: Path, options: dict[str, Any]) -> None:
    with served(tmp_path, **options) as (http, deployment):
        reader = bearer(Tokens(deployment.catalog).create("r", Role.READER))
        for endpoint in ROUTES:
            if endpoint.role is not None:
                assert requested(http, endpoint, {}).status_code == 401, endpoint
        assert http.post("/api/v1/query", json=QUERY, headers=reader).status_code == 200
        assert http.post("/api/v1/log", json=LOG, headers=reader).status_code == 403


def test_names_and_pages_can_be_allowed(tmp_path: Path) -> None:
    with served(tmp_path, allowed_hosts=("Features.example",), is_behind_proxy=True) as (http, deployment):
        proof = bearer(Tokens(deployment.catalog).create("r", Role.READER))
        own = {"Host": "features.example", "Origin": "https://features.example"}
        assert http.post("/api/v1/query", json=QUERY, headers=proof | own).status_code == 200
        other = own | {"Origin": "https://features.example.evil"}
        assert http.post("/api/v1/query", json=QUERY, headers=proof | other).status_code == 403


def test_a_revoked_token_is_refused_within_a_second_or_so(tmp_path: Path) -> None:
    with served(tmp_path) as (http, deployment):
        tokens = Tokens(deployment.catalog)
        proof = bearer(tokens.create("gone", Role.READER))
        assert http.get("/api/v1/lineage", headers=proof).status_code == 200
        tokens.revoke("gone")
        wait_until(lambda: http.get("/api/v1/lineage", headers=proof).status_code == 401, lambda: "", within=120)
        assert http.get("/api/v1/lineage", headers=bearer(tokens.create("gone", Role.READER))).status_code == 200


def test_wrong_tokens_are_counted_by_address(tmp_path: Path) -> None:
    with served(tmp_path, is_behind_proxy=True) as (http, deployment):
        good = bearer(Tokens(deployment.catalog).create("good", Role.READER))
        known = bearer(Tokens(deployment.catalog).create("known", Role.READER))

        def ask(proof: dict[str, str], address: str) -> httpx.Response:
            return http.get("/api/v1/lineage", headers={**proof, "X-Forwarded-For": f"192.0.2.1, {address}"})

        assert ask(known, "2001:db8::1").status_code == 200
        answers = [ask(bearer(f"umbel_ab_{n}"), f"2001:db8::{n:x}") for n in range(MOST + 3)]
        assert {each.status_code for each in answers[:MOST]} == {401}
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert ask(good, "2001:db8::9").status_code == 429  # it might be guessed
        assert ask(known, "2001:db8::9").status_code == 200  # it was proven before
        assert ask(good, "2001:db8:0:1::9").status_code == 200


def test_attempts_come_back_with_time_and_are_forgotten_in_bounds() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    assert [attempts.begin("192.0.2.1") for _ in range(MOST)] == [0.0] * MOST
    assert attempts.begin("192.0.2.1") > 0
    assert attempts.begin("192.0.2.2") == 0
    now[0] += WITHIN / MOST + 0.01
    assert attempts.begin("192.0.2.1") == 0
    assert attempts.begin("192.0.2.1") > 0
    attempts.succeeded("192.0.2.1")
    assert attempts.begin("192.0.2.1") == 0
    for number in range(ADDRESSES + 5):
        attempts.begin(f"a{number}")
    assert len(attempts._counts) == ADDRESSES


def test_a_verified_token_costs_little(local: Any) -> None:
    """Compared with a verification, not with a clock: scrypt must not run again for a token that was verified."""
    http, tokens = local
    proof = bearer(tokens["reader"])
    assert http.get("/api/v1/lineage", headers=proof).status_code == 200
    calls = _counted(Tokens, "verified")
    try:
        for _ in range(20):
            assert http.get("/api/v1/lineage", headers=proof).status_code == 200
        assert calls.count == 0
    finally:
        calls.restore()


class _counted:
    def __init__(self, owner: type, name: str) -> None:
        self.count, self._owner, self._name, self._real = 0, owner, name, getattr(owner, name)
        setattr(owner, name, self._make())

    def _make(self) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            self.count += 1
            return self._real(*args)

        return counting

    def restore(self) -> None:
        setattr(self._owner, self._name, self._real)


def test_admin_actions_are_in_the_audit_log(tmp_path: Path) -> None:
    with served(tmp_path) as (http, deployment):
        proof = {**JSON, **bearer(Tokens(deployment.catalog).create("ops", Role.ADMIN))}
        http.post("/api/v1/secret/word", json={"value": "open sesame"}, headers=proof)
        http.post("/api/v1/secret/word", json={"value": "open sesame"}, headers=proof)
        http.post("/api/v1/init", json={"branch": "dev\x1b[2J"}, headers=proof)
        http.post("/api/v1/init", json={"branch": "dev"}, headers=proof)
        http.post("/api/v1/dataset/Plane/erase", json={"erase_keys": [{"tailnum": "N1"}]}, headers=proof)
        http.post("/api/v1/commit?message=why", content=b"x", headers=proof | PROTOBUF)
        http.post("/api/v1/delete", json={"branch": "dev"}, headers=proof)
        entries = list(reversed(AuditLog(deployment.catalog).entries()))
        assert [(each.action, each.subject, each.outcome) for each in entries] == [
            ("secret add", "word branch=main", "done"),
            ("secret add", "word branch=main", "failed: invalid-value"),
            ("branch init", "dev\x1b[2J", "failed: invalid-value"),
            ("branch init", "dev", "done"),
            ("erase", "Plane branch=main", "failed: invalid-value"),
            ("commit", "branch=main message=why", "failed: invalid-value"),
            ("branch delete", "dev", "done"),
        ]
        assert {(each.actor, each.address) for each in entries} == {("token ops", "127.0.0.1")}
        assert all(abs(each.at.replace(tzinfo=None).timestamp() - time.time()) < 1e5 for each in entries)


def test_what_cannot_be_audited_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    with served(tmp_path) as (http, deployment):
        proof = {**JSON, **bearer(Tokens(deployment.catalog).create("ops", Role.ADMIN))}
        monkeypatch.setattr(AuditLog, "begin", refuse)
        answer = http.post("/api/v1/secret/word", json={"value": "v"}, headers=proof)
        assert answer.status_code == 503
        assert str(tmp_path) not in answer.text
        assert deployment.vault.names() == []
