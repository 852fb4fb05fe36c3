"""The lag of tables of a real PostgreSQL server: what is staged, what the server's log has, and why it cannot be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.connectors.postgres_shop import ORDERS, followed, shop
from tests.connectors.shop_datasets import deployed, orders, until
from tests.connectors.test_postgres_changes import drained, native
from tests.servers.postgres import PostgresServer
from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller, stop_polling
from umbel.runtime import source_lags as module
from umbel.runtime.batch import drain
from umbel.runtime.source_lags import MeasuredLag, source_lags


@pytest.fixture
def name(postgres_server: PostgresServer) -> Iterator[str]:
    yield from followed(postgres_server)


@pytest.mark.parametrize("cdc", ["native", "upsert"])
def test_rows_wait_until_they_are_in_a_batch(
    postgres_server: PostgresServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdc: str
) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    run = partial(postgres_server.run, database=name)
    run(ORDERS)
    read = native(postgres_server, name) if cdc == "native" else orders(shop(postgres_server, name))
    with deployed(tmp_path, read) as made:

        def lag() -> SourceLag:
            (found,) = source_lags(made.deployment.directory)
            assert found.trouble == ""
            return found.lag

        until(made, lambda: drained(made) and not lag().is_behind)
        run("INSERT INTO orders SELECT i, 'n', now() FROM generate_series(1, 500) i")
        found = list[MeasuredLag]()
        deadline = time.monotonic() + 60
        while made.taken().get("Orders") != 500:
            assert time.monotonic() < deadline
            drain(made.deployment, 1)
            found += source_lags(made.deployment.directory)
            time.sleep(0.05)
        most = max(found, key=lambda each: each.lag.rows or 0).lag
        assert most.rows == 500
        assert (most.bytes or 0) > 500
        until(made, lambda: lag() == SourceLag(0, 0, 0.0))


def test_the_log_of_the_server_is_ahead(
    postgres_server: PostgresServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written while nothing read it is reported when reading begins anew, and is gone when it was read."""
    run = partial(postgres_server.run, database=name)
    run(ORDERS)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        (source,) = made.deployment._sources()[1]
        stop_polling(tmp_path)
        run("INSERT INTO orders SELECT i, repeat('x', 100), now() FROM generate_series(1, 50000) i")
        reported = list[SourceLag]()
        progressed = Poller.progressed

        def note(poller: Poller, lag: SourceLag) -> None:
            reported.append(lag)
            progressed(poller, lag)

        monkeypatch.setattr(Poller, "progressed", note)
        until(made, lambda: made.taken().get("Orders") == 50_000)
        assert max(each.bytes or 0 for each in reported) > 5_000_000
        until(
            made,
            lambda: (
                (source.reading.lag({"part": 1 << 40}).bytes, source.reading.lag({"part": 1 << 40}).seconds) == (0, 0.0)
            ),
        )


def test_a_server_that_is_gone_is_reported(
    postgres_server: PostgresServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    postgres_server.run(ORDERS, database=name)
    with deployed(tmp_path, native(postgres_server, name)) as made:
        until(made, lambda: drained(made))
        postgres_server.kill()
        try:
            deadline = time.monotonic() + 60
            while not source_lags(made.deployment.directory)[0].trouble:
                assert time.monotonic() < deadline
                drain(made.deployment)
                time.sleep(0.05)
            (found,) = source_lags(made.deployment.directory)
            assert found.is_bad
            assert "can be reached" in found.remedy
        finally:
            postgres_server.start()
        until(made, lambda: not source_lags(made.deployment.directory)[0].trouble)
