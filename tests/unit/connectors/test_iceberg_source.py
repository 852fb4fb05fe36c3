"""Iceberg tables as sources: each snapshot once, by the files it adds and removes, and whatever is missing is reported."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from tests.connectors import shop_datasets
from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of
from tests.deployed import Deployed
from umbel.connectors import Files, Iceberg, source
from umbel.connectors.iceberg_source import moved_removed
from umbel.connectors.iceberg_tables import IcebergPlace
from umbel.connectors.polling import stop_polling
from umbel.connectors.versioned_source import KIND
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal as DecimalOf
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

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
        folder.mkdir()
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
    at = pa.array([START + timedelta(minutes=number) for number in ids], pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [note] * len(ids), "updated_at": at})


def keyed(lake: Lake, **options: Any) -> Any:
    return orders(lake, **{"cdc": "native", "every": "1s", "disorder": "60d", **options})


def keyless(lake: Lake) -> Any:
    @source(lake.table("orders"), disorder="60d", cdc="native", every="1s")
    @dataset
    class Copies:
        id: int
        note: str
        updated_at: datetime

    return Copies


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def until(made: Deployed, condition: Callable[[], Any]) -> None:
    shop_datasets.until(made, condition, 60)


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda schema: schema.delete_column("note"), "column 'note' was dropped"),
        (lambda schema: schema.rename_column("note", "remark"), "column 'note' was renamed to 'remark'"),
    ],
)
def test_a_changed_column_is_reported(lake: Lake, tmp_path: Path, change: Any, reason: str) -> None:
    lake.add(range(3))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 3)
        lake.add([3])
        with lake.opened.update_schema(allow_incompatible_changes=True) as schema:
            change(schema)
        lake.opened.append(
            table([4], "x").rename_columns(["id", "remark", "updated_at"])
            if "renamed" in reason
            else table([4], "x").drop_columns(["note"])
        )
        until(made, lambda: letters(made))
        assert reason in reasons(made)[0]
        assert "as a new version" in reasons(made)[0]
        until(made, lambda: len(taken(made, "Copies")) == 4)  # what was added before it


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


def test_expired_snapshots_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(3))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 3)
        stop_polling(tmp_path)
        lake.add([3])
        lost = lake.opened.current_snapshot().snapshot_id
        lake.add([4])
        lake.opened.maintenance.expire_snapshots().by_id(lost).commit()
        until(made, lambda: letters(made))
        assert "expired before they were read" in reasons(made)[0]
        assert len(taken(made, "Copies")) == 3


def test_a_rollback_and_another_table_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(3))
    first = lake.opened.current_snapshot().snapshot_id
    lake.add([3])
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 4)
        lake.opened.manage_snapshots().set_current_snapshot(first).commit()
        until(made, lambda: letters(made))
        assert "rolled back" in reasons(made)[0]
        lake.catalog.drop_table("shop.orders")
        lake.create()
        lake.add([9])
        until(made, lambda: len(reasons(made)) == 2)
        assert "made anew" in reasons(made)[1]


def test_missing_data_files_and_manifests_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(3))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 3)
        stop_polling(tmp_path)
        before = set(lake.folder.rglob("*.parquet"))
        lake.add([3])
        (data,) = set(lake.folder.rglob("*.parquet")) - before
        content = data.read_bytes()
        data.unlink()
        until(made, lambda: letters(made))
        assert "were deleted (by expiring snapshots) before they were read" in reasons(made)[0]
        data.write_bytes(content[: len(content) // 2])
        until(made, lambda: len(reasons(made)) == 2)
        assert "cannot be read" in reasons(made)[1]
        data.write_bytes(content)
        until(made, lambda: len(taken(made, "Copies")) == 4)


def test_a_damaged_metadata_file_is_reported(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "folder")
    lake.add(range(3))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 3)
        newest = max(lake.folder.rglob("*.metadata.json"))
        twin = newest.with_name(newest.name.split("-")[0] + f"-{uuid.uuid4()}.metadata.json")
        twin.write_bytes(newest.read_bytes())
        until(made, lambda: letters(made))
        assert "two metadata files have the number" in reasons(made)[0]
        twin.unlink()
        content = newest.read_bytes()
        newest.write_bytes(content[:100])
        until(made, lambda: len(reasons(made)) == 2)
        assert "cannot be read" in reasons(made)[1]
        newest.write_bytes(content)
        lake.add([3])
        until(made, lambda: len(taken(made, "Copies")) == 4)


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


def as_deletes(lake: Lake, content: int, positions: Sequence[tuple[str, int]] = ()) -> None:
    """Make the files that the newest snapshot added files of deletions, as PyIceberg does not write them.

    Args:
        lake: has the table.
        content: 1 for positions, 2 for equality.
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
        data = {**record["data_file"], "content": content, "equality_ids": [1] if content == 2 else None}
        if positions:
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


def test_positions_deleted_before_the_first_read_are_applied(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(5))
    (task,) = lake.opened.scan().plan_files()
    lake.add([9])
    as_deletes(lake, 1, [(task.file.file_path, 1), (task.file.file_path, 3)])
    assert [row[0] for row in lake.rows()] == [0, 2, 4]
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())


@pytest.mark.parametrize(("content", "reason"), [(1, "position delete files"), (2, "equality delete files")])
def test_later_files_of_deletions_are_reported(lake: Lake, tmp_path: Path, content: int, reason: str) -> None:
    lake.add(range(5))
    (task,) = lake.opened.scan().plan_files()
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        stop_polling(tmp_path)
        lake.add([5])
        lake.add([9])
        as_deletes(lake, content, [(task.file.file_path, 1)])
        until(made, lambda: letters(made))
        assert reason in reasons(made)[0]
        until(made, lambda: len(taken(made)) == 6)


def test_equality_deletes_are_refused_at_commit(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(5))
    lake.add([9])
    as_deletes(lake, 2)
    with pytest.raises(InvalidValue, match="equality delete"), deployed(tmp_path, keyed(lake)):
        pass


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


def test_errors_at_commit_say_what_to_do(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValue, match=r"(?i)table does not exist: shop.orders"), deployed(tmp_path, keyless(lake)):
        pass
    lake.by = "folder"
    with pytest.raises(InvalidValue, match="there is no Iceberg table"), deployed(tmp_path, keyless(lake)):
        pass
    lake.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestamptzType())))
    with (
        pytest.raises(InvalidValue, match=r"no column 'note', 'updated_at'(?s:.*)it has id, at"),
        deployed(tmp_path, keyless(lake)),
    ):
        pass
    with pytest.raises(InvalidValue, match="has no namespace"):
        Iceberg(name="lake", uri="sqlite:///x").table("orders")
    lake.by, lake.uri = "catalog", f"sqlite:///{tmp_path}/nowhere/catalog.db"
    with pytest.raises(Transient, match="its catalog cannot be read"), deployed(tmp_path, keyless(lake)):
        pass
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(PackageError, match=r"umbel\[iceberg\]"), deployed(tmp_path, keyless(lake)):
        pass


def test_other_kinds_of_cdc_are_refused(lake: Lake) -> None:
    for cdc in ("append", "upsert", "debezium"):
        with pytest.raises(UmbelError, match="native"):
            keyed(lake, cdc=cdc)
    with pytest.raises(InvalidValue, match="one path, without wildcards"):
        Files(name="lake", folder="/x").path("a/*", format="iceberg")


def test_rows_that_only_moved_are_no_changes() -> None:
    rows = pl.DataFrame(
        {
            "id": [1, 1, 2, 3, 1, 2, 4, None, None],
            "list": [[1], [1], None, [3], [1], None, [4], [], []],
            KIND: ["delete", "delete", "delete", "delete", "insert", "insert", "insert", "delete", "insert"],
        }
    )
    assert moved_removed(rows).select("id", KIND).rows() == [(1, "delete"), (3, "delete"), (4, "insert")]
