"""A lake whose table gets equality deletes, as stream writers make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.iceberg_deltas import Delta, naive_rows
from tests.unit.connectors.iceberg_lake import Lake, table
from umbel.connectors.iceberg_tables import IcebergPlace


class StreamLake(Lake):
    """A lake whose table a stream writer feeds."""

    def delta(self, **options: Any) -> Delta:
        return Delta(self.opened, **options)

    def upsert(self, ids: Sequence[int], note: str = "new") -> str:
        """Write rows as Flink does: with a deletion of each key, in one snapshot; return the address of the deletions."""
        if not self.made:
            self.create()
        delta = self.delta()
        delta.data(table(ids, note))
        path = delta.equality(table(ids, note), [1])
        delta.commit()
        return path

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[each] for each in (1, 2, 3)) for row in naive_rows(self.opened))

    @property
    def place(self) -> IcebergPlace:
        return IcebergPlace("table 'orders'", lambda: self.opened)


@pytest.fixture
def lake(tmp_path: Path) -> StreamLake:
    return StreamLake(tmp_path / "lake")


def read(lake: StreamLake, ids: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return some fields of the rows of the present snapshot, as they are read at first."""
    opened = lake.opened
    files = lake.place.files(opened, opened.current_snapshot().snapshot_id)
    types: Mapping[str, Any] = {str(each): {"id": each} for each in ids}
    return sorted(
        (row[:-1] for each in files for part in lake.place.rows(each, types) for row in part.rows()), key=repr
    )
