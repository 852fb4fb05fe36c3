"""The worker is killed while Iceberg and Hudi tables are written; the datasets become what the tables are."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.connectors.killing import Worker, killed
from tests.connectors.shop_datasets import deployed, letters, orders, rows_of
from tests.deployed import Deployed, wait_until
from tests.seeds import new_seed
from tests.unit.connectors import hudi_lake, iceberg_lake
from tests.unit.connectors.iceberg_deltas import Delta
from umbel.connectors import source
from umbel.datasets import dataset

__owner__ = "shop@example.com"
STEPS, PER_STEP = 10, 400
GROUPS = 10
Rows = list[tuple[Any, ...]]


class IcebergTables:
    """The tables `orders`, which changes, and `events`, to which rows are added.

    Args:
        folder: of the tables.
        first: the rows they have at first.
    """

    def __init__(self, folder: Path, first: int) -> None:
        self.lake = iceberg_lake.Lake(folder)
        self.lake.create()
        self.events = self.lake.catalog.create_table("shop.events", schema=iceberg_lake.SCHEMA)
        for start in range(0, first, first // GROUPS):
            self.add(range(start, start + first // GROUPS), "first")

    def table(self, name: str, _: Any = None) -> Any:
        return self.lake.table(name)

    def add(self, ids: range, note: str) -> None:
        for name in ("orders", "events"):
            self.lake.catalog.load_table(f"shop.{name}").append(iceberg_lake.table(ids, note))

    def change(self, low: int, new: range) -> None:
        """Add, replace, delete and move rows."""
        self.add(new, "new")
        merged = iceberg_lake.table(range(low, low + 100), "merged")
        self.lake.opened.overwrite(merged, overwrite_filter=f"id >= {low} AND id < {low + 100}")
        self.lake.opened.delete(f"id >= {low + 50} AND id < {low + 90}")
        moved = iceberg_lake.table(range(-low - 210, -low - 200), "moved")
        self.lake.opened.overwrite(moved, overwrite_filter=f"id >= {low + 200} AND id < {low + 210}")

    def rows(self, name: str) -> Rows:
        found = self.lake.catalog.load_table(f"shop.{name}").scan().to_arrow()
        return sorted(zip(*(found[each].to_pylist() for each in ("id", "note", "updated_at")), strict=True))


class StreamedTables(IcebergTables):
    """The same in Iceberg, with changes as a stream writer commits them: by equality deletes, and positions within a snapshot."""

    def __init__(self, folder: Path, first: int) -> None:
        self.notes = dict.fromkeys(range(first), "first")
        super().__init__(folder, first)

    def change(self, low: int, new: range) -> None:
        """Add, replace and delete rows."""
        self._commit([*new, *range(low, low + 100)], "merged")
        self._commit([], "", deleted=range(low + 50, low + 90))
        self._commit(range(low + 80, low + 95), "again", deleted=range(low + 200, low + 210))
        self.lake.catalog.load_table("shop.events").append(iceberg_lake.table(new, "new"))

    def _commit(self, ids: Sequence[int], note: str, deleted: Sequence[int] = ()) -> None:
        delta = Delta(self.lake.opened)
        delta.equality(iceberg_lake.table([*ids, *deleted], ""), [1])
        if ids:
            file = delta.data(pa.concat_tables([iceberg_lake.table(ids, each) for each in ("before", note)]))
            delta.positions((file, row) for row in range(len(ids)))
        delta.commit()
        notes = {**self.notes, **dict.fromkeys(ids, note)}
        self.notes = {each: text for each, text in notes.items() if each not in deleted}

    def rows(self, name: str) -> Rows:
        if name == "events":
            return super().rows(name)
        return [(each, text, iceberg_lake.START + timedelta(seconds=each)) for each, text in sorted(self.notes.items())]


class HudiTables:
    """The same in Hudi, with rows in file groups."""

    def __init__(self, folder: Path, first: int) -> None:
        self.orders, self.events = hudi_lake.Lake(folder / "a"), hudi_lake.Lake(folder / "b")
        self.size = first // GROUPS
        for number in range(GROUPS):
            rows = hudi_lake.numbered(range(number * self.size, (number + 1) * self.size), "first")
            for table in (self.orders, self.events):
                table.commit({_group(number): rows}, _instant())

    def table(self, name: str, _: Any = None) -> Any:
        return (self.orders if name == "orders" else self.events).table("orders")

    def change(self, low: int, new: range) -> None:
        """Replace, delete and move rows of one file, and add rows to another one."""
        number = low // self.size
        rows = dict(self.orders.groups[_group(number)])
        rows |= {each: "merged" for each in range(low, low + 100) if each in rows}
        rows |= {-each: "moved" for each in range(low + 200, low + 210) if rows.pop(each, None)}
        rows = {each: note for each, note in rows.items() if not low + 50 <= each < low + 90}
        added = _group(GROUPS + new.start % 3)
        self.orders.commit({_group(number): rows}, _instant())
        for table in (self.orders, self.events):
            more = {**table.groups.get(added, {}), **hudi_lake.numbered(new)}
            table.commit({added: more}, _instant())

    def rows(self, name: str) -> Rows:
        return (self.orders if name == "orders" else self.events).rows()


def _group(number: int) -> str:
    return f"{number:08d}-1111-1111-1111-111111111111-0"


def _instant() -> str:
    time.sleep(0.001)  # commits of one millisecond would have one name
    return datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")[:-3]


def events(tables: Any) -> Any:
    @source(tables.table("events"), disorder="60d", cdc="native", every="1s")
    @dataset
    class Events:
        id: int
        note: str
        updated_at: datetime

    return Events


def written(tables: Any, chance: random.Random, first: int) -> None:
    for step in range(STEPS):
        tables.change(chance.randrange(first - 300), range(first + step * PER_STEP, first + (step + 1) * PER_STEP))
        time.sleep(chance.uniform(0.0, 0.5))


def differences(made: Deployed, tables: Any) -> list[Any]:
    found = {
        "orders": rows_of(made, "Orders", ["id", "note", "updated_at"]),
        "events": sorted(made.changes("Events").select("id", "note", "updated_at").rows()),
    }
    return [
        (name, len(rows), len(there)) for name, rows in found.items() if (there := sorted(tables.rows(name))) != rows
    ]


@pytest.mark.parametrize(
    ("make", "first", "kills"),
    [
        pytest.param(IcebergTables, 100_000, 5, id="iceberg", marks=pytest.mark.nightly),
        pytest.param(StreamedTables, 20_000, 3, id="streamed"),
        pytest.param(StreamedTables, 20_000, 5, id="streamed, more kills", marks=pytest.mark.nightly),
        pytest.param(HudiTables, 100_000, 5, id="hudi", marks=pytest.mark.nightly),
        *(
            pytest.param(each, 1_000_000, 5, id=f"a million rows of {each.__name__}", marks=pytest.mark.nightly)
            for each in (IcebergTables, StreamedTables, HudiTables)
        ),
    ],
)
def test_the_datasets_are_what_the_tables_are(
    make: Callable[[Path, int], Any], first: int, kills: int, tmp_path: Path
) -> None:
    chance = random.Random(seed := new_seed())
    tables = make(tmp_path / "lake", first)
    keyed = orders(tables, cdc="native", every="1s", disorder="60d")
    with deployed(tmp_path, keyed, events(tables)) as made:
        log = tmp_path / "worker.log"
        worker = Worker(tmp_path / "umbel", log)
        writer = threading.Thread(target=written, args=(tables, random.Random(seed + 1), first))
        try:
            killed(worker, writer, kills, chance)

            def is_done() -> bool:
                worker.mind()
                return differences(made, tables) == []

            wait_until(is_done, lambda: (differences(made, tables), log.read_text()[-3000:]), 120 + first // 5_000)
            assert [each.reason for each in letters(made)] == []
        finally:
            worker.end()
            writer.join()
