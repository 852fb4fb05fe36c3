"""Iceberg tables of a REST catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, letters, process
from tests.servers.iceberg_rest import CREDENTIAL, TOKEN, RestCatalog, running, silent
from tests.unit.connectors.iceberg_lake import Lake, reasons, taken
from tests.unit.connectors.lakes import keyed, until
from umbel.connectors import Iceberg
from umbel.connectors.polling import stop_polling
from umbel.errors import InvalidValue, Transient

__owner__ = "shop@example.com"


class RestLake(Lake):
    """A lake whose tables are read by a REST catalog."""

    rest: RestCatalog
    properties: dict[str, str]

    def table(self, name: str, _: Any = None) -> Any:
        return Iceberg(name="lake", uri=self.rest.uri, properties=self.properties).table(f"shop.{name}")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[RestLake]:
    made = RestLake(tmp_path / "lake")
    made.properties = {"token": TOKEN}
    with running(made.catalog) as made.rest:
        yield made


@pytest.mark.parametrize(("name", "value"), [("token", TOKEN), ("credential", CREDENTIAL)])
def test_a_keyed_dataset_is_what_the_table_is(lake: RestLake, tmp_path: Path, name: str, value: str) -> None:
    lake.properties = {name: value}
    lake.add(range(100))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.add(range(100, 120))
        lake.opened.delete("id >= 20 AND id < 30")
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []


def test_a_look_at_the_table_is_two_requests(lake: RestLake, tmp_path: Path) -> None:
    lake.add(range(10))
    with deployed(tmp_path, keyed(lake, every="1s")) as made:
        until(made, lambda: len(taken(made)) == 10)
        process(made, 1.5)
        stop_polling(tmp_path)
        before = len(lake.rest.requests)
        process(made, 3)
        stop_polling(tmp_path)
        tables = [
            each for each in lake.rest.requests[before:] if each.endswith("/v1/main/namespaces/shop/tables/orders")
        ]
        assert 1 <= len(tables) <= 5
        assert len(lake.rest.requests) - before == 2 * len(tables)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"token": "wrong-8731"}, "its catalog refuses the worker"),
        ({"credential": "client:wrong-8731"}, "its catalog refuses the worker"),
        ({}, "its catalog refuses the worker"),
    ],
)
def test_a_wrong_login_is_refused_at_commit(
    lake: RestLake, tmp_path: Path, properties: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    lake.add(range(3))
    lake.properties = properties
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(InvalidValue, match=reason) as error,
        deployed(tmp_path, keyed(lake)),
    ):
        pass
    assert "wrong-8731" not in str(error.value) + caplog.text


def test_what_is_missing_is_refused_at_commit(lake: RestLake, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"Table does not exist: shop\.orders"), deployed(tmp_path, keyed(lake)):
        pass
    lake.rest.uri = "http://127.0.0.1:9"
    with pytest.raises(Transient, match="lake"), deployed(tmp_path, keyed(lake)):
        pass


@pytest.mark.parametrize(
    ("failure", "is_reported"),
    [((503, "ServiceUnavailableException"), False), ((500, "X"), False), ((403, "ForbiddenException"), True)],
)
def test_a_catalog_that_fails_for_a_while(
    lake: RestLake, tmp_path: Path, failure: tuple[int, str], is_reported: bool
) -> None:
    lake.add(range(3))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 3)
        lake.rest.failure = failure
        lake.add([3])
        process(made, 2.5)
        assert len(taken(made)) == 3
        lake.rest.failure = None
        until(made, lambda: taken(made) == lake.rows())
        assert bool(letters(made)) == is_reported


QUICK = {"rest.client.connection-timeout-ms": "300", "rest.client.socket-timeout-ms": "300"}


@pytest.mark.parametrize("properties", [{"token": TOKEN}, {"credential": CREDENTIAL}])
@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
def test_a_catalog_that_never_answers_fails_the_commit(
    lake: RestLake, tmp_path: Path, properties: dict[str, str], first: bytes
) -> None:
    lake.add(range(3))
    lake.properties = {**properties, **QUICK}
    with (
        silent(first) as lake.rest.uri,
        pytest.raises(Transient, match=r"Iceberg 'lake', table 'shop\.orders': its catalog .* in time: .*timed out"),
        deployed(tmp_path, keyed(lake)),
    ):
        pass


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5", ""])
def test_a_timeout_that_is_none_is_refused(lake: RestLake, tmp_path: Path, value: str) -> None:
    lake.properties = {"token": TOKEN, "rest.client.socket-timeout-ms": value}
    with (
        pytest.raises(InvalidValue, match=f"rest.client.socket-timeout-ms is '{value}'"),
        deployed(tmp_path, keyed(lake)),
    ):
        pass


def test_a_catalog_that_stops_answering_is_polled_again(lake: RestLake, tmp_path: Path) -> None:
    lake.add(range(3))
    lake.properties = {"token": TOKEN, **QUICK}
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 3)
        lake.rest.is_silent.set()
        lake.add([3])
        before = len(lake.rest.requests)
        until(made, lambda: len(lake.rest.requests) >= before + 3)
        assert len(taken(made)) == 3
        lake.rest.is_silent.clear()
        until(made, lambda: taken(made) == lake.rows())
        assert not letters(made)
