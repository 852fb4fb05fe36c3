"""A server of Postgres whose replication slots are all in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.postgres_shop import ORDERS, shop
from tests.connectors.shop_datasets import deployed, orders, rows_of, troubles, until
from tests.servers import postgres
from umbel.errors import InvalidValue


def test_a_free_replication_slot_is_needed(tmp_path: Path) -> None:
    with postgres.running(settings="max_replication_slots = 1\n") as server:
        server.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())")
        first = orders(shop(server, "postgres"), cdc="native")
        second = orders(shop(server, "postgres"), name="Second", cdc="native")
        taken = "SELECT pg_create_logical_replication_slot('another', 'pgoutput')"
        with deployed(tmp_path) as made:
            server.run(taken)
            with pytest.raises(InvalidValue, match=r"(?s)all replication slots.*in use.*WHERE NOT active") as caught:
                made.commit([first])
            assert made.deployment.catalog.latest() == 0, caught
            server.run("SELECT pg_drop_replication_slot('another')")
            made.commit([first])
            until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 1)
            made.commit([first])  # it has its slot
            with pytest.raises(InvalidValue, match="all replication slots"):
                made.commit([first, second])


def test_a_slot_that_somebody_else_takes_after_the_commit_is_waited_for(tmp_path: Path) -> None:
    with postgres.running(settings="max_replication_slots = 1\n") as server:
        server.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())")
        with deployed(tmp_path) as made:
            made.commit([orders(shop(server, "postgres"), cdc="native")])
            server.run("SELECT pg_create_logical_replication_slot('another', 'pgoutput')")
            until(made, lambda: any("slots are in use" in trouble for trouble in troubles(tmp_path)))
            server.run("SELECT pg_drop_replication_slot('another')")
            until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 1)
