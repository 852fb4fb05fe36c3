"""Iceberg tables as sources: each snapshot once, by the files that it adds and removes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from tests.connectors import shop_datasets
from tests.connectors.shop_datasets import deployed, process
from tests.unit.connectors.iceberg_lake import START, Lake, lake, reasons, table, taken
from tests.unit.connectors.lakes import keyed, keyless, until
from umbel.connectors import source
from umbel.connectors.iceberg_source import moved_removed
from umbel.connectors.iceberg_tables import IcebergPlace
from umbel.connectors.polling import stop_polling
from umbel.connectors.versioned_source import KIND
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal as DecimalOf

__all__ = ["lake"]
__owner__ = "shop@example.com"


@pytest.mark.parametrize("by", ["catalog", "folder"])
def test_a_keyed_dataset_is_what_the_table_is(tmp_path: Path, by: str) -> None:
    lake = Lake(tmp_path / "lake", by)
    lake.add(range(100))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.add(range(100, 120))
        lake.opened.delete("id >= 20 AND id < 30")
        lake.opened.upsert(table(range(25, 130), "merged"), join_cols=["id"])
        lake.opened.overwrite(table([3], "over"), overwrite_filter="id = 3")
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []
        assert made.taken()["Orders"] == 100 + 20 + 10 + (90 + 105) + (1 + 1), (
            "rows of rewritten files that stay are no changes"
        )


def test_only_new_data_files_are_read(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.add(range(10))
    read, original = list[str](), IcebergPlace.rows

    def watched(place: Any, file: Any, types: Any) -> Iterator[Any]:
        read.append(file.entry.file.file_path)
        return original(place, file, types)

    monkeypatch.setattr(IcebergPlace, "rows", watched)
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 10)
        lake.add(range(10, 20))
        lake.add(range(20, 30))
        until(made, lambda: made.taken()["Copies"] == 30)
        process(made, 2)
    assert len(read) == len(set(read)) == 3
    assert taken(made, "Copies") == lake.rows()


def test_changes_of_a_keyless_dataset_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(10))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 10)
        lake.opened.delete("id = 3")
        lake.add([11])
        until(made, lambda: made.taken()["Copies"] == 12)
        assert [each for each in reasons(made) if "a deletion of a row: the dataset has no key fields" in each]
        assert len(reasons(made)) == 1
        assert len(taken(made, "Copies")) == 11


def test_an_empty_table_and_one_without_snapshots(lake: Lake, tmp_path: Path) -> None:
    lake.create()
    with deployed(tmp_path, keyless(lake)) as made:
        process(made, 1.5)
        lake.add([1, 2])
        lake.opened.append(table([1], "")[:0])
        until(made, lambda: made.taken().get("Copies") == 2)
        lake.opened.delete("id > 0")
        until(made, lambda: len(reasons(made)) == 2)


def test_a_restart_between_snapshots_and_within_one(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.connectors import versioned_source

    monkeypatch.setattr(versioned_source, "PART_ROWS", 7)
    lake.add(range(50))
    lake.add(range(50, 100))
    with deployed(tmp_path, keyless(lake)) as made:
        for first in range(100, 300, 50):
            until(made, lambda: made.taken().get("Copies", 0) >= 10)
            stop_polling(tmp_path)
            lake.add(range(first, first + 50))
            shop_datasets.drain(made.deployment)
            stop_polling(tmp_path)
        until(made, lambda: made.taken().get("Copies", 0) >= 300)
        assert taken(made, "Copies") == lake.rows()


def test_added_columns_are_ignored_and_promoted_ones_go_on(lake: Lake, tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "part", FloatType()),
        NestedField(3, "at", TimestamptzType()),
    )
    lake.create(schema)

    @source(lake.table("orders"), disorder="60d", cdc="native", every="1s")
    @dataset
    class Parts:
        id: int
        part: float
        at: datetime

    def rows(number: int, wide: bool) -> Any:
        id_type, part_type = (pa.int64(), pa.float64()) if wide else (pa.int32(), pa.float32())
        at = pa.array([START], pa.timestamp("us", "UTC"))
        return pa.table({"id": pa.array([number], id_type), "part": pa.array([0.5], part_type), "at": at})

    lake.opened.append(rows(1, wide=False))
    with deployed(tmp_path, Parts) as made:
        until(made, lambda: made.taken().get("Parts") == 1)
        lake.opened.append(rows(2, wide=False))
        with lake.opened.update_schema() as change:
            change.update_column("id", LongType())
            change.update_column("part", DoubleType())
            change.add_column("more", StringType())
        lake.opened.append(rows(1 << 40, wide=True))
        until(made, lambda: made.taken()["Parts"] == 3)
        assert sorted(made.changes("Parts").select("id", "part").rows()) == [(1, 0.5), (2, 0.5), (1 << 40, 0.5)]
        assert reasons(made) == []


def test_compaction_is_no_change(lake: Lake, tmp_path: Path) -> None:
    """A snapshot whose operation says that it only writes the same rows to other files."""
    lake.add(range(10))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 10)
        lake.opened.overwrite(lake.opened.scan().to_arrow())
        lake.add([10])
        until(made, lambda: made.taken()["Copies"] >= 11)
        process(made, 1.5)
        assert reasons(made).count("") == 0
        assert len([each for each in taken(made, "Copies") if each[0] == 10]) == 1


@pytest.mark.parametrize(
    "spec",
    [
        PartitionSpec(PartitionField(3, 1000, DayTransform(), "day")),
        PartitionSpec(
            PartitionField(1, 1000, BucketTransform(4), "bucket"), PartitionField(2, 1001, TruncateTransform(1), "t")
        ),
        PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note")),
    ],
    ids=["day", "bucket and truncate", "identity"],
)
def test_hidden_partitions(lake: Lake, tmp_path: Path, spec: PartitionSpec) -> None:
    lake.create(partition_spec=spec)
    lake.opened.append(pa.concat_tables([table(range(50), "ä/% b"), table(range(50, 100), "c")]))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.opened.append(table(range(100, 200), "d"))
        lake.opened.delete("note = 'c'")
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []


def test_a_table_whose_columns_and_partitions_changed_before_and_between_reads(lake: Lake, tmp_path: Path) -> None:
    before = Schema(
        NestedField(1, "id", IntegerType()), NestedField(2, "remark", StringType()), NestedField(3, "note", LongType())
    )
    lake.create(before)
    lake.opened.append(pa.table({"id": pa.array([1], pa.int32()), "remark": ["a"], "note": [7]}))
    with lake.opened.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("note").rename_column("remark", "text").update_column("id", LongType())
    with lake.opened.update_schema() as change:
        change.rename_column("text", "note").add_column("updated_at", TimestamptzType())
    lake.opened.append(table([2], "b"))

    @source(lake.table("orders"), disorder="60d", cdc="native", every="1s", preproc={"at": START})
    @dataset
    class Rows:
        id: int
        note: str
        updated_at: Optional[datetime]
        at: datetime = field(timestamp=True)

    with deployed(tmp_path, Rows) as made:
        until(made, lambda: made.taken().get("Rows") == 2)
        with lake.opened.update_spec() as spec:
            spec.add_field("id", BucketTransform(2), "bucket")
        lake.opened.append(table([3, 4], "c"))
        with lake.opened.update_spec() as spec:
            spec.remove_field("bucket")
        lake.opened.append(table([5], "d"))
        until(made, lambda: made.taken()["Rows"] == 5)
        assert reasons(made) == []
        found = made.changes("Rows").select("id", "note", "updated_at").sort("id").rows()
    assert found == sorted(lake.rows())
    assert found[0] == (1, "a", None)


def test_types(lake: Lake, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "at": pa.array([START], pa.timestamp("us", "UTC")),
            "naive": pa.array([datetime(2024, 1, 1)], pa.timestamp("us")),
            "day": pa.array([date(2024, 2, 29)]),
            "exact": pa.array([Decimal("12345678901234567.89")], pa.decimal128(38, 2)),
            "raw": pa.array([b"\x00\xff"], pa.binary()),
            "yes": [True],
            "numbers": pa.array([[1, None]], pa.list_(pa.int64())),
            "size": pa.array([{"width": 1}], pa.struct([("width", pa.int64())])),
            "nothing": pa.array([None], pa.string()),
        }
    )
    lake.catalog.create_table("shop.orders", schema=rows.schema).append(rows)

    @source(lake.table("orders"), disorder="60d", cdc="native", every="1s")
    @dataset
    class Things:
        at: datetime = field(timestamp=True)
        naive: datetime
        day: date
        exact: DecimalOf[2]
        raw: bytes
        yes: bool
        numbers: list[Optional[int]]
        nothing: Optional[str]

    with deployed(tmp_path, Things) as made:
        until(made, lambda: made.taken().get("Things") == 1)
        assert reasons(made) == []
        (found,) = made.changes("Things").select(list(Things.schema())).to_dicts()
    assert found == {
        **{name: values[0] for name, values in rows.to_pydict().items() if name in found},
        "naive": datetime(2024, 1, 1, tzinfo=UTC),
    }


def test_rows_that_only_moved_are_no_changes() -> None:
    rows = pl.DataFrame(
        {
            "id": [1, 1, 2, 3, 1, 2, 4, None, None],
            "list": [[1], [1], None, [3], [1], None, [4], [], []],
            KIND: ["delete", "delete", "delete", "delete", "insert", "insert", "insert", "delete", "insert"],
        }
    )
    assert moved_removed(rows).select("id", KIND).rows() == [(1, "delete"), (3, "delete"), (4, "insert")]
