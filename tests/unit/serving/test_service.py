"""What keeps a server up to date."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.unit.serving.flights import DATASETS, FEATURESETS
from umbel.api.commit import check_commit
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.serving import service
from umbel.serving.service import Service


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
