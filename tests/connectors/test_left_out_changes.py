"""Rows that an update takes out of `where`, or out of a transformation, leave the dataset, whatever the server is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.connectors import mysql_shop, postgres_shop
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of, until
from umbel.connectors import eval as computed
from umbel.expr import col
from umbel.transform import loads

FILTERED = """passthrough: true
---
source_field: note
target_field: note
transformations: [{name: upper}]
---
source_field: note
transformations: [{name: filter, code: return source_field != "hidden"}]
"""


class Following(NamedTuple):
    """A database whose changes are followed: what runs statements in it, and its source."""

    run: Callable[..., Any]
    shop: Any


@pytest.fixture(params=["postgres", "mysql"])
def following(request: pytest.FixtureRequest) -> Iterator[Following]:
    server = request.getfixturevalue(f"{request.param}_server")
    tables: Any = postgres_shop if request.param == "postgres" else mysql_shop
    name = tables.database(server)
    yield Following(lambda *queries: server.run(*queries, database=name), tables.shop(server, name))
    if request.param == "postgres":
        postgres_shop.drop_slots(server, name)


def test_a_row_that_is_left_out_by_an_update_is_gone(following: Following, tmp_path: Path) -> None:
    run, shop = following.run, following.shop
    chosen = orders(shop, cdc="native", disorder="1d", where=computed(col("note") != "hidden"))
    made_by = orders(shop, name="Made", cdc="native", disorder="1d", transform=loads(FILTERED))
    run("CREATE TABLE orders(id bigint PRIMARY KEY, note varchar(20) NOT NULL, updated_at timestamp(6) NOT NULL)")
    run(*(f"INSERT INTO orders VALUES ({n}, '{'hidden' if n % 3 == 0 else f'n{n}'}', now())" for n in range(12)))

    def is_equal() -> bool:
        rows = run("SELECT id, note, updated_at FROM orders WHERE note <> 'hidden' ORDER BY id")
        rows = [(key, note, at.replace(tzinfo=UTC)) for key, note, at in rows]
        columns = ["id", "note", "updated_at"]
        both = rows_of(made, "Orders", columns), rows_of(made, "Made", columns)
        return both == (rows, [(key, note.upper(), at) for key, note, at in rows])

    with deployed(tmp_path, chosen, made_by) as made:
        until(made, is_equal)
        run(
            "UPDATE orders SET note = 'hidden' WHERE id IN (1, 2)",
            "UPDATE orders SET note = 'shown' WHERE id IN (3, 6)",
            "UPDATE orders SET note = 'hidden', id = 104 WHERE id = 4",
            "DELETE FROM orders WHERE id = 5",
        )
        until(made, is_equal)
        run("UPDATE orders SET note = 'hidden'", "UPDATE orders SET note = 'back' WHERE id < 100")
        until(made, is_equal)
        assert [each.reason for each in letters(made)] == []
