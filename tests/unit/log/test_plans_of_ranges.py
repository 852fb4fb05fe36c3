"""Plans over an ingest log end at the record that reaches a limit, wherever segments end."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.log.ingest import IngestLog
from umbel.log.reading import IngestReader


@pytest.mark.parametrize("limit", range(1, 8))
def test_a_plan_ends_at_the_record_that_reaches_its_rows(tmp_path: Path, limit: int) -> None:
    log = IngestLog(tmp_path, "w", "e", segment_bytes=40)  # a segment for each record
    for rows in (1, 2, 1, 3):
        log.append_blocking(b"[]", rows)
    log.close()
    reader = IngestReader(tmp_path, "w", "e")
    ranges, end = reader.plan(reader.start(), rows=limit)
    assert end.row == next(each for each in (1, 3, 4, 7) if each >= limit)
    assert sum(part.rows for part in ranges) == end.row
