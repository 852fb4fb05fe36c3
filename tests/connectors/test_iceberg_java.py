"""Iceberg tables that Iceberg's own library of Java writes, with deletes: the rows that it reads are read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers.iceberg_java import JavaTable, running
from umbel.connectors.iceberg_catalogs import from_path
from umbel.connectors.iceberg_tables import IcebergPlace
from umbel.connectors.versioned_source import KIND


@pytest.fixture(scope="module")
def gateway() -> Iterator[Any]:
    with running() as made:
        yield made


@pytest.fixture
def table(gateway: Any, tmp_path: Path) -> JavaTable:
    return JavaTable(gateway, tmp_path / "orders")


class Follower:
    """The rows of a table, read at first and followed by its snapshots."""

    def __init__(self, table: JavaTable) -> None:
        folder = str(table.folder)
        self.place = IcebergPlace("orders", lambda: from_path("orders", lambda: (folder, {})))
        self.rows, self.read_up_to = Counter[tuple[Any, ...]](), 0

    def first(self, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return fields of the rows of the present snapshot."""
        opened = self.place.opened()
        files = self.place.files(opened, opened.current_snapshot().snapshot_id)
        types = {str(each): {"id": each} for each in ids}
        return sorted(
            (row[:-1] for each in files for rows in self.place.rows(each, types) for row in rows.rows()), key=repr
        )

    def followed(self) -> list[tuple[Any, ...]]:
        """Return the fields 1 and 2 of all rows after the snapshots that are new."""
        opened = self.place.opened()
        history = opened.history()
        for each in history[self.read_up_to :]:
            for file in self.place.snapshot(opened, each.snapshot_id).files:
                for rows in self.place.rows(file, {"1": {"id": 1}, "2": {"id": 2}}):
                    for *row, kind in rows.select("1", "2", KIND).rows():
                        self.rows[tuple(row)] += 1 if kind == "insert" else -1
        self.read_up_to = len(history)
        assert min(self.rows.values(), default=0) >= 0
        return sorted(self.rows.elements(), key=repr)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_random_snapshots(table: JavaTable, seed: int) -> None:
    chance, follower = random.Random(seed), Follower(table)
    plain = table.java.spec()
    table.java.updateSpec().addField("note").commit()
    by_note, files = table.java.spec(), list[tuple[str, int, Any, Any, str]]()
    for _ in range(10):
        note = chance.choice("abc")
        spec, partition = chance.choice([(plain, None), (by_note, table.partition(by_note, note))])
        data, deletes = list[Any](), list[Any]()
        for _ in range(chance.randrange(3)):
            rows = [(chance.choice([None, *range(8)]), note) for _ in range(chance.randrange(1, 9))]
            data.append(table.data(rows, spec, partition))
            files.append((str(data[-1].path()), len(rows), spec, partition, note))
        for _ in range(chance.randrange(3)):
            ids = {chance.choice([None, *range(8)]) for _ in range(2)}
            if chance.random() < 0.5:
                deletes.append(table.equality([(each,) for each in ids], ["id"], spec, partition))
            else:
                deletes.append(table.equality([(each, note) for each in ids], ["id", "note"], spec, partition))
        if files and chance.random() < 0.5:
            path, rows_there, place, there, _ = chance.choice(files)
            deletes.append(table.positions([(path, chance.randrange(rows_there))], place, there))
        if data or deletes:
            table.commit(data, deletes)
            expected = table.rows(["id", "note"])
            assert follower.first([1, 2]) == expected
            assert follower.followed() == expected


def test_schemas_that_changed(table: JavaTable, gateway: Any) -> None:
    """Without dropped columns: the library itself fails on deletes by them."""
    follower, types, big = Follower(table), gateway.jvm.org.apache.iceberg.types.Types, 1 << 40
    table.commit([table.data([(each, "abcdef"[each]) for each in range(6)])], [])
    table.commit([], [table.equality([(0,)], ["id"]), table.equality([("b",)], ["note"])])
    table.java.updateSchema().renameColumn("id", "number").updateColumn("id", types.LongType.get()).commit()
    table.java.updateSchema().addColumn("id", types.StringType.get()).commit()
    left = [(2, None), (3, None), (4, None), (5, None)]
    assert follower.first([1, 3]) == table.rows(["number", "id"]) == left
    table.commit([table.data([(big, "x", "x"), (big + 1, "y", None)])], [])
    table.commit([], [table.equality([(big,)], ["number"]), table.equality([(big + 1, None)], ["number", "id"])])
    assert follower.first([1, 3]) == table.rows(["number", "id"]) == left
    table.commit([table.data([(big, "z", None)])], [])
    table.commit([table.data([(big, "z", "y")])], [table.equality([(None,)], ["id"])])
    assert follower.first([1, 3]) == table.rows(["number", "id"]) == [(big, "y")]
