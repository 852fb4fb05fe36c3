"""A catalog of Iceberg tables, and the datasets that they feed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
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


def as_deletes(lake: Lake, positions: Sequence[tuple[str, int]]) -> None:
    """Make the files that the newest snapshot added files of deleted positions, as PyIceberg does not write them.

    Args:
        lake: has the table.
        positions: the data files and rows that are deleted.
    """
    snapshot = lake.opened.current_snapshot()

    def rewritten(address: str, change: Callable[[Any], Any], metadata: dict[str, str]) -> None:
        path = Path(address.removeprefix("file://"))
        with path.open("rb") as file:
            found = fastavro.reader(file)
            schema, header, records = found.writer_schema, found.metadata, [change(dict(each)) for each in found]
        header = {name: value for name, value in header.items() if not name.startswith("avro.")} | metadata
        with path.open("wb") as file:
            fastavro.writer(file, schema, records, metadata=header)

    def entry(record: Any) -> Any:
        data = {**record["data_file"], "content": 1}
        paths, rows = zip(*positions, strict=True)
        at = Path(data["file_path"].removeprefix("file://"))
        pq.write_table(pa.table({"file_path": list(paths), "pos": pa.array(rows, pa.int64())}), at)
        data["file_size_in_bytes"] = at.stat().st_size
        return {**record, "data_file": data}

    for manifest in snapshot.manifests(lake.opened.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            rewritten(manifest.manifest_path, entry, {"content": "deletes"})
    rewritten(
        snapshot.manifest_list,
        lambda each: {**each, "content": 1 if each["added_snapshot_id"] == snapshot.snapshot_id else each["content"]},
        {},
    )


def expired(lake: Lake, number: int) -> None:
    """Leave a snapshot out of the metadata, as other libraries expire it: the one after it goes on naming it."""
    path = max(lake.folder.rglob("shop/orders/metadata/*.metadata.json"))
    metadata = json.loads(path.read_text())
    for name in ("snapshots", "snapshot-log"):
        metadata[name] = [each for each in metadata[name] if each["snapshot-id"] != number]
    path.write_text(json.dumps(metadata))
