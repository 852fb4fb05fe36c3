"""Sizes of logs: bytes and the oldest instant of each, also of damaged and of empty ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from umbel.log.changes import ChangeLog
from umbel.log.ingest import IngestLog
from umbel.runtime.log_sizes import log_sizes
from umbel.types.schema import CHANGE_COLUMNS


def test_a_deployment_without_logs(tmp_path: Path) -> None:
    assert list(log_sizes(tmp_path)) == []


def test_each_log_has_its_size_and_its_oldest_instant(tmp_path: Path) -> None:
    log = IngestLog(tmp_path, "web", "a", segment_bytes=50)
    for received_at in (7_000_000, 9_000_000):
        log.append_blocking(b"[1]", 1, received_at=received_at)
    log.close()
    (tmp_path / "ingest" / "web" / "empty").mkdir()
    at = [datetime(2024, month, 3, tzinfo=UTC) for month in (3, 2)]
    rows = pl.DataFrame({"_at": at, "_weight": [1, 1], "_seq": [1, 2]}).cast(CHANGE_COLUMNS)
    changes = ChangeLog(tmp_path / "changes" / "People-1", dict(CHANGE_COLUMNS))
    changes.commit(changes.write(rows, 0), "test", 0)
    day = tmp_path / "features" / "main" / "shop" / "2024-05-06"
    day.mkdir(parents=True)
    (day / "1.sum.ndjson").write_bytes(b"12345")
    found = {(each.kind, each.name): each for each in log_sizes(tmp_path)}
    assert {name: each.oldest for name, each in found.items()} == {
        ("ingest", "web/a"): 7.0,
        ("ingest", "web/empty"): None,
        ("changes", "People-1"): datetime(2024, 2, 1, tzinfo=UTC).timestamp(),
        ("features", "main/shop"): datetime(2024, 5, 6, tzinfo=UTC).timestamp(),
    }
    assert found["features", "main/shop"].size == 5
    assert found["changes", "People-1"].size > 500
    segment = min((tmp_path / "ingest" / "web" / "a").glob("*.seg"))
    segment.write_bytes(b"")
    assert next(log_sizes(tmp_path)).oldest == 9.0  # of the next segment
