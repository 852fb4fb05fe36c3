"""Commits made at once: none takes back what another has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.serving.conftest import Served
from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.definitions.records import Definitions
from umbel.definitions.serde import dump
from umbel.errors import Conflict
from umbel.expr import col
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.runtime import commit as commits
from umbel.runtime.deployment import Deployment
from umbel.serving.service import Service

__owner__ = "tests@example.com"
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def named(name: str, version: int = 1) -> Any:
    def body(scope: dict[str, Any]) -> None:
        scope |= {"__annotations__": {"a": int, "b": int}, "b": F(col("a") + version), "__module__": __name__}

    scope: dict[str, Any] = {}
    body(scope)
    return featureset(type(name, (), scope))


class Between(httpx.BaseTransport):
    """Does something before each commit that it carries."""

    def __init__(self, inner: httpx.BaseTransport, work: Iterator[Callable[[], Any]]) -> None:
        self._inner, self._work = inner, work

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path == "/api/v1/commit":
            next(self._work, lambda: None)()
        return self._inner.handle_request(request)


def committed(served: Served) -> set[str]:
    return {*served.deployment.branch("main").featuresets} - {each.__name__ for each in FEATURESETS}


def test_incremental_commits_made_at_once_are_both_in_force(fresh: Served) -> None:
    other = Client("http://umbel", transport=fresh.transport)
    between = Between(fresh.transport, iter([lambda: other.add(named("Other"))]))
    client = Client("http://umbel", transport=between)
    assert client.add(named("Own")).json()["new"] == ["Own"]
    assert committed(fresh) == {"Own", "Other"}


def test_a_client_gives_up_where_others_commit_all_the_time(fresh: Served) -> None:
    other = Client("http://umbel", transport=fresh.transport)
    work = (lambda number=number: other.add(named(f"Other{number}")) for number in range(100))
    client = Client("http://umbel", transport=Between(fresh.transport, work))
    with pytest.raises(Conflict, match=r"409: branch 'main' has changed since revision \d+, from which") as caught:
        client.add(named("Own"))
    assert caught.value.hint == "read the definitions again, and commit what is made from them"
    assert committed(fresh) == {f"Other{number}" for number in range(5)}


def test_a_base_that_is_in_force_no_more_is_refused(fresh: Served) -> None:
    read = fresh.http.get("/api/v1/commit")
    base = read.headers["X-UMBEL-REVISION"]
    Client("http://umbel", transport=fresh.transport).add(named("Other"))

    def send(**options: Any) -> httpx.Response:
        return fresh.http.post("/api/v1/commit", content=read.content, headers=PROTOBUF, params=options)

    answer = send(incremental=True, base=base)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert send(incremental=True, base="x").status_code == 400
    assert committed(fresh) == {"Other"}
    assert send(base=base).status_code == 200, "a commit of everything is not made from another"
    assert committed(fresh) == set()


@pytest.mark.parametrize("incremental", [True, False])
def test_a_commit_between_the_checks_and_the_end_of_another(
    incremental: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment.at(tmp_path / "umbel", shards=1)
    first = check_commit(DATASETS, FEATURESETS)
    base = commits.commit(deployment, first)["revision"]
    others = iter([check_commit([], [named("Other")], before=first)])
    real = commits.must_wait

    def late(*args: Any) -> bool:
        for each in others:
            deployment.catalog.commit("main", "other", dump(each))
        return real(*args)

    monkeypatch.setattr(commits, "must_wait", late)
    own: Definitions = check_commit([], [named("Own")], before=first)
    if incremental:
        with pytest.raises(Conflict):
            commits.commit(deployment, own, incremental=True, base=base)
        assert "Other" in deployment.branch("main").featuresets
    else:
        report = commits.commit(deployment, own)
        assert (report["new"], report["removed"]) == (["Own"], ["Other"])
        assert deployment.catalog.head("main") == report["revision"] == 3
    deployment.catalog.close()


def test_definitions_to_commit_from_are_those_in_force(fresh: Served) -> None:
    """Another server process may have committed a moment ago."""
    own = check_commit([], [named("Other")], before=fresh.deployment.branch("main"))
    for _ in range(3):
        revision = fresh.deployment.catalog.commit("main", "by another process", dump(own))
        assert fresh.http.get("/api/v1/commit").headers["X-UMBEL-REVISION"] == str(revision)


def test_a_query_of_what_was_committed_while_another_thread_reads_the_catalog(
    fresh: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = Service.refresh

    def refreshed_before(service: Service) -> bool:
        refresh(service)  # by the thread that follows the catalog
        return refresh(service)

    monkeypatch.setattr(Service, "refresh", refreshed_before)
    own = check_commit([], [named("Other")], before=fresh.deployment.branch("main"))
    query = {"inputs": ["Other.a"], "outputs": ["Other.b"], "data": {"Other.a": [1]}}
    assert fresh.post("/api/v1/query", query).status_code == 400
    fresh.deployment.catalog.commit("main", "by another process", dump(own))
    assert fresh.post("/api/v1/query", query).json() == {"Other.b": [2]}
    assert fresh.post("/api/v1/query", query | {"outputs": ["Other.c"]}).status_code == 400
