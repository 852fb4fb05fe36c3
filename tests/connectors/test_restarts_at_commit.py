"""A database server that dies in the middle of a commit: the commit is refused as one to repeat, and then succeeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.connectors import mysql_shop, postgres_shop
from tests.connectors.shop_datasets import deployed, orders, until
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer
from umbel.connectors.mysql import cursor as mysql_cursor
from umbel.connectors.mysql import replication as mysql_replication
from umbel.connectors.postgres import cursor as postgres_cursor
from umbel.connectors.postgres import replication as postgres_replication
from umbel.errors import Transient

PLACES = {
    "postgres-upsert": postgres_cursor,
    "postgres-native": postgres_replication,
    "mysql-upsert": mysql_cursor,
    "mysql-native": mysql_replication,
}


@pytest.mark.parametrize(
    ("way", "is_described"),
    [
        *((way, True) for way in PLACES),
        *(pytest.param(way, False, marks=pytest.mark.nightly) for way in PLACES),
    ],
)
def test_a_server_that_dies_while_a_table_is_examined(
    way: str,
    is_described: bool,
    postgres_server: PostgresServer,
    mysql_server: MySQLServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, _, cdc = way.partition("-")
    server: Any = postgres_server if kind == "postgres" else mysql_server
    place: Any = postgres_shop if kind == "postgres" else mysql_shop
    name = place.database(server)
    at = "now()" if kind == "postgres" else "now(6)"
    server.run(place.ORDERS, f"INSERT INTO orders VALUES (1, 'a', {at})", database=name)
    read = orders(place.shop(server, name), cdc=cdc)
    describe = PLACES[way].describe

    def dying(*arguments: Any) -> Any:
        described = describe(*arguments) if is_described else None
        server.kill()
        return described or describe(*arguments)

    with deployed(tmp_path) as made:
        monkeypatch.setattr(PLACES[way], "describe", dying)
        try:
            with pytest.raises(Transient, match="see that the server runs") as caught:
                made.commit([read])
            assert made.deployment.catalog.latest() == 0
            with pytest.raises(Transient, match="see that the server runs"):
                made.commit([read])  # nobody listens
        finally:
            monkeypatch.undo()
            server.start()
        assert "Traceback" not in caught.value.described()
        made.commit([read])
        until(made, lambda: made.taken().get("Orders") == 1)
