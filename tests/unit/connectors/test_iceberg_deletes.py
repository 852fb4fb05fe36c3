"""Iceberg tables with files of deleted positions (merge-on-read): no deleted row is ever taken, and no other one is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.shop_datasets import deployed, letters
from tests.unit.connectors.iceberg_lake import Lake, as_deletes, expired, lake, reasons, table, taken
from tests.unit.connectors.lakes import keyed, keyless, until
from umbel.connectors.polling import stop_polling

__all__ = ["lake"]
__owner__ = "shop@example.com"


def file_of(lake: Lake) -> str:
    """Return the address of the file that the newest snapshot added."""
    made = {each.file.file_path for each in lake.opened.scan().plan_files()}
    (before,) = [each.parent_snapshot_id for each in [lake.opened.current_snapshot()]]
    former = [] if before is None else lake.opened.scan(snapshot_id=before).plan_files()
    (found,) = made - {each.file.file_path for each in former}
    return str(found)


def without(lake: Lake, *positions: tuple[str, int]) -> None:
    """Delete rows by a file of positions."""
    lake.add([10**6])
    as_deletes(lake, positions)


def test_positions_deleted_before_the_first_read_are_applied(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(5))
    file = file_of(lake)
    without(lake, (file, 1), (file, 3))
    assert [row[0] for row in lake.rows()] == [0, 2, 4]
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())


def test_later_deleted_positions_are_deletions(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(100))
    first = file_of(lake)
    lake.add(range(100, 200))
    second = file_of(lake)
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 200)
        without(lake, (first, 1), (second, 7))
        until(made, lambda: taken(made) == lake.rows())
        stop_polling(tmp_path)
        without(lake, (first, 2))
        lake.add([1, 2], "again")
        without(lake, (file_of(lake), 1))
        until(made, lambda: taken(made) == lake.rows())
        assert [row[0] for row in lake.rows() if row[0] in (1, 2, 107)] == [1]
        assert reasons(made) == []
        assert made.taken()["Orders"] == 200 + 2 + 1 + 2 + 1, "rows that stay are no changes"


def test_a_rewritten_file_does_not_delete_again_what_came_back(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(5))
    without(lake, (file_of(lake), 1))
    lake.add([1], "again")
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.opened.overwrite(table([0, 2, 4], "new"), overwrite_filter="note = 'new'")
        until(made, lambda: 3 not in [row[0] for row in taken(made)])
        until(made, lambda: taken(made) == lake.rows())
        assert 1 in [row[0] for row in lake.rows()]


def test_a_keyless_dataset_reports_them(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(5))
    file = file_of(lake)
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 5)
        without(lake, (file, 1))
        lake.add([7])
        until(made, lambda: made.taken()["Copies"] == 7)
        (reason,) = reasons(made)
        assert "a deletion of a row: the dataset has no key fields" in reason
        assert [row[0] for row in taken(made, "Copies")] == [0, 1, 2, 3, 4, 7]


def test_missing_positions_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(5))
    file = file_of(lake)
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        stop_polling(tmp_path)
        known = set(lake.folder.rglob("*.parquet"))
        without(lake, (file, 1))
        (positions,) = set(lake.folder.rglob("*.parquet")) - known
        positions.unlink()
        until(made, lambda: letters(made))
        assert "were deleted (by expiring snapshots) before they were read" in reasons(made)[0]
        assert len(taken(made)) == 5


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_snapshot_that_was_read_may_be_expired(tmp_path: Path, is_merged: bool) -> None:
    """Unless what a file of positions deletes is to be told from what was deleted before."""
    lake = Lake(tmp_path / "lake", "folder")
    lake.add(range(5))
    file = file_of(lake)
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 5)
        stop_polling(tmp_path)
        former = lake.opened.current_snapshot().snapshot_id
        if is_merged:
            without(lake, (file, 1))
        else:
            lake.add([5])
        expired(lake, former)
        until(made, lambda: letters(made) if is_merged else len(taken(made)) == 6)
        assert len(taken(made)) == (5 if is_merged else 6)
        assert [each for each in reasons(made) if "before they were read" not in each] == []
