"""Rows of a Delta table whose timestamps are ahead of their commits, and what replaces them."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.unit.connectors.lakes import keyed, until
from tests.unit.connectors.test_delta_source import FEED, START, Lake, reading, reasons, stopped, taken

AHEAD = START + timedelta(days=30)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def put(lake: Lake, row: int, note: str, at: datetime, **options: Any) -> None:
    rows = pa.table({"id": pa.array([row], pa.int64()), "note": [note], "updated_at": [at]})
    write_deltalake(lake.path, rows, **{"mode": "append", **options})


def changed(lake: Lake, row: int, note: str, at: datetime) -> None:
    instant = f"cast('{at.isoformat()}' as timestamp)"
    lake.opened.update(predicate=f"id = {row}", updates={"note": f"'{note}'", "updated_at": instant})


def test_what_comes_later_replaces_a_row_that_is_ahead(lake: Lake, tmp_path: Path) -> None:
    lake.add([0], configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        for row in (1, 2, 3, 4):
            put(lake, row, "ahead", AHEAD)
        until(made, lambda: taken(made) == lake.rows())
        changed(lake, 1, "changed", START)
        lake.opened.delete("id = 2 OR id = 3")
        until(made, lambda: taken(made) == lake.rows())
        put(lake, 2, "again", START)
        put(lake, 3, "again", AHEAD + timedelta(days=1))
        changed(lake, 4, "later", AHEAD + timedelta(days=1))
        changed(lake, 4, "now", START)
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []


@pytest.mark.parametrize("seed", range(3))
def test_any_changes_with_timestamps_of_any_clock(lake: Lake, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lake.add([0], configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        for step in range(24):
            row, at = chance.randrange(3), START + timedelta(days=chance.choice([0, 0, 1, 20, 30]), seconds=step)
            if any(row == there for there, *_ in lake.rows()):
                if chance.random() < 0.5:
                    lake.opened.delete(f"id = {row}")
                else:
                    changed(lake, row, f"n{step}", at)
            else:
                put(lake, row, f"n{step}", at)
            if step % 6 == 5:
                until(made, lambda: taken(made) == lake.rows())
                stopped(tmp_path)
        assert reasons(made) == []
