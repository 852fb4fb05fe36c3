"""Publications of Postgres that somebody else has made, and that leave out what a dataset needs."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Optional

import pytest

from tests.connectors.postgres_shop import ORDERS, database, shop
from tests.connectors.shop_datasets import deployed, examine, letters, orders, rows_of, until
from tests.servers.postgres import PostgresServer
from umbel.connectors import ref, source
from umbel.connectors.polling import stop_polling
from umbel.connectors.postgres.replication import ReplicatedSource
from umbel.datasets import dataset, field
from umbel.errors import InvalidValue

__owner__ = "shop@example.com"
NARROW = {
    "FOR TABLE orders WITH (publish = 'insert')": "does not send: update, delete, truncate.*SET \\(publish = 'insert, update, ",
    "FOR TABLE orders WITH (publish = 'insert,update,delete')": "does not send: truncate.*SET \\(publish = ",
    "FOR TABLE orders WHERE (id < 100)": r"leaves out rows.*WHERE \(id < 100\).*DROP TABLE \"orders\"; ALTER .* ADD TABLE",
    "FOR TABLE orders(id, updated_at)": r"leaves out columns of the table: note.*ALTER PUBLICATION umbel_orders DROP",
    "": r"lacks the table.*ALTER PUBLICATION umbel_orders ADD TABLE \"orders\"",
}
"""Publications that leave something out, and what a commit says to them."""


def test_a_publication_that_leaves_something_out_is_refused(postgres_server: PostgresServer) -> None:
    name = database(postgres_server)
    run, table = partial(postgres_server.run, database=name), shop(postgres_server, name).table("orders")
    run(ORDERS)
    for publication, message in NARROW.items():
        run("DROP PUBLICATION IF EXISTS umbel_orders", f"CREATE PUBLICATION umbel_orders {publication}")
        with pytest.raises(InvalidValue, match=f"(?s){message}") as caught:
            examine(table, "id", "note", "updated_at")
        assert caught.value.hint is not None
        run(*caught.value.hint.split("; "))  # the remedy is complete
        examine(table, "id", "note", "updated_at")


def test_a_publication_may_leave_out_what_no_field_needs(postgres_server: PostgresServer) -> None:
    name = database(postgres_server)
    run, table = partial(postgres_server.run, database=name), shop(postgres_server, name).table("orders")
    run(ORDERS, "CREATE PUBLICATION umbel_orders FOR TABLE orders(id, updated_at) WITH (publish = 'insert')")
    examine(table, "id", "updated_at", keys=(), is_keyed=False)
    run("DROP PUBLICATION umbel_orders", "CREATE PUBLICATION umbel_orders FOR ALL TABLES")
    examine(table, "id", "note", "updated_at")


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLE orders, other"])
def test_other_tables_of_a_publication_are_left_out(
    postgres_server: PostgresServer, tmp_path: Path, publication: str
) -> None:
    """Their rows became rows of the dataset; of a table that inherits, also one that is made later, they are."""
    name = database(postgres_server)
    run = partial(postgres_server.run, database=name)
    run(ORDERS, ORDERS.replace("orders", "other"), "CREATE TABLE large(PRIMARY KEY (id)) INHERITS (orders)")
    run("INSERT INTO orders VALUES (1, 'a', now())", "INSERT INTO other VALUES (9, 'z', now())")
    run(f"CREATE PUBLICATION umbel_orders {publication}")
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc="native", disorder="3650d")) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "a")])
        run("INSERT INTO other VALUES (2, 'x', now())", "UPDATE other SET note = 'x' WHERE id = 9")
        run("DELETE FROM other", "INSERT INTO other VALUES (1, 'x', now())", "TRUNCATE other")
        run("INSERT INTO large VALUES (3, 'b', now())", "CREATE TABLE huge(PRIMARY KEY (id)) INHERITS (orders)")
        if publication == "FOR ALL TABLES":
            run("INSERT INTO huge VALUES (4, 'c', now())", "DROP TABLE other")
        run("INSERT INTO orders VALUES (5, 'd', now())")
        more = [(4, "c")] if publication == "FOR ALL TABLES" else []
        until(made, lambda: rows_of(made, "Orders", ["id", "note"])[-1:] == [(5, "d")])
        assert rows_of(made, "Orders", ["id", "note"]) == [(1, "a"), (3, "b"), *more, (5, "d")]
        assert letters(made) == []


def test_rows_of_partitions_that_are_detached_before_they_are_read(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """A publication that sends no other tables has no rows of others, whatever the partitions are now."""
    name = database(postgres_server)
    run = partial(postgres_server.run, database=name)
    run(ORDERS.removesuffix(";") + " PARTITION BY RANGE (id)")
    for number in range(3):
        run(f"CREATE TABLE part{number} PARTITION OF orders FOR VALUES FROM ({number}0) TO ({number + 1}0)")
    run("INSERT INTO orders VALUES (1, 'a', now())", "CREATE PUBLICATION umbel_orders FOR TABLE orders")
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc="native", disorder="3650d")) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [(1, "a")])
        stop_polling(tmp_path)
        run("INSERT INTO orders VALUES (11, 'b', now()), (21, 'c', now())")
        run(
            "ALTER TABLE orders DETACH PARTITION part1", "DROP TABLE part2", "INSERT INTO orders VALUES (2, 'd', now())"
        )
        until(made, lambda: (2, "d") in rows_of(made, "Orders", ["id", "note"]))
        assert rows_of(made, "Orders", ["id", "note"]) == [(1, "a"), (2, "d"), (11, "b"), (21, "c")]


@pytest.mark.parametrize("removal", ["ALTER TABLE orders RENAME TO former", "DROP TABLE orders"])
@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLE orders"])
def test_another_table_under_the_name_is_reported(
    postgres_server: PostgresServer, tmp_path: Path, removal: str, publication: str
) -> None:
    """Its changes were taken, without the rows that it had by then, and the rows of the former one stayed."""
    name = database(postgres_server)
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())", f"CREATE PUBLICATION umbel_orders {publication}")
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc="native")) as made:
        until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 1)
        stop_polling(tmp_path)
        run(removal, ORDERS, "INSERT INTO orders VALUES (2, 'b', now())")
        if publication == "FOR TABLE orders":
            run("ALTER PUBLICATION umbel_orders ADD TABLE orders")
        until(made, lambda: letters(made))
        assert "another table than the rows came from: that one was dropped or renamed" in letters(made)[0].reason
        assert "commit the dataset as a new version" in letters(made)[0].reason


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER PUBLICATION umbel_orders SET (publish = 'insert')", "does not send: update, delete, truncate"),
        ("DROP PUBLICATION umbel_orders", "there is no publication umbel_orders"),
    ],
)
def test_a_publication_that_is_narrowed_later_is_reported(
    postgres_server: PostgresServer, tmp_path: Path, statement: str, reason: str
) -> None:
    name = database(postgres_server)
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())")
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc="native")) as made:
        until(made, lambda: len(rows_of(made, "Orders", ["id"])) == 1)
        stop_polling(tmp_path)
        run(statement)
        until(made, lambda: letters(made))
        assert reason in letters(made)[0].reason
        assert "commit the dataset as a new version" in letters(made)[0].reason


def test_a_field_of_a_generated_column_is_refused(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """By name and by reference; one that only stands beside others in the table does not matter."""
    name = database(postgres_server)
    run, database_of = partial(postgres_server.run, database=name), shop(postgres_server, name)
    double = "note text GENERATED ALWAYS AS ('n' || id) STORED"
    run(f"CREATE TABLE orders(id int PRIMARY KEY, {double}, updated_at timestamptz NOT NULL DEFAULT now())")
    table, match = database_of.table("orders"), r"(?s)column 'note' of \"orders\" is generated.*by a cursor"
    with pytest.raises(InvalidValue, match=match):
        examine(table, "id", "note", "updated_at")
    with pytest.raises(InvalidValue, match=match):
        examine(table, references=("note",))
    examine(table, "id", "updated_at")

    @source(table, disorder="1d", cdc="native", preproc={"copy": ref("id")})
    @dataset
    class Computed:
        id: int = field(key=True)
        note: Optional[str]
        copy: int
        updated_at: datetime

    with deployed(tmp_path, Computed) as made:  # all columns are read: which of them fields need is seen in the rows
        run("INSERT INTO orders(id) VALUES (1)")
        until(made, lambda: made.taken().get("Computed") == 1)
        run("INSERT INTO orders(id) VALUES (2)")
        until(made, lambda: letters(made), 20.0)
        (letter,) = letters(made)
        assert (letter.field, letter.reason) == ("note", "the column is missing, expected Optional[str]")


def test_a_publication_that_another_source_has_just_made_is_used(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources of one table begin at once, and see no publication: all but one had a dead letter."""
    name = database(postgres_server)
    run = partial(postgres_server.run, database=name)
    run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now())", "CREATE PUBLICATION umbel_orders FOR TABLE orders")
    monkeypatch.setattr(ReplicatedSource, "_is_published", lambda *_: False)
    with deployed(tmp_path, orders(shop(postgres_server, name), cdc="native")) as made:
        until(made, lambda: made.taken().get("Orders"), 60)
        assert rows_of(made, "Orders", ["id", "note"]) == [(1, "a")]
        assert letters(made) == []
