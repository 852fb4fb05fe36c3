"""Destinations that refuse: when a request is sent again, and which row cannot be stored."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.connectors.postgres_shop import database
from tests.connectors.postgres_shop import shop as postgres_source
from tests.connectors.sink_shop import Endpoint, Shop
from tests.servers.postgres import PostgresServer
from umbel.connectors import HTTP, http_sink
from umbel.errors import InvalidValue, UmbelError


def shop(address: str, folder: Path) -> Shop:
    """Return a shop whose sinks are endpoints."""
    source = HTTP(name="out", host=address, healthz="/health")
    return Shop(folder, source.path("/large"), source.path("/norse"), cdc="debezium")


def letters(made: Shop) -> list[Any]:
    """Return the dead letters of the sink."""
    return made.deployed.deployment.catalog.dead_letters("Large")


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("0.5", 0.5, 0.5),
        ("soon", 0.0, 0.0),
        (timedelta(days=1), 86_000, 86_401),
        (timedelta(days=-1), -90_000, 0),
        ("Wed, 31 Feb 2026 00:00:00 GMT", 0.0, 0.0),
    ],
)
def test_a_server_says_in_seconds_or_by_a_date_when_to_try_again(
    header: str | timedelta, least: float, most: float
) -> None:
    if isinstance(header, timedelta):  # from now on: tests are collected long before they run
        header = format_datetime(datetime.now(UTC) + header, usegmt=True)
    assert least <= http_sink._retry_after(httpx.Response(503, headers={"Retry-After": header})) <= most


def test_a_text_with_a_nul_character_is_reported_with_its_row(postgres_server: PostgresServer) -> None:
    from umbel.connectors.postgres.sink import TableWriter
    from umbel.connectors.sinks import RowChange, SinkPosition, WriteOptions
    from umbel.types.dtypes import Dict, Int, List, Str
    from umbel.types.schema import Schema

    name = database(postgres_server)
    postgres_server.run("CREATE TABLE t(id int PRIMARY KEY, l text[], d jsonb, o text, at timestamptz)", database=name)
    schema = Schema((("id", Int()),), (("l", List(Str())), ("d", Dict(Int())), ("o", Str())), "at")
    connector = postgres_source(postgres_server, name).table("t")
    writer = TableWriter(connector._server, "t", WriteOptions(id="x", dataset="T", schema=schema, renames={}))
    writer.position()
    row = {"id": 1, "l": ["a"], "d": {"a": 1}, "o": "\\u0000", "at": "2026-03-01T00:00:00Z"}  # six characters
    writer.write([RowChange({"id": 1}, None, row, 0)], SinkPosition(4, 0))
    assert postgres_server.run("SELECT o FROM t WHERE id = 1", database=name) == [("\\u0000",)]
    for bad in ({"o": "a\0b"}, {"l": ["a", "\0"]}, {"d": {"\0": 1}}):
        with pytest.raises(InvalidValue, match=r"column '[old]' of the row \{'id': 1\} has a NUL") as report:
            writer.write([RowChange({"id": 1}, None, row | bad, 0)], SinkPosition(5, 0))
        assert report.value.hint
    assert writer.position() == SinkPosition(4, 0)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_a_status_of_the_endpoint_refuses_no_row(tmp_path: Path, status: int) -> None:
    endpoint = Endpoint(lambda: (status, None))
    with endpoint.running() as address, contextlib.closing(shop(address, tmp_path)) as made:
        made.sell(20)
        made.drain()
        for _ in range(2):
            with pytest.raises(UmbelError, match=f"POST /large: status {status}"):
                made.delivery("Large").step()
        assert len(endpoint.requests) == 0
        endpoint.fails = lambda: (None, None)
        made.deliver()
        assert (letters(made), len(endpoint.rows("/large"))) == ([], 1)


def test_a_request_that_is_too_large_is_sent_in_parts(tmp_path: Path) -> None:
    class Small(Endpoint):
        def take(self, path: str, key: str, body: bytes) -> int | None:
            return 413 if len(json.loads(body)) > 3 else super().take(path, key, body)

    endpoint = Small()
    with endpoint.running() as address, contextlib.closing(shop(address, tmp_path)) as made:
        made.sell(*[20.0 + n for n in range(17)])
        made.deliver()
        assert [row["after"]["amount"] for row in endpoint.rows("/large")] == [20.0 + n for n in range(17)]
        assert letters(made) == []


@pytest.mark.parametrize("size", [1000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_large_rows_are_several_statements(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Postgres closes the connection at a message of a gigabyte."""
    from umbel.connectors.postgres import sink
    from umbel.connectors.sinks import RowChange, SinkPosition, WriteOptions
    from umbel.types.dtypes import Int, Str
    from umbel.types.schema import Schema

    if size == 1000:
        monkeypatch.setattr(sink, "AT_ONCE", 10_000)
    name, count = database(postgres_server), 1100
    postgres_server.run("CREATE TABLE t(id int PRIMARY KEY, s text, at timestamptz)", database=name)
    schema = Schema((("id", Int()),), (("s", Str()),), "at")
    options = WriteOptions(id="x", dataset="T", schema=schema, renames={})
    writer = sink.TableWriter(postgres_source(postgres_server, name).table("t")._server, "t", options)
    writer.position()
    rows = [{"id": number, "s": "x" * size, "at": "2026-03-01T00:00:00Z"} for number in range(count)]
    writer.write([RowChange({"id": row["id"]}, None, row, 0) for row in rows], SinkPosition(1))
    found = postgres_server.run("SELECT count(*), min(length(s)), max(length(s)) FROM t", database=name)
    assert found == [(count, size, size)]
    assert len([*sink._arrays(rows)]) > 10
    writer.write([RowChange({"id": row["id"]}, row, None, 0) for row in rows], SinkPosition(2))
    assert postgres_server.run("SELECT count(*) FROM t", database=name) == [(0,)]
