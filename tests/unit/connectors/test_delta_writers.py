"""Delta tables as other writers than `deltalake` leave them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from tests.connectors.shop_datasets import rows_of
from tests.unit.connectors.lakes import keyed, keyless, until
from tests.unit.connectors.test_delta_source import FEED, START, Lake, lake, reading, reasons, stopped, taken
from umbel.connectors.delta_tables import local_place

__all__ = ["lake"]


def test_instants_as_spark_writes_them_by_default_are_exact(lake: Lake) -> None:
    """In nanoseconds they end in 2262: they were refused, or became others."""
    instants = [datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1500, 1, 1, tzinfo=UTC), START, None]
    rows = pa.table({"id": [1, 2, 3, 4], "until": pa.array(instants, pa.timestamp("us", "UTC"))})
    write_deltalake(lake.path, rows)
    place = local_place("table", lake.path)
    (file,) = place.snapshot(0)
    pq.write_table(rows, Path(lake.path, file.path), use_deprecated_int96_timestamps=True)
    found = next(place.rows(file, {"id": "long", "until": "timestamp"}))
    assert found["until"].to_list() == instants


def test_a_commit_without_an_instant_is_of_the_time_of_its_file(lake: Lake, tmp_path: Path) -> None:
    """Its deletions were of 1970: the rows had never been there."""
    lake.add(range(3), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stopped(tmp_path)
        lake.opened.delete("id = 1")
        log = Path(lake.path, "_delta_log", f"{1:020}.json")
        log.write_text("\n".join(each for each in log.read_text().splitlines() if "commitInfo" not in each))
        until(made, lambda: taken(made) == lake.rows())
        before = datetime.now(UTC) - timedelta(minutes=5)
        assert rows_of(made, "Orders", ["id"], before) == [(0,), (1,), (2,)]


def test_a_shallow_clone_is_reported_as_one(lake: Lake, tmp_path: Path) -> None:
    """Its files were said to have been vacuumed."""
    lake.add(range(3))
    log = Path(lake.path, "_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace('"path":"part-', f'"path":"file:{tmp_path}/origin/part-'))
    with reading(lake, tmp_path, keyless(lake)) as made:
        until(made, lambda: reasons(made))
        (reason,) = reasons(made)
        assert "the table is a shallow clone, with files of another table: file:/" in reason


def test_a_text_that_is_not_utf_8_is_reported(lake: Lake, tmp_path: Path) -> None:
    """It was staged, and stored: the history of the dataset could not be read any more."""
    lake.add(range(3))
    (file,) = local_place("table", lake.path).snapshot(0)
    notes = pa.array([b"a", b"caf\xe9", b"c"]).view(pa.string())
    path = Path(lake.path, file.path)
    pq.write_table(pq.read_table(path).set_column(1, "note", notes), path)
    with reading(lake, tmp_path, keyless(lake)) as made:
        until(made, lambda: reasons(made))
        assert f"file {file.path}: column 'note' has a text that is not UTF-8" in reasons(made)[0]
