"""A sink that has many batches to send, after an outage of its destination for example."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.sink_shop import Endpoint, Shop
from umbel.connectors import HTTP
from umbel.runtime import deliveries
from umbel.runtime.deployment import JOB


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def made(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return a shop with eight batches of three sales each, and of one user, that no sink has."""
    monkeypatch.setattr(deliveries, "AT_ONCE", 10)
    with endpoint.running() as address:
        source = HTTP(name="out", host=address, healthz="")
        paths = (source.path("/large"), source.path("/norse"))
        with contextlib.closing(Shop(tmp_path, *paths, cdc="debezium")) as found:
            for begin in range(0, 240, 30):
                found.sell(*(100.0 + begin + number for number in range(3)))
                found.move(1, f"City {begin}")
                found.drain()
            yield found


def sales(endpoint: Endpoint) -> list[list[float]]:
    """Return the amounts of each request."""
    return [[row["after"]["amount"] for row in rows] for path, _, rows in endpoint.requests if path == "/large"]


def test_small_batches_of_a_backlog_are_sent_together(endpoint: Endpoint, made: Shop) -> None:
    """Of more changes than one transaction has, each batch had its own."""
    for name in ("Large", "Norse"):
        assert made.delivery(name).step()
    assert [len(each) for each in sales(endpoint)] == [9, 9, 6]
    assert [amount for request in sales(endpoint) for amount in request] == made.amounts
    moves = [row for path, _, rows in endpoint.requests if path == "/norse" for row in rows]
    assert len(moves) < 8
    assert moves[-1]["after"]["city"] == "City 210"


def test_a_backlog_is_sent_in_the_same_requests_again(endpoint: Endpoint, made: Shop) -> None:
    endpoint.fails = lambda: (None, 401 if len(endpoint.requests) == 1 else None)  # it has the rows, and says no
    with pytest.raises(Exception, match="401"):
        made.delivery("Large").step()
    made.sell(1000)
    made.drain()
    for _ in range(2):
        made.delivery("Large").step()
    assert [len(each) for each in sales(endpoint)] == [9, 9, 9, 6, 1]
    assert endpoint.conflicts == []
    assert sorted(row["after"]["amount"] for row in endpoint.rows("/large")) == sorted(made.amounts)


def test_what_an_older_version_began_is_sent_batch_by_batch(endpoint: Endpoint, made: Shop) -> None:
    """It may have sent some of these requests, so that the server knows their keys."""
    deployment = made.deployed.deployment
    (found,) = [
        each.id
        for each in deliveries.sinks(deployment, deployment.catalog.revision()).values()
        if each.dataset == "Large"
    ]
    last = deployment.catalog.progress(JOB, 1 << 40)
    deployment.catalog.note(f"sinking:{found}", [last.number if last else 0, True])
    made.delivery("Large").step()
    assert [len(each) for each in sales(endpoint)] == [3] * 8
