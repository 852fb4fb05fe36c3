"""SQL catalogs of Iceberg tables: databases that do not answer."""

from __future__ import annotations

import time

import pytest

from tests.servers.iceberg_rest import silent
from umbel.connectors import iceberg_catalogs
from umbel.connectors.iceberg_catalogs import from_catalog, sql_address


@pytest.mark.parametrize(
    ("uri", "timeouts"),
    [
        ("postgresql+psycopg://user:p%40ss@{}/lake", {"postgresql": {"connect_timeout": "2"}}),
        ("mysql+pymysql://user:p%40ss@{}/lake", {"mysql": {"connect_timeout": "1", "read_timeout": "1"}}),
    ],
)
def test_a_database_that_never_answers_fails_in_time(
    uri: str, timeouts: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_catalogs, "SQL_TIMEOUTS", timeouts)
    started = time.monotonic()
    with silent(b"") as address, pytest.raises(Exception, match="time") as error:
        from_catalog("lake", uri.format(address.removeprefix("http://")), {"type": "sql"}, "shop.orders")
    assert type(error.value).__name__ == "OperationalError"
    assert time.monotonic() - started < 9


@pytest.mark.parametrize(
    ("uri", "bounded"),
    [
        (
            "postgresql+psycopg://u:p%40%2F@h/db?sslmode=require",
            "postgresql+psycopg://u:p%40%2F@h/db?connect_timeout=10&sslmode=require&tcp_user_timeout=30000",
        ),
        ("postgresql://h/db?connect_timeout=3&tcp_user_timeout=9", None),
        ("postgresql+pg8000://h/db", None),
        ("mysql+pymysql://h/db", "mysql+pymysql://h/db?connect_timeout=10&read_timeout=30&write_timeout=30"),
        ("sqlite:////tmp/catalog.db", None),
        ("thrift://h:9083", None),
        ("glue", None),
    ],
)
def test_addresses_get_the_timeouts_that_they_lack(uri: str, bounded: str | None) -> None:
    assert sql_address(uri) == (bounded or uri)
