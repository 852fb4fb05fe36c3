"""Equality deletes of Iceberg: the rows that they delete, by type, schema, partition and sequence number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg_types
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.seeds import seeds
from tests.unit.connectors.iceberg_deltas import naive_rows
from tests.unit.connectors.iceberg_lake import table
from tests.unit.connectors.iceberg_streams import StreamLake, lake, read
from umbel.connectors import iceberg_deletes
from umbel.connectors.iceberg_deletes import DeletedValues
from umbel.connectors.versioned_source import KIND

__all__ = ["lake"]
__owner__ = "shop@example.com"


# ---- which rows are deleted ----------------------------------------------------------------------------------------


def test_null_equals_null(lake: StreamLake) -> None:
    lake.create()
    rows = table([1, 2, 3], "a").set_column(1, "note", pa.array([None, "a", None]))
    delta = lake.delta()
    delta.data(rows)
    delta.commit()
    delta = lake.delta()
    delta.equality(rows.slice(2, 1), [1, 2])
    delta.commit()
    assert read(lake, [1, 2]) == [(1, None), (2, "a")]
    delta = lake.delta()
    delta.equality(rows.slice(0, 1), [2])
    delta.commit()
    assert read(lake, [1, 2]) == [(2, "a")]


def test_fields_are_found_by_their_numbers_in_other_schemas(lake: StreamLake) -> None:
    lake.create(Schema(NestedField(1, "id", IntegerType()), NestedField(2, "text", StringType())))
    delta = lake.delta()
    delta.data(pa.table({"id": pa.array([1, 2, 3, 4, 5], pa.int32()), "text": ["a", "b", "c", "d", "e"]}))
    delta.commit()
    early = lake.delta()
    early.equality(pa.table({"id": pa.array([1], pa.int32())}), [1])
    early.equality(pa.table({"text": ["b"]}), [2])
    early.commit()
    with lake.opened.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("id", LongType())
        change.rename_column("id", "number")
        change.delete_column("text")
    with lake.opened.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("id", StringType())  # the name of another field before
        change.add_column("text", LongType(), required=False)
    assert read(lake, [1]) == [(3,), (4,), (5,)]
    late = lake.delta()
    late.data(pa.table({"number": [1, 1 << 40], "id": ["x", None], "text": [7, None]}))
    late.equality(pa.table({"number": [3]}), [1])
    late.commit()
    assert read(lake, [1, 3, 4]) == [(1, "x", 7), (1 << 40, None, None), (4, None, None), (5, None, None)]
    last = lake.delta()
    last.equality(
        pa.table({"number": [4, 1], "id": [None, "y"]}, schema=pa.schema({"number": "int64", "id": "string"})), [1, 3]
    )
    last.commit()
    assert read(lake, [1]) == [(1,), (1 << 40,), (5,)], "a column that was added later is null in older files"
    last = lake.delta()
    last.equality(pa.table({"text": pa.array([None], pa.int64())}), [4])
    last.commit()
    assert read(lake, [3]) == [("x",)]


def test_a_partition_bounds_deletions_and_none_bounds_them_not(lake: StreamLake) -> None:
    lake.create(partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note")))
    with lake.opened.update_spec() as spec:
        spec.remove_field("note")
    numbers = {bool(spec.fields): number for number, spec in lake.opened.specs().items()}
    here, other, nowhere = (lake.delta(spec=numbers[bool(values)], partition=values) for values in (("a",), ("b",), ()))
    for delta, note in ((here, "a"), (other, "b"), (nowhere, "c")):
        delta.data(table([1, 2, 3], note))
        delta.commit()
    delta = lake.delta(spec=numbers[True], partition=("a",))
    delta.equality(table([1], ""), [1])
    delta.commit()
    assert read(lake, [1, 2]) == [(1, "b"), (1, "c"), (2, "a"), (2, "b"), (2, "c"), (3, "a"), (3, "b"), (3, "c")]
    delta = lake.delta(spec=numbers[False])
    delta.equality(table([2], ""), [1])
    delta.commit()
    assert read(lake, [1, 2]) == [(1, "b"), (1, "c"), (3, "a"), (3, "b"), (3, "c")]


NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("BooleanType()", [True, False, None]),
        ("IntegerType()", [1, -(2**31), None]),
        ("LongType()", [-(2**63), 2**63 - 1, None]),
        ("FloatType()", [0.5, NAN, None]),
        ("DoubleType()", [0.1, NAN, None]),
        ("DecimalType(9, 2)", [Decimal("0.10"), Decimal("-99.99"), None]),
        ("DecimalType(38, 0)", [Decimal(10) ** 37, Decimal(-1), None]),
        ("DateType()", [date(1, 1, 1), date(2024, 2, 29), None]),
        ("TimeType()", [time(0, 0), time(23, 59, 59, 999999), None]),
        ("TimestampType()", [datetime(1900, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1), None]),
        ("StringType()", ["", "ä" * 40, None]),
        ("UUIDType()", [b"\x00" * 16, b"\xff" * 16, None]),
        ("FixedType(3)", [b"\x00\x00\x00", b"abc", None]),
        ("BinaryType()", [b"", b"\xff\x00", None]),
    ],
)
def test_columns_of_every_type_are_compared(lake: StreamLake, name: str, values: list[Any]) -> None:
    kind, _, arguments = name.partition("(")
    made = getattr(iceberg_types, kind)(*(int(each) for each in arguments[:-1].split(", ") if each))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", made))
    lake.create(schema)
    typed = pa.array(values, schema.as_arrow().field("value").type)
    rows = pa.table({"id": range(3), "value": typed})
    delta = lake.delta()
    delta.data(rows)
    delta.commit()
    for gone in range(3):
        delta = lake.delta()
        delta.equality(rows.slice(gone, 1), [2])
        delta.commit()
        assert [row[0] for row in read(lake, [1])] == list(range(gone + 1, 3))


def test_files_whose_values_cannot_be_equal_are_not_read(lake: StreamLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.add(range(100))
    lake.add(range(100, 200))
    delta = lake.delta()
    path = delta.equality(table([150], ""), [1])
    number = delta.commit()
    (changed,) = lake.place.snapshot(lake.opened, number).files
    assert changed.kind == "change"
    (gone, _) = lake.place.rows(changed, {"id": {"id": 1}})
    assert gone.rows() == [(150, "delete")]
    Path(path.removeprefix("file://")).unlink()
    files = lake.place.files(lake.opened, number)
    (untouched,) = (each for each in files if each.name != changed.name)
    assert sum(part.height for part in lake.place.rows(untouched, {"id": {"id": 1}})) == 100
    with pytest.raises(FileNotFoundError):
        list(lake.place.rows(next(each for each in files if each.name == changed.name), {"id": {"id": 1}}))


def test_null_is_deleted_where_no_other_value_can_be_equal(lake: StreamLake) -> None:
    lake.create()
    for ids in ([1, None, 2], [3, 4]):
        delta = lake.delta()
        delta.data(table([0] * len(ids), "a").set_column(0, "id", pa.array(ids, pa.int64())))
        delta.commit()
    delta = lake.delta()
    delta.equality(pa.table({"id": [50, None]}), [1])
    number = delta.commit()
    (changed,) = lake.place.snapshot(lake.opened, number).files
    assert [rows.rows() for rows in lake.place.rows(changed, {"id": {"id": 1}})] == [[(None, "delete")], []]
    assert read(lake, [1]) == [(1,), (2,), (3,), (4,)]


def test_large_delete_files_are_read_in_parts(lake: StreamLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.add(range(1000))
    delta = lake.delta()
    delta.equality(table(range(0, 100_000, 3), ""), [1])
    delta.equality(table(range(1, 200), ""), [1])
    delta.commit()
    heights, stores, original = list[int](), list[DeletedValues](), DeletedValues.parts

    def watched(values: DeletedValues, deletes: Any) -> Iterator[Any]:
        stores.append(values)
        for part in original(values, deletes):
            heights.append(part.height)
            yield part

    monkeypatch.setattr(DeletedValues, "parts", watched)
    monkeypatch.setattr(iceberg_deletes, "ROWS_AT_ONCE", 1000)
    monkeypatch.setattr(iceberg_deletes, "CACHE_BYTES", 10_000)
    left = [(each,) for each in range(1000) if each % 3 and each >= 200]
    assert read(lake, [1]) == left
    assert len(heights) > 30
    assert max(heights) < 2000
    assert sum(part.height for parts in stores[0]._cached.values() for part in parts) == 199


# ---- any order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_any_snapshots_leave_what_the_specification_says(lake: StreamLake, seed: int) -> None:
    """Rows that are read at first, and those of snapshot after snapshot, are those of a naive evaluation."""
    chance = random.Random(seed)
    lake.create(partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note")))
    with lake.opened.update_spec() as spec:
        spec.remove_field("note")
    numbers = {bool(spec.fields): number for number, spec in lake.opened.specs().items()}
    followed, types = Counter[Any](), {"id": {"id": 1}, "note": {"id": 2}}
    files, deletes = list[tuple[str, int]](), list[str]()
    for _ in range(12):
        values = chance.choice([(), (), ("a",), ("b",)])
        delta = lake.delta(spec=numbers[bool(values)], partition=values)
        note = values[0] if values else chance.choice("abc")
        for _ in range(chance.randrange(3)):
            ids = [chance.choice([None, *range(8)]) for _ in range(chance.randrange(1, 9))]
            rows = table([each or 0 for each in ids], note).set_column(0, "id", pa.array(ids, pa.int64()))
            files.append((delta.data(rows), len(ids)))
        for _ in range(chance.randrange(3)):
            ids = [chance.choice([None, *range(8)]) for _ in range(chance.randrange(1, 3))]
            rows = table([each or 0 for each in ids], note).set_column(0, "id", pa.array(ids, pa.int64()))
            deletes.append(delta.equality(rows, chance.choice([[1], [1, 2], [2]] if note == "c" else [[1], [1, 2]])))
        if files and chance.random() < 0.4:
            places = [(path, chance.randrange(rows)) for path, rows in chance.sample(files, min(2, len(files)))]
            deletes.append(delta.positions(set(places)))
        if len(files) > 3 and chance.random() < 0.3:
            delta.removed.append(files.pop(chance.randrange(len(files)))[0])
        if len(deletes) > 2 and chance.random() < 0.3:
            delta.removed.append(deletes.pop(chance.randrange(len(deletes))))
        if not delta.added:
            continue
        number = delta.commit()
        snapshot = lake.place.snapshot(lake.opened, number)
        for file in snapshot.files:
            for part in lake.place.rows(file, types):
                for *row, kind in part.select("id", "note", KIND).rows():
                    followed[tuple(row)] += 1 if kind == "insert" else -1
        left = sorted(((row[1], row[2]) for row in naive_rows(lake.opened)), key=repr)
        assert read(lake, [1, 2]) == left
        assert sorted((+followed).elements(), key=repr) == left
        assert min(followed.values(), default=0) >= 0
