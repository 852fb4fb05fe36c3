"""The worker and the bucket's server are killed while Delta tables are written; the datasets become what the tables are."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.connectors.killing import Worker
from tests.connectors.s3_shop import Place
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of
from tests.deployed import Deployed, wait_until
from tests.s3server import S3Server, started_or_skipped
from tests.seeds import new_seed
from umbel.connectors import S3, Files, source
from umbel.connectors.delta_tables import options_of
from umbel.datasets import dataset

__owner__ = "shop@example.com"
PER_STEP = 400
START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=10)  # a deletion is an event of its own instant
FEED = {"delta.enableChangeDataFeed": "true"}


@dataclass
class Tables:
    """The tables `orders`, with a change data feed, and `events`, without.

    Args:
        root: the address of their folder.
        options: of the storage.
        server: of the bucket, if they are in one.
        connector: returns the connector of a table.
    """

    root: str
    options: dict[str, str]
    server: S3Server | None
    connector: Any

    def table(self, name: str, _: Any = None) -> Any:
        return self.connector(name)

    def opened(self, name: str) -> DeltaTable:
        return DeltaTable(f"{self.root}/{name}", storage_options=self.options)

    def add(self, name: str, rows: Any, **options: Any) -> None:
        path = f"{self.root}/{name}"
        write_deltalake(path, rows, mode="append", storage_options=self.options, **options)

    def rows(self, name: str, *columns: str) -> list[Any]:
        found = self.opened(name).to_pyarrow_table(columns=list(columns))
        return sorted(zip(*(found[column].to_pylist() for column in columns), strict=True))


def rows_with(ids: Sequence[int], note: str) -> Any:
    at = pa.array([START + timedelta(seconds=number) for number in ids], pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [note] * len(ids), "updated_at": at})


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.nightly)])
def tables(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    if request.param == "folder":
        files = Files(name="lake", folder=str(tmp_path / "lake"))
        yield Tables(str(tmp_path / "lake"), {}, None, lambda name: files.path(name, format="delta"))
        return
    (tmp_path / "s3").mkdir()
    for server in started_or_skipped(tmp_path / "s3"):
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        place, options = Place(server), {**options_of(server.environment), **server.environment}

        def connector(name: str, place: Place = place) -> Any:
            return S3(name="lake").bucket(place.name, prefix=f"tables/{name}", format="delta")

        yield Tables(f"s3://{place.name}/tables", options, server, connector)


def events(tables: Tables) -> Any:
    @source(tables.table("events"), disorder="60d", cdc="native", every="1s")
    @dataset
    class Events:
        id: int
        updated_at: datetime

    return Events


def written(tables: Tables, chance: random.Random, first: int, steps: int) -> None:
    """Change tables of so many rows; a change that fails while the server is away is left out, or is there all the same."""
    for step in range(steps):
        new = range(first + step * PER_STEP, first + (step + 1) * PER_STEP)
        low = chance.randrange(first // 2)

        def merged(new: range = new, low: int = low) -> None:
            rows = rows_with([*range(low, low + 100), *new], "merged")
            merge = tables.opened("orders").merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

        changes = [
            merged,
            lambda new=new: tables.add("events", rows_with(new, "e")),
            lambda low=low: tables.opened("orders").delete(f"id BETWEEN {low + 50} AND {low + 90}"),
            lambda low=low: tables.opened("orders").update(
                predicate=f"id BETWEEN {low + 200} AND {low + 210}", updates={"id": "-id", "note": "'moved'"}
            ),
        ]
        if step % 20 == 19:
            changes.append(lambda: tables.opened("events").optimize.compact())
        for change in changes:
            with contextlib.suppress(Exception):
                change()
        time.sleep(chance.uniform(0.0, 0.1))


def differences(made: Deployed, tables: Tables) -> list[Any]:
    columns = ["id", "note", "updated_at"]
    table, rows = tables.rows("orders", *columns), rows_of(made, "Orders", columns)
    copied, taken = tables.rows("events", "id"), sorted(made.changes("Events").select("id").rows())
    found = [("Orders", len(table), len(rows))] if table != rows else []
    return found + ([("Events", len(copied), len(taken))] if copied != taken else [])


@pytest.mark.parametrize(
    ("first", "steps", "kills"),
    [(20_000, 40, 3), *(pytest.param(first, 60, 5, marks=pytest.mark.nightly) for first in (50_000, 1_000_000))],
)
def test_the_datasets_are_what_the_tables_are(
    tables: Tables, tmp_path: Path, first: int, steps: int, kills: int
) -> None:
    chance = random.Random(seed := new_seed())
    tables.add("orders", rows_with(range(first // 2), "first"), configuration=FEED)
    tables.add("orders", rows_with(range(first // 2, first), "first"))
    tables.add("events", rows_with(range(first), "first"))
    keyed = orders(tables, cdc="native", every="1s", disorder="60d")
    with deployed(tmp_path, keyed, events(tables)) as made:
        log = tmp_path / "worker.log"
        worker = Worker(tmp_path / "umbel", log)
        writer = threading.Thread(target=written, args=(tables, random.Random(seed + 1), first, steps))
        writer.start()
        try:
            victims = ["worker", "server"] * kills if tables.server else ["worker"] * kills
            for victim in chance.sample(victims, kills):
                worker.mind()
                time.sleep(chance.uniform(0.5, 2.5))
                if victim == "server" and tables.server is not None:
                    tables.server.kill()
                    time.sleep(chance.uniform(0.0, 0.5))
                    tables.server.start()
                else:
                    worker.kill("driver")
            writer.join()

            def is_done() -> bool:
                worker.mind()
                return differences(made, tables) == []

            wait_until(is_done, lambda: (differences(made, tables), log.read_text()[-3000:]), 120 + first // 5_000)
            assert [each.reason for each in letters(made)] == []
            assert tables.opened("orders").version() > steps
        finally:
            worker.end()
            writer.join()
