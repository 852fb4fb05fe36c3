"""First copies of MariaDB's tables with primary keys of all types, by ranges or in one snapshot."""

from __future__ import annotations

import random
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.mysql_copies import Copies
from tests.connectors.mysql_shop import database, shop
from tests.connectors.shop_datasets import deployed, letters, until
from tests.connectors.test_mysql_changes import drained
from tests.servers.mysql import MySQLServer
from umbel.connectors import source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal

__owner__ = "shop@example.com"


@pytest.fixture
def name(mysql_server: MySQLServer) -> str:
    return database(mysql_server)


KEYS = {
    "negative": ("bigint", "CAST(seq AS SIGNED) * 40001 - 200000000"),
    "unsigned": ("bigint unsigned", "18446744073709551615 - seq * 3"),
    "small": ("smallint", "CAST(seq AS SIGNED) - 5000"),
    "decimal": ("decimal(18, 10)", "(CAST(seq AS SIGNED) - 5000) * 1234.0000000001"),
    "date": ("date", "DATE_ADD('1900-01-01', INTERVAL seq DAY)"),
    "datetime": ("datetime(3)", "TIMESTAMPADD(MICROSECOND, seq * 999000, '2024-01-01')"),
    "timestamp": ("timestamp(6) DEFAULT '2000-01-01'", "TIMESTAMPADD(MICROSECOND, seq * 999001, '2024-01-01')"),
    "binary": ("binary(16)", "UNHEX(CONCAT(LEFT(MD5(seq), 26), '000000'))"),
    "varbinary": ("varbinary(40)", "UNHEX(LEFT(MD5(seq), 6 + seq % 10 * 2))"),
}
WHOLE = {
    "float": ("double", "SQRT(seq) - 40"),
    "time": ("time(3)", "SEC_TO_TIME(seq / 10 - 500)"),
    "text": ("varchar(40) COLLATE utf8mb4_general_ci", "CONCAT(IF(seq % 2, 'K', 'k'), MD5(seq))"),
    "uuid": ("uuid", "CONCAT(LEFT(MD5(seq), 8), '-0000-4000-8000-', LEFT(MD5(seq), 12))"),
    "bit": ("bit(40)", "seq * 7"),
    "enum": ("enum('b', 'a')", "IF(seq % 2, 'a', 'b')"),
}


ALWAYS = ("negative", "unsigned", "decimal", "datetime", "varbinary", "text", "uuid")
"""The kinds that are not left to nightly runs."""


def keyed(server: MySQLServer, name: str, kind: str) -> Any:
    """Return a dataset whose keys are those of the table, the first one as text or number."""

    def made(key: Any) -> Any:
        @source(shop(server, name).table("keyed"), disorder="10000d", cdc="native")
        @dataset(index=True)
        class Keyed:
            k: key = field(key=True)
            more: int = field(key=True)
            note: str
            at: datetime

        return Keyed

    numbers = {"negative": int, "small": int, "bit": int, "float": float, "decimal": Decimal[10]}
    times = {"date": date, "datetime": datetime, "timestamp": datetime, "binary": bytes, "varbinary": bytes}
    return made({**numbers, **times}.get(kind, str))


@pytest.mark.parametrize(
    "kind",
    [each if each in ALWAYS else pytest.param(each, marks=pytest.mark.nightly) for each in (*KEYS, *WHOLE)],
)
def test_keys_of_all_types(mysql_server: MySQLServer, name: str, tmp_path: Path, copies: Copies, kind: str) -> None:
    """Composite ones; rows of equal first columns are changed, deleted and inserted while the table is copied."""
    run, chance = partial(mysql_server.run, database=name), random.Random(kind)
    declared, value = {**KEYS, **WHOLE}[kind]
    run(
        f"CREATE TABLE keyed(k {declared}, more int, note varchar(20), at datetime(6), PRIMARY KEY (k, more))",
        f"INSERT IGNORE INTO keyed SELECT {value}, seq % 3, 'first', '2024-01-01' FROM seq_1_to_6000",
        "ANALYZE TABLE keyed",
    )

    def step(_: int) -> None:
        for _ in range(4):
            seq, new = chance.randrange(1, 5800), chance.randrange(6000, 9000)
            numbers = f"SELECT {value} FROM seq_{seq}_to_{seq + 9}"
            run(
                f"UPDATE keyed SET note = concat(note, '+') WHERE k IN ({numbers})",
                f"DELETE FROM keyed WHERE k IN (SELECT {value} FROM seq_{seq}_to_{seq + 3})",
                f"INSERT IGNORE INTO keyed SELECT {value}, 7, 'new', '2023-01-01' FROM seq_{new}_to_{new + 5}",
                f"UPDATE IGNORE keyed SET k = (SELECT {value} FROM seq_{new + 10}_to_{new + 10}) "
                f"WHERE more = 1 AND k IN ({numbers})",
                f"INSERT IGNORE INTO keyed SELECT {value}, 0, 'again', '2022-01-01' FROM seq_{seq}_to_{seq + 1}",
            )

    copies.step = step
    with deployed(tmp_path, keyed(mysql_server, name, kind)) as made:
        until(made, lambda: drained(made))
        step(0)
        shown = {"binary": "HEX(k)", "varbinary": "HEX(k)", "bit": "k + 0", "time": "CAST(k AS CHAR)"}.get(kind, "k")
        table = sorted((str(k), more, note) for k, more, note in run(f"SELECT {shown}, more, note FROM keyed"))

        def found() -> list[Any]:
            net = made.changes("Keyed").group_by("k", "more", "note", "at").agg(pl.col("_weight").sum())
            rows = net.filter(pl.col("_weight") > 0).select("k", "more", "note").rows()
            return sorted((shown_as(k, kind), more, note) for k, more, note in rows)

        if kind == "float":
            table = sorted((repr(float(k)), more, note) for k, more, note in table)
        until(made, lambda: found() == table, 30)
        assert letters(made) == []
    assert [each >= 4 for each in copies.ranges] == ([True] if kind in KEYS else [])


def shown_as(key: Any, kind: str) -> str:
    """Return a key as the server shows it."""
    if isinstance(key, bytes):
        return key.hex().upper()
    return str(key.replace(tzinfo=None)) if isinstance(key, datetime) else str(key)
