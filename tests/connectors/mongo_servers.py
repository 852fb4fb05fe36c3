"""The servers of MongoDB's protocol that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.mongo import MongoServer, lasting_or_missing, typed_or_missing


@pytest.fixture(scope="session")
def mongo_in_memory() -> Iterator[MongoServer]:
    """Return a server in memory that knows all types."""
    yield from typed_or_missing()


@pytest.fixture(scope="session")
def mongo_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """Return a server whose data stay when it is killed."""
    yield from lasting_or_missing(tmp_path_factory.mktemp("mongo"))


@pytest.fixture(params=["mongo_in_memory", pytest.param("mongo_on_disk", marks=pytest.mark.nightly)])
def mongo(request: pytest.FixtureRequest) -> Iterator[MongoServer]:
    """Return each of them, emptied; the second at night, since it is compiled first, which takes minutes."""
    yield from _emptied(request.getfixturevalue(request.param))


@pytest.fixture
def mongo_typed(mongo_in_memory: MongoServer) -> Iterator[MongoServer]:
    """Return the server that knows all types, emptied."""
    yield from _emptied(mongo_in_memory)


@pytest.fixture
def mongo_lasting(mongo_on_disk: MongoServer) -> Iterator[MongoServer]:
    """Return the server whose data stay, emptied."""
    yield from _emptied(mongo_on_disk)


def _emptied(server: MongoServer) -> Iterator[MongoServer]:
    with server.client() as client:
        client.drop_database("shop")
    server.commands.clear()
    yield server
    server.intercept = lambda _: None
