"""What keeps a server up to date."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from tests.unit.serving.asgi import serving, serving_admin
from tests.unit.serving.conftest import DEPARTURES
from tests.unit.serving.flights import DATASETS, FEATURESETS
from tests.unit.serving.test_queries import LATER
from umbel.api.commit import check_commit
from umbel.catalog.tokens import Role, Tokens
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.serving import service
from umbel.serving.app import application
from umbel.serving.policy import Policy
from umbel.serving.service import Service
from umbel.state.runs.records import JournalRecord


def test_a_catalog_that_cannot_be_read_for_a_while_is_followed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment.at(tmp_path, shards=1)
    served = Service(deployment)
    before, refresh, failures = served.current.revision, served.refresh, 2

    def failing() -> bool:
        nonlocal failures
        if failures:
            failures -= 1
            raise OperationalError("select", None, Exception("database is locked"))
        return refresh()

    monkeypatch.setattr(served, "refresh", failing)
    monkeypatch.setattr(service, "EVERY", 0.01)

    async def watched() -> None:
        following = asyncio.create_task(served.follow())
        commit(deployment, check_commit(DATASETS, FEATURESETS))
        async with asyncio.timeout(30):
            while served.current.revision == before:
                await asyncio.sleep(0.01)
        following.cancel()

    asyncio.run(watched())
    assert not failures
    served.close()
    deployment.store.close()
    deployment.catalog.close()


def test_a_server_that_is_ready_has_read_the_recent_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first query of each shard would wait for it, and others behind it."""
    deployment = Deployment.at(tmp_path, shards=16)
    commit(deployment, check_commit(DATASETS, FEATURESETS))
    body = {"webhook": "events", "endpoint": "departures", "data": DEPARTURES}
    query = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin"],
        "data": {"Origin.origin": ["JFK", "LGA"]},
        "as_of": LATER,
    }
    with serving_admin(deployment) as transport, httpx.Client(transport=transport, base_url="http://umbel") as http:
        assert http.post("/api/v1/log", json=body).status_code == 200
        drain(deployment)
        expected = http.post("/api/v1/query", json=query).json()
    again = Deployment.at(tmp_path)
    app = application(again, policy=Policy(allowed_hosts=("umbel",)))
    token = Tokens(again.catalog).create("again", Role.READER)
    with serving(app, token) as transport, httpx.Client(transport=transport, base_url="http://umbel") as http:
        assert http.get("/readyz").status_code == 200
        monkeypatch.setattr(JournalRecord, "unpack", None)
        assert http.post("/api/v1/query", json=query).json() == expected
    for each in (deployment, again):
        each.store.close()
        each.catalog.close()
