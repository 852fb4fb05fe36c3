"""Changes per second that umbel reads from MariaDB, beside what its driver and the server's own program receive.

    python -m benchmarks.mysql_cdc [--changes 200000] [--rows 1000000] [--turns 3]

A server is started for it. The changes are half inserts and half updates, 100 in a transaction. The ways of reading take turns.
Printed are the medians, and their ratios to the driver, PyMySQL, which receives the packets of the binary log into nothing. The
server's own program is `mariadb-binlog`, which writes the log as it is to a file. The last lines are rows per second of a
first load over one, two and four connections, beside the driver, which reads the same rows into nothing.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.table_reading import IN_TRANSACTION, first_copy, first_loads, opened, report, source, staged
from tests.scenarios.server import HOST
from tests.servers.mysql import PASSWORD, USER, MySQLServer, running
from umbel.connectors import MySQL
from umbel.connectors.polling import stop_polling

TABLE = """CREATE TABLE orders(id bigint AUTO_INCREMENT PRIMARY KEY, note text NOT NULL,
           updated_at datetime(6) DEFAULT sysdate(6))"""
SETTINGS = "general_log = OFF\nmax_binlog_size = 1G\n"


def shop(server: MySQLServer) -> MySQL:
    """Return the source."""
    return MySQL(name="s", host=HOST, port=server.port, db_name="shop", username=USER, password=PASSWORD)


def received(server: MySQLServer, start: str) -> float:
    """Return the seconds that the driver takes to receive the log after a position, packet by packet."""
    with server.connect() as connection:
        for each in (
            "SET @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4",
            f"SET @slave_connect_state = '{start}', @slave_gtid_strict_mode = 1",
        ):
            connection.query(each)
        begun = time.perf_counter()
        connection._execute_command(0x12, struct.pack("<IHI", 4, 1, 4711))
        while not connection._read_packet().is_eof_packet():
            pass
        return time.perf_counter() - begun


def dumped(server: MySQLServer, file: str) -> float:
    """Return the seconds that the server's own program takes to write a file of the log."""
    login = [f"--host={HOST}", f"--port={server.port}", f"--user={USER}", "--protocol=tcp"]
    command = ["mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--raw"]
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command.append(f"--result-file={folder}/")
        environment = {**os.environ, "MYSQL_PWD": PASSWORD}
        subprocess.run([*command, *login, file], check=True, env=environment)
    return time.perf_counter() - begun


def turn(server: MySQLServer, folder: Path, changes: int) -> Mapping[str, float]:
    """Return the seconds of each way of reading the same changes."""
    server.run("DELETE FROM orders", "FLUSH BINARY LOGS", database="shop")
    reader = source(shop(server), folder, None)
    first_copy(replace(reader), folder)
    start, file = server.run("SELECT @@gtid_binlog_pos")[0][0], server.run("SHOW MASTER STATUS")[0][0]
    write(server, changes)
    times = {
        "received": received(server, start),
        "staged": staged(reader, changes),
        "dumped": dumped(server, file),
    }
    stop_polling(folder)
    return {**times, "opened": opened(reader)}


def write(server: MySQLServer, changes: int) -> None:
    """Make changes, some in a transaction."""
    half = IN_TRANSACTION // 2
    with server.connect("shop", autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(changes // IN_TRANSACTION):
            cursor.execute(f"INSERT INTO orders(note) SELECT md5(seq) FROM seq_1_to_{half}")
            cursor.execute(
                f"UPDATE orders SET note = 'changed' WHERE id BETWEEN {cursor.lastrowid} AND {cursor.lastrowid + half - 1}"
            )
            connection.commit()


def read(server: MySQLServer) -> float:
    """Return the seconds that the driver takes to read the rows into nothing."""
    from pymysql.cursors import SSCursor

    begun = time.perf_counter()
    with server.connect("shop") as connection, connection.cursor(SSCursor) as cursor:
        cursor.execute("SELECT id, note, updated_at FROM orders ORDER BY id")
        while cursor.fetchmany(1000):
            pass
    return time.perf_counter() - begun


def loaded(server: MySQLServer, folder: Path, rows: int) -> Mapping[str, float]:
    """Return the seconds of a first load by cursor, staged and read, and of the driver."""
    return {"read": read(server), **first_loads(shop(server), folder, rows)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the first load")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    changes: int = arguments.changes
    with tempfile.TemporaryDirectory() as folder, running(SETTINGS) as server:
        server.run("CREATE DATABASE shop")
        server.run(TABLE, database="shop")
        report(
            "changes/s", changes, "received", arguments.turns, lambda n: turn(server, Path(folder) / f"c{n}", changes)
        )
        rows: int = arguments.rows
        server.run("TRUNCATE orders", f"INSERT INTO orders(note) SELECT md5(seq) FROM seq_1_to_{rows}", database="shop")
        report("rows/s", rows, "read", arguments.turns, lambda n: loaded(server, Path(folder) / f"r{n}", rows))


if __name__ == "__main__":
    main()
