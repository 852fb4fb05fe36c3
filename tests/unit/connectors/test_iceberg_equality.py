"""Iceberg tables with equality delete files, as stream writers make them: what the specification leaves is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tests.connectors.shop_datasets import deployed, letters
from tests.unit.connectors.iceberg_lake import expired, reasons, table, taken
from tests.unit.connectors.iceberg_streams import StreamLake, lake, read
from tests.unit.connectors.lakes import keyed, keyless, until
from umbel.connectors.polling import stop_polling
from umbel.errors import InvalidValue

__all__ = ["lake"]
__owner__ = "shop@example.com"


# ---- datasets ------------------------------------------------------------------------------------------------------


def test_deletions_before_the_first_read_are_applied(lake: StreamLake, tmp_path: Path) -> None:
    lake.upsert(range(100))
    lake.upsert(range(50, 120), "second")
    lake.upsert([3, 60], "third")
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        assert made.taken()["Orders"] == 120
        assert reasons(made) == []


def test_later_upserts_and_deletions_are_changes_of_the_keyed_dataset(lake: StreamLake, tmp_path: Path) -> None:
    lake.upsert(range(100))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 100)
        lake.upsert([1, 2, 200], "second")
        until(made, lambda: taken(made) == lake.rows())
        assert made.taken()["Orders"] == 100 + 3, "rows that stay are no changes"
        stop_polling(tmp_path)
        delta = lake.delta()
        delta.equality(table([2, 3, 777], ""), [1])
        delta.commit()
        lake.upsert([3, 4], "third")
        lake.add([500])
        until(made, lambda: taken(made) == lake.rows())
        assert {row[0]: row[1] for row in taken(made) if row[0] in (1, 2, 3, 4, 500)} == {
            1: "second",
            3: "third",
            4: "third",
            500: "new",
        }
        assert reasons(made) == []


def test_a_row_of_the_same_snapshot_is_deleted_by_its_position_only(lake: StreamLake, tmp_path: Path) -> None:
    lake.upsert(range(5))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        delta = lake.delta()
        path = delta.data(pa.concat_tables([table([1], "first"), table([1], "second"), table([9], "gone")]))
        delta.equality(table([1, 9], ""), [1])
        delta.positions([(path, 0), (path, 2)])
        delta.commit()
        until(made, lambda: taken(made) == lake.rows())
        assert [row[:2] for row in taken(made)] == [(0, "new"), (1, "second"), (2, "new"), (3, "new"), (4, "new")]


def test_a_keyless_dataset_reports_and_counts_deletions(lake: StreamLake, tmp_path: Path) -> None:
    lake.upsert(range(5))
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 5)
        lake.upsert([1, 7], "second")
        until(made, lambda: made.taken()["Copies"] == 5 + 3)
        (reason,) = reasons(made)
        assert "a deletion of a row: the dataset has no key fields" in reason
        assert [row[0] for row in taken(made, "Copies")] == [0, 1, 1, 2, 3, 4, 7]


def test_deletions_by_other_columns_than_the_key(lake: StreamLake, tmp_path: Path) -> None:
    lake.add(range(5), "old")
    lake.add(range(5, 10), "kept")
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 10)
        delta = lake.delta()
        delta.equality(table([0], "old"), [2])
        delta.equality(table([5, 6], "kept"), [1, 2])
        delta.equality(table([7], "other"), [1, 2])
        delta.commit()
        until(made, lambda: taken(made) == lake.rows())
        assert [row[0] for row in taken(made)] == [7, 8, 9]


@pytest.mark.parametrize("is_read", [True, False])
def test_missing_files_and_snapshots_are_reported(lake: StreamLake, tmp_path: Path, is_read: bool) -> None:
    lake.by = "folder"
    lake.upsert(range(5))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        stop_polling(tmp_path)
        before = lake.opened.current_snapshot().snapshot_id
        path = Path(lake.upsert([1, 9], "second").removeprefix("file://"))
        content = path.read_bytes()
        if is_read:
            path.unlink()
        else:
            expired(lake, before)
        until(made, lambda: letters(made))
        assert "were deleted (by expiring snapshots) before they were read" in reasons(made)[0]
        assert len(taken(made)) == 5
        if is_read:
            path.write_bytes(content[:200])
            until(made, lambda: len(reasons(made)) == 2)
            assert f"the equality delete file file://{path} cannot be read" in reasons(made)[1]
            path.write_bytes(content)
            until(made, lambda: taken(made) == lake.rows())


def test_files_that_are_not_read_are_reported_later_and_refused_at_commit(lake: StreamLake, tmp_path: Path) -> None:
    lake.upsert(range(5))
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        lake.add([5])
        delta = lake.delta()
        delta.equality(table([1], ""), [1], file_format=FileFormat.AVRO)
        delta.commit()
        until(made, lambda: letters(made))
        assert "of Avro, which is not read" in reasons(made)[0]
        assert len(taken(made)) == 6
    with pytest.raises(InvalidValue, match="of Avro, which is not read"), deployed(tmp_path / "2", keyed(lake)):
        pass


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"file_format": FileFormat.AVRO}, "of Avro, which is not read"),
        ({"file_format": FileFormat.ORC}, "of Orc, which is not read"),
        ({"equality_ids": [99]}, "by field 99, which is no column"),
        ({"equality_ids": []}, "names no fields to compare"),
        ({"equality_ids": None}, "names no fields to compare"),
        ({"equality_ids": [3]}, "by field 3, which is no column of a simple type"),
        ({"equality_ids": [4]}, "by field 4, which is no column of a simple type"),
        ({"equality_ids": [1, 2]}, "lacks field 2, by which it deletes"),
    ],
)
def test_deletions_that_cannot_be_applied_are_refused(lake: StreamLake, attributes: Any, reason: str) -> None:
    lake.create(
        Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "note", StringType()),
            NestedField(3, "size", StructType(NestedField(4, "width", LongType()))),
        )
    )
    rows = pa.table({"id": [1], "note": ["a"], "size": [{"width": 1}]})
    delta = lake.delta()
    delta.data(rows)
    delta.commit()
    delta = lake.delta()
    path = delta.equality(rows, [1], **attributes)
    delta.commit()
    with pytest.raises(InvalidValue, match=reason) as error:
        read(lake, [1])
    assert path in str(error.value)


def test_a_file_with_values_of_another_type_is_refused(lake: StreamLake) -> None:
    lake.upsert(range(5))
    delta, rows = lake.delta(), pa.table({"id": ["1"]})
    field = pa.field("id", pa.string(), metadata={"PARQUET:field_id": "1"})
    delta.written(DataFileContent.EQUALITY_DELETES, rows.cast(pa.schema([field])), equality_ids=[1])
    delta.commit()
    with pytest.raises(InvalidValue, match=r"cannot be read: Cannot promote .*string to long"):
        read(lake, [1])


def test_compaction_keeps_its_sequence_number_and_is_no_change(lake: StreamLake, tmp_path: Path) -> None:
    """Rows that were written anew while others were deleted stay subject to the deletions."""
    lake.add(range(5))
    (first,) = (each.file.file_path for each in lake.opened.scan().plan_files())
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        lake.upsert([1], "second")
        until(made, lambda: taken(made) == lake.rows())
        delta = lake.delta(removed=[first])
        delta.data(table(range(5), "new"))
        delta.commit(Operation.REPLACE, sequence=1)
        lake.upsert([2], "third")
        until(made, lambda: taken(made) == lake.rows())
        assert [row[:2] for row in lake.rows()] == [(0, "new"), (1, "second"), (2, "third"), (3, "new"), (4, "new")]
        assert made.taken()["Orders"] == 5 + 1 + 1
