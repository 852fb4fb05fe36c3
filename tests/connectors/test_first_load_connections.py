"""The connections of a first load: how many there are, and what a stop closes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.connectors.loaded_tables import Database, analyzed, events, filled, made, reader_of
from tests.connectors.shop_datasets import deployed, until
from tests.deployed import wait_until
from tests.extending.test_connector_contract import Poller
from umbel.connectors.mysql import cursor as mysql_cursor
from umbel.connectors.mysql import reading
from umbel.connectors.postgres import cursor as postgres_cursor

__owner__ = "shop@example.com"


def test_no_more_connections_than_documented(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMBEL_FIRST_READ_CONNECTIONS", "3")
    made(database, "number")
    filled(database, 40_000)
    analyzed(database)
    seen, stop = [0], threading.Event()
    with database.connect() as connection:

        def active() -> int:
            """Ask by one connection: one that is closed is still counted for a while."""
            cursor = connection.cursor()
            cursor.execute(database.active)
            return int(cursor.fetchone()[0])

        def watch() -> None:
            while not stop.is_set():
                seen.append(active())

        wait_until(lambda: active() == 0, lambda: "connections of this test stay", 30)
        watcher = threading.Thread(target=watch)
        watcher.start()
        with deployed(tmp_path, events(database, "number", "40d")) as worker:
            try:
                until(worker, lambda: worker.taken().get("Events", 0) >= 40_000)
            finally:
                stop.set()
                watcher.join()
            assert 2 <= max(seen) <= 3 + 1, "one more waits for the end of the read"
            wait_until(lambda: active() <= 1, lambda: "connections stay", 30)


def test_a_stop_within_a_copy_is_no_error(database: Database, tmp_path: Path) -> None:
    """The rest of the rows is read after it."""
    made(database, "number")
    filled(database, 300)
    reader, poller = reader_of(database, tmp_path, "number"), Poller()
    poller.is_stopping = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PART_BYTES", 1)
        patch.setattr(reading, "AT_ONCE", 100)
        patch.setattr(mysql_cursor, "LARGE", 100_000)
        patch.setattr(postgres_cursor, "LARGE", 100_000)
        reader.read_on(poller)
    assert not reader.stage.state().get("loaded")
    poller.is_stopping = False
    reader.read_on(poller)
    assert reader.stage.state()["loaded"]
    assert sum(reader.stage.read(each).height for each in reader.stage.numbers()) == 300
