"""Rows of a Delta table whose timestamps are ahead of their commits, and what replaces them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.deployed import Deployed
from tests.seeds import seeds
from tests.unit.connectors.ahead import ChangedTable
from tests.unit.connectors.lakes import keyed, until
from tests.unit.connectors.test_delta_source import FEED, START, Lake, reading, reasons, stopped, taken


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def put(lake: Lake, row: int, note: str, at: datetime, **options: Any) -> None:
    rows = pa.table({"id": pa.array([row], pa.int64()), "note": [note], "updated_at": [at]})
    write_deltalake(lake.path, rows, **{"mode": "append", **options})


def changed(lake: Lake, row: int, note: str, at: datetime) -> None:
    instant = f"cast('{at.isoformat()}' as timestamp)"
    lake.opened.update(predicate=f"id = {row}", updates={"note": f"'{note}'", "updated_at": instant})


def table_of(lake: Lake, made: Deployed, folder: Path) -> ChangedTable:
    return ChangedTable(
        start=START,
        put=partial(put, lake),
        change=partial(changed, lake),
        delete=lambda condition: lake.opened.delete(condition),
        rows=lake.rows,
        settle=lambda: until(made, lambda: taken(made) == lake.rows()),
        stop=lambda: stopped(folder),
    )


def test_what_comes_later_replaces_a_row_that_is_ahead(lake: Lake, tmp_path: Path) -> None:
    lake.add([0], configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        table_of(lake, made, tmp_path).replace_rows_ahead()
        assert reasons(made) == []


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_any_changes_with_timestamps_of_any_clock(lake: Lake, tmp_path: Path, seed: int) -> None:
    lake.add([0], configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        table_of(lake, made, tmp_path).change_at_random(seed)
        assert reasons(made) == []
