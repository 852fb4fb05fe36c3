"""Iceberg tables whose snapshots cannot be read: whatever is missing, damaged or changed is reported."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestamptzType

from tests.connectors.shop_datasets import deployed, letters, process
from tests.unit.connectors.iceberg_lake import Lake, lake, reasons, table, taken
from tests.unit.connectors.lakes import keyed, keyless, until
from umbel.connectors import Files, Iceberg
from umbel.connectors.polling import stop_polling
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

__all__ = ["lake"]
__owner__ = "shop@example.com"


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


def test_each_report_is_a_dead_letter_and_a_restart_makes_no_second_one(lake: Lake, tmp_path: Path) -> None:
    """They had one position, so that the second one was taken for the first."""
    lake.add(range(3))
    first = lake.opened.current_snapshot().snapshot_id
    lake.add([3])
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 4)
        lake.opened.manage_snapshots().set_current_snapshot(first).commit()
        until(made, lambda: letters(made))
        for _ in range(2):
            stop_polling(tmp_path)
            process(made, 1)
        lake.catalog.drop_table("shop.orders")
        lake.create()
        lake.add([9])
        until(made, lambda: len(letters(made)) > 1)
        found = sorted(each.reason for each in letters(made))
        assert len(found) == 2
        assert "rolled back" in found[0]
        assert "made anew" in found[1]


def test_a_text_that_is_not_utf_8_is_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(3))
    (path,) = lake.folder.rglob("*.parquet")
    notes, rows = pa.array([b"a", b"caf\xe9", b"c"]).view(pa.string()), pq.read_table(path)
    pq.write_table(rows.set_column(1, rows.schema.field("note"), notes.cast(rows.schema.field("note").type)), path)
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: letters(made))
        assert "column 'note' has a text that is not UTF-8" in reasons(made)[0]
