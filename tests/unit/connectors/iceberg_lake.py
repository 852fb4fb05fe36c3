"""A catalog of Iceberg tables, and the datasets that they feed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from tests.connectors.shop_datasets import letters, rows_of
from tests.deployed import Deployed
from umbel.connectors import Files, Iceberg

__owner__ = "shop@example.com"


START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=10)  # a deletion is an event of its own instant


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "note", StringType(), required=False),
    NestedField(3, "updated_at", TimestamptzType(), required=False),
)


class Lake:
    """A catalog in SQLite with the table `shop.orders`, and its dataset by catalog, by folder or by metadata file."""

    def __init__(self, folder: Path, by: str = "catalog") -> None:
        self.folder, self.by = folder, by
        folder.mkdir(parents=True)
        self.uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = load_catalog("lake", type="sql", uri=self.uri, warehouse=f"file://{folder}")
        self.catalog.create_namespace("shop")
        self.made = False

    def create(self, schema: Schema = SCHEMA, **options: Any) -> Any:
        self.made = True
        return self.catalog.create_table("shop.orders", schema=schema, **options)

    @property
    def opened(self) -> Any:
        return self.catalog.load_table("shop.orders")

    def table(self, name: str, _: Any = None) -> Any:
        if self.by == "catalog":
            return Iceberg(name="lake", uri=self.uri).table(f"shop.{name}")
        return Files(name="lake", folder=str(self.folder)).path(f"shop/{name}", format="iceberg")

    def add(self, ids: Sequence[int], note: str = "new") -> None:
        if not self.made:
            self.create()
        self.opened.append(table(ids, note))

    def rows(self) -> list[tuple[Any, ...]]:
        rows = self.opened.scan().to_arrow().to_pylist()
        return sorted((each["id"], each["note"], each["updated_at"]) for each in rows)


def table(ids: Sequence[int], note: str) -> Any:
    """Return rows, which are older than their snapshot."""
    at = pa.array([START + timedelta(seconds=number) for number in ids], pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [note] * len(ids), "updated_at": at})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def taken(made: Deployed, name: str = "Orders") -> list[tuple[Any, ...]]:
    if name == "Orders":
        return rows_of(made, name, ["id", "note", "updated_at"])
    return sorted(made.changes(name).select("id", "note", "updated_at").rows())


def reasons(made: Deployed) -> list[str]:
    """Return the reasons of rejected changes, and the reports of the source in order; equal ones are one dead letter."""
    (reading,) = (each.reading for each in made.deployment._sources()[1])
    parts = map(reading.stage.part, reading.stage.numbers())
    reports = [part.facts["report"] for part in parts if "report" in part.facts]
    return reports or [each.reason for each in letters(made)]
