"""Rows per second that umbel reads from BigQuery, Redshift, Snowflake and MongoDB, beside their own client libraries.

    python -m benchmarks.warehouses [bigquery redshift snowflake mongo] [--rows 200000] [--turns 3]

The servers are those of the tests, most of them fakes in this process: the ratios say what umbel costs beside the library, the
rates nothing about the real systems. The ways of reading take turns. Printed are the medians, and their ratios to the library,
which reads the same rows into nothing, by the statement that umbel has sent: a first load by a cursor, staged, and then read
into typed columns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.table_reading import opened, reader_of, report, staged, timed
from tests.servers import bigquery as big
from tests.servers import mongo as documents
from tests.servers import postgres, redshift
from tests.servers import snowflake as snow
from tests.servers.mongo_java import JavaServer
from umbel.connectors import BigQuery, Mongo, Redshift, Snowflake
from umbel.connectors.polling import stop_polling
from umbel.connectors.snowflake.server import ADDRESS

Warehouse: TypeAlias = tuple[Any, Callable[[], None]]
"""A connector, and the way in which the vendor's library reads the same rows."""
START = datetime(2026, 1, 1, tzinfo=UTC)
FETCHED = 10_000


def server_of(connector: Any) -> Any:
    """Return the server of a table, which connects by the vendor's library."""
    reader: Any = reader_of(connector, Path())
    return reader.server


@contextmanager
def bigquery(rows: int, folder: Path) -> Iterator[Warehouse]:
    """Run a fake of BigQuery with a table."""
    del folder
    with big.running() as fake:
        os.environ["BIGQUERY_EMULATOR_HOST"] = fake.address
        fake.create("orders", {"id": "INTEGER", "note": "STRING", "updated_at": "TIMESTAMP"})
        fake.run(f"INSERT INTO orders SELECT i, 'note ' || i, now() FROM range({rows}) t(i)")
        shop = BigQuery(name="s", project_id=big.PROJECT, dataset_id=big.DATASET, service_account_key=fake.key)

        def read() -> None:
            with server_of(table).connect(location=big.LOCATION) as client:
                for _ in client.query(fake.queries[-1]["query"]).result():
                    pass

        yield (table := shop.table("orders", "id")), read


@contextmanager
def redshift_cluster(rows: int, folder: Path) -> Iterator[Warehouse]:
    """Run a server of PostgreSQL behind the protocol of Redshift."""
    with postgres.running() as server:
        server.run("CREATE DATABASE warehouse")
        server.run(*redshift.PREPARED, 'CREATE SCHEMA "shop"', database="warehouse")
        server.run(
            'CREATE TABLE "shop".orders(id bigint, note varchar(100), updated_at timestamptz)', database="warehouse"
        )
        server.run(
            f"INSERT INTO shop.orders SELECT i, 'note ' || i, now() FROM generate_series(1, {rows}) i",
            database="warehouse",
        )
        with redshift.running(server, folder) as cluster:
            os.environ["SSL_CERT_FILE"] = str(cluster.certificate)
            login = {"host": "localhost", "port": cluster.port}
            shop = Redshift(
                name="s",
                db_name="warehouse",
                schema="shop",
                username=postgres.USER,
                password=postgres.PASSWORD,
                **login,
            )

            def read() -> None:
                import redshift_connector

                user = {"user": postgres.USER, "password": postgres.PASSWORD}
                with redshift_connector.connect(**login, **user, database="warehouse", ssl=True) as connection:
                    cursor = connection.cursor()
                    cursor.execute('SELECT id, note, updated_at FROM "shop".orders ORDER BY id')
                    while cursor.fetchmany(FETCHED):
                        pass

            yield shop.table("orders", "id"), read


@contextmanager
def snowflake(rows: int, folder: Path) -> Iterator[Warehouse]:
    """Run a fake of Snowflake with a table."""
    del folder
    with snow.running() as fake:
        os.environ[ADDRESS] = fake.address
        fake.create("ORDERS", {"ID": "NUMBER(38,0)", "NOTE": "VARCHAR(100)", "UPDATED_AT": "TIMESTAMP_NTZ(9)"})
        fake.run(f"INSERT INTO ORDERS SELECT i, 'note ' || i, now() AT TIME ZONE 'UTC' FROM range({rows}) t(i)")
        login = {"warehouse": "W", "role": "READER", "schema": "PUBLIC", "password": snow.PASSWORD}
        shop = Snowflake(name="s", account="org-acc", db_name="SHOP", username=snow.USER, **login)

        def read() -> None:
            statement = next(each for each in reversed(fake.statements) if each.startswith("SELECT"))
            with server_of(table).connect() as connection:
                for _ in connection.cursor().execute(statement).fetch_arrow_batches():
                    pass

        yield (table := shop.table("ORDERS", "ID")), read


@contextmanager
def mongo(rows: int, folder: Path) -> Iterator[Warehouse]:
    """Run a server of MongoDB's protocol, in memory, with a collection."""
    del folder
    with documents.running(JavaServer()) as server:
        with server.client() as client:
            for first in range(0, rows, FETCHED):
                many = range(first, min(first + FETCHED, rows))
                client.shop.orders.insert_many(
                    [{"id": n, "note": f"note {n}", "updated_at": START + timedelta(seconds=n)} for n in many]
                )
            client.shop.orders.create_index("id")
        login = {"host": server.host, "username": documents.USER, "password": documents.PASSWORD}

        def read() -> None:
            with server.client() as client:
                for _ in client.shop.orders.find({}, {"_id": 0}).sort("id").batch_size(FETCHED):
                    pass

        yield Mongo(name="s", db_name="shop", **login).collection("orders", "id"), read


SYSTEMS: dict[str, Callable[[int, Path], AbstractContextManager[Warehouse]]] = {
    "bigquery": bigquery,
    "redshift": redshift_cluster,
    "snowflake": snowflake,
    "mongo": mongo,
}


def turn(connector: Any, read: Callable[[], None], folder: Path, rows: int) -> dict[str, float]:
    """Return the seconds of each way of reading the same rows."""
    reader = reader_of(connector, folder)
    times = {"staged": staged(reader, rows)}
    stop_polling(folder)
    return {**times, "opened": opened(reader), "library": timed(read)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("systems", nargs="*", choices=[*SYSTEMS, []])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    rows: int = arguments.rows
    for name in arguments.systems or SYSTEMS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with SYSTEMS[name](rows, folder) as (connector, read):
                print(f"{name}:")
                report(
                    "rows/s",
                    rows,
                    "library",
                    arguments.turns,
                    lambda n, c=connector, r=read, f=folder: turn(c, r, f / f"r{n}", rows),
                )


if __name__ == "__main__":
    main()
