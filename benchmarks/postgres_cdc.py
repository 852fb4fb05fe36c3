"""Changes per second that umbel reads from Postgres, beside what the server itself sends and what SQL functions read.

    python -m benchmarks.postgres_cdc [--changes 200000] [--rows 1000000] [--turns 3]

A server is started for it. The changes are half inserts and half updates, 100 in a transaction. Each way of reading has a
replication slot of its own for each turn, made before the changes, and the ways take turns. Printed are the medians, and their
ratios to `pg_recvlogical`, which writes what the server sends to /dev/null. The last lines are rows per second of a first
load over one, two and four connections, beside a COPY of the same rows into nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.table_reading import IN_TRANSACTION, first_copy, first_loads, opened, report, source, staged
from tests.scenarios.server import HOST
from tests.servers.postgres import PASSWORD, USER, PostgresServer, running
from umbel.connectors import Postgres
from umbel.connectors.polling import stop_polling
from umbel.connectors.postgres.replication import ReplicatedSource

TABLE = "CREATE TABLE orders(id bigserial PRIMARY KEY, note text NOT NULL, updated_at timestamptz DEFAULT clock_timestamp())"
PUBLISH = "CREATE PUBLICATION umbel_orders FOR TABLE orders WITH (publish_via_partition_root = true)"
PEEK = """SELECT lsn::text, data FROM
          pg_logical_slot_peek_binary_changes(%s, NULL, 20000, 'proto_version', '1', 'publication_names', %s)"""


def shop(server: PostgresServer) -> Postgres:
    """Return the source."""
    return Postgres(name="s", host=HOST, port=server.port, db_name="postgres", username=USER, password=PASSWORD)


def peeked(server: PostgresServer, slot: str) -> float:
    """Return the seconds that SQL functions take to read and acknowledge a slot, without decoding."""
    begun = time.perf_counter()
    with server.connect() as connection:
        while found := connection.execute(PEEK, [slot, "umbel_orders"], binary=True).fetchall():
            connection.execute("SELECT pg_replication_slot_advance(%s, %s)", [slot, str(found[-1][0])])
    return time.perf_counter() - begun


def received(server: PostgresServer, slot: str) -> float:
    """Return the seconds that `pg_recvlogical` takes to write a slot's changes into nothing."""
    (end,) = server.run("SELECT pg_current_wal_lsn()")[0]
    command = [server.programs / "pg_recvlogical", "-h", HOST, "-p", str(server.port), "-U", USER, "-d", "postgres"]
    options = ["-S", slot, "--start", "-E", str(end), "-f", "/dev/null", "-o", "proto_version=1"]
    begun = time.perf_counter()
    subprocess.run(
        [*command, *options, "-o", "publication_names=umbel_orders"],
        check=True,
        env={**os.environ, "PGPASSWORD": PASSWORD},
    )
    return time.perf_counter() - begun


def turn(server: PostgresServer, folder: Path, changes: int) -> Mapping[str, float]:
    """Return the seconds of each way of reading the same changes."""
    server.run("TRUNCATE orders")
    reader = source(shop(server), folder, None)
    first_copy(replace(reader), folder)
    slots = {name: f"bench_{name}_{folder.name.lower()}" for name in ("peeked", "received")}
    for each in slots.values():
        server.run(f"SELECT pg_create_logical_replication_slot('{each}', 'pgoutput')")
    write(server, changes)
    times = {
        "received": received(server, slots["received"]),
        "staged": staged(reader, changes),
        "peeked": peeked(server, slots["peeked"]),
    }
    stop_polling(folder)
    times["opened"] = opened(reader)
    for each in slots.values():
        server.run(f"SELECT pg_drop_replication_slot('{each}')")
    assert isinstance(reader, ReplicatedSource)
    time.sleep(0.5)
    server.run(f"SELECT pg_drop_replication_slot('{reader.stage.state()['slot']}')")
    return times


def write(server: PostgresServer, changes: int) -> None:
    """Make changes, some in a transaction."""
    half = IN_TRANSACTION // 2
    with server.connect() as connection:
        for _ in range(changes // IN_TRANSACTION):
            with connection.transaction():
                insert = f"INSERT INTO orders(note) SELECT md5(i::text) FROM generate_series(1, {half}) i RETURNING id"
                first = connection.execute(insert).fetchall()[0][0]
                connection.execute(
                    f"UPDATE orders SET note = 'changed' WHERE id BETWEEN {first} AND {first + half - 1}"
                )


def copied(server: PostgresServer) -> float:
    """Return the seconds that a COPY into nothing takes."""
    begun = time.perf_counter()
    query = "COPY (SELECT id, note, updated_at FROM orders ORDER BY id) TO STDOUT (FORMAT csv)"
    with server.connect() as connection, connection.cursor() as cursor, cursor.copy(query) as copy:
        for _ in copy:
            pass
    return time.perf_counter() - begun


def loaded(server: PostgresServer, folder: Path, rows: int) -> Mapping[str, float]:
    """Return the seconds of a first load by cursor over some connections, staged and read, and of a COPY."""
    return {"copied": copied(server), **first_loads(shop(server), folder, rows)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the first load")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    changes: int = arguments.changes
    with tempfile.TemporaryDirectory() as folder, running() as server:
        server.run(TABLE, PUBLISH)
        report(
            "changes/s", changes, "received", arguments.turns, lambda n: turn(server, Path(folder) / f"c{n}", changes)
        )
        rows: int = arguments.rows
        server.run("TRUNCATE orders", f"INSERT INTO orders(note) SELECT md5(i::text) FROM generate_series(1, {rows}) i")
        report("rows/s", rows, "copied", arguments.turns, lambda n: loaded(server, Path(folder) / f"r{n}", rows))


if __name__ == "__main__":
    main()
