"""What holds for every route: paths, methods, media, sizes, branches, and that no request breaks the server."""

from __future__ import annotations

import pytest

from tests.unit.serving.conftest import Served
from umbel.catalog.catalog import Catalog
from umbel.errors import Transient
from umbel.serving.metrics import Metrics
from umbel.serving.requests import MAX_BODY

JSON = {"Content-Type": "application/json"}


def test_unknown_paths_name_the_known_ones(flights: Served) -> None:
    answer = flights.http.get("/api/v1/quarry")
    assert (answer.status_code, answer.json()["code"]) == (404, "no-such-route")
    assert "POST /api/v1/query" in answer.json()["hint"]


def test_the_wrong_method_names_the_right_ones(flights: Served) -> None:
    answer = flights.http.get("/api/v1/query")
    assert (answer.status_code, answer.json()["code"]) == (405, "wrong-method")
    assert answer.headers["Allow"] == "POST"
    assert flights.http.head("/healthz").status_code == 200


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "application/x-protobuf", "x"])
def test_other_media_are_refused(flights: Served, media: str) -> None:
    answer = flights.http.post("/api/v1/log", content=b"{}", headers={"Content-Type": media})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media")
    media = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")
    assert answer.json()["hint"] == f"Content-Type: {' or '.join(media)}"
    answer = flights.http.post("/api/v1/query", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.json()["hint"] == "Content-Type: application/json"


def test_json_has_many_names(flights: Served) -> None:
    for media in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/ld+json"):
        answer = flights.http.post("/api/v1/log", content=b"{}", headers={"Content-Type": media})
        assert answer.status_code == 400  # it was read


def test_compressed_bodies_are_refused(flights: Served) -> None:
    answer = flights.http.post("/api/v1/query", content=b"{}", headers=JSON | {"Content-Encoding": "gzip"})
    assert answer.status_code == 415


def test_a_body_that_says_it_is_too_large_is_not_read(flights: Served) -> None:
    headers = JSON | {"Content-Length": str(MAX_BODY + 1)}
    answer = flights.http.post("/api/v1/log", content=b"{", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_a_body_that_turns_out_too_large_is_refused(flights: Served) -> None:
    answer = flights.http.post("/api/v1/log", content=b" " * (MAX_BODY + 1), headers=JSON | {"Content-Length": "2"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize("branch", ["dev", "", "main ", "\xff"])
def test_branches_that_do_not_exist(flights: Served, branch: str) -> None:
    headers = [(b"X-UMBEL-BRANCH", branch.encode("latin-1"))]
    answer = flights.http.get("/api/v1/lineage", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-name")
    assert flights.http.get("/api/v1/branch/list", headers=headers).json() == {"branches": ["main"]}


def test_bodies_about_branches_are_checked(flights: Served) -> None:
    for path in ("/api/v1/init", "/api/v1/delete", "/api/v1/dataset/Plane/erase"):
        assert flights.post(path, {}).status_code == 400
    assert flights.post("/api/v1/init", {"branch": "a b"}).status_code == 400
    assert flights.post("/api/v1/init", {"branch": "main"}).status_code == 400
    assert flights.post("/api/v1/init", {"branch": "a", "clone_from": "nowhere"}).status_code == 404
    assert flights.post("/api/v1/delete", {"branch": "main"}).status_code == 400
    assert flights.post("/api/v1/delete", {"branch": "nowhere"}).status_code == 404
    assert flights.post("/api/v1/dataset/Plane/erase", {"erase_keys": [{"tailnum": "a"}]}).status_code == 400


def test_what_may_pass_is_503_and_says_when_to_come_again(flights: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Transient("the disk is full")

    monkeypatch.setattr(Catalog, "dead_letters", refuse)
    answer = flights.http.get("/api/v1/dataset/Departure/dead_letters")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    monkeypatch.setattr(Catalog, "dead_letters", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    answer = flights.http.get("/api/v1/dataset/Departure/dead_letters")
    assert (answer.status_code, answer.json()["hint"]) == (503, "free some disk space")


def test_an_internal_error_has_the_same_form(flights: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Catalog, "dead_letters", lambda *_: 1 / 0)
    answer = flights.http.get("/api/v1/dataset/Departure/dead_letters")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")


@pytest.mark.parametrize("n", ["-1", "many", "1.5", "99999", "9" * 5000, "٣"])
def test_counts_are_counts(flights: Served, n: str) -> None:
    answer = flights.http.get("/api/v1/dataset/Departure/dead_letters", params={"n": n})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid-value")


def test_a_failure_on_a_path_found_without_the_router_is_the_same(
    flights: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Metrics, "text", lambda *_: 1 / 0)
    answer = flights.http.get("/api/v1/metrics")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    monkeypatch.undo()
    assert (
        'umbel_request_seconds_count{route="/api/v1/metrics",status="500"}' in flights.http.get("/api/v1/metrics").text
    )
