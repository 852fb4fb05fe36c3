"""Delta tables as other writers than `deltalake` leave them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from tests.unit.connectors.test_delta_source import START, Lake, lake
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
