"""Rows of an Iceberg table whose timestamps are ahead of their snapshots, and what replaces them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.connectors.shop_datasets import deployed
from tests.deployed import Deployed
from tests.seeds import seeds
from tests.unit.connectors.ahead import ChangedTable
from tests.unit.connectors.iceberg_lake import SCHEMA, START, Lake, lake, reasons, taken
from tests.unit.connectors.lakes import is_forgotten, keyed, until
from umbel.connectors.polling import stop_polling

__all__ = ["lake"]


def row_of(row: int, note: str, at: datetime) -> Any:
    id_field = pa.field("id", pa.int64(), nullable=False)
    schema = pa.schema([id_field, ("note", pa.string()), ("updated_at", pa.timestamp("us", "UTC"))])
    return pa.table({"id": [row], "note": [note], "updated_at": [at]}, schema)


def changed(lake: Lake, row: int, note: str, at: datetime) -> None:
    lake.opened.overwrite(row_of(row, note, at), overwrite_filter=f"id = {row}")


def table_of(lake: Lake, made: Deployed, folder: Path) -> ChangedTable:
    return ChangedTable(
        start=START,
        put=lambda row, note, at: lake.opened.append(row_of(row, note, at)),
        change=partial(changed, lake),
        delete=lambda condition: lake.opened.delete(condition),
        rows=lake.rows,
        settle=lambda: until(made, lambda: taken(made) == lake.rows()),
        stop=lambda: stop_polling(folder),
    )


def test_what_comes_later_replaces_a_row_that_is_ahead(lake: Lake, tmp_path: Path) -> None:
    lake.add([0])
    with deployed(tmp_path, keyed(lake)) as made:
        table_of(lake, made, tmp_path).replace_rows_ahead()
        assert reasons(made) == []


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_any_changes_with_timestamps_of_any_clock(lake: Lake, tmp_path: Path, seed: int) -> None:
    lake.add([0])
    with deployed(tmp_path, keyed(lake)) as made:
        table_of(lake, made, tmp_path).change_at_random(seed)
        assert reasons(made) == []


def test_a_row_with_an_old_timestamp_comes_back_after_a_restart(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staged deletion is not there any more; the table says what identifies a row."""
    monkeypatch.setattr("umbel.connectors.staging.RETAINED_FOR", 0.0)
    fields = [NestedField(1, "id", LongType(), required=True), *SCHEMA.fields[1:]]
    lake.create(Schema(*fields, identifier_field_ids=[1]))
    lake.opened.append(row_of(1, "first", START))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.opened.delete("id = 1")
        until(made, lambda: taken(made) == [])
        lake.opened.append(row_of(2, "another", START))
        until(made, lambda: taken(made) == lake.rows() and is_forgotten(made, 2))
        stop_polling(tmp_path)
        lake.opened.append(row_of(1, "again", START))
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []
