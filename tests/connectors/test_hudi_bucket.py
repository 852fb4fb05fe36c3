"""Hudi tables in buckets of S3: read with the log files that later commits wrote."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, letters, orders, rows_of, until
from tests.s3server import S3Server
from tests.unit.connectors import hudi_samples
from umbel.connectors import S3

__owner__ = "shop@example.com"


@pytest.mark.parametrize("name", ["compacted6", "partitions9", "copied_partitions6"])
def test_a_table_in_a_bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable, value in s3_server.environment.items():
        monkeypatch.setenv(variable, value)
    bucket = "hudi"
    with tarfile.open(Path(hudi_samples.__file__).with_name("hudi_samples.tar.xz")) as packed:
        packed.extractall(s3_server.folder / bucket, filter="data")
    rows = json.loads((s3_server.folder / bucket / "rows.json").read_text())[name]
    lake = S3(name="lake").bucket(bucket, prefix=f"{name}/orders", format="hudi")

    class Lake:
        def table(self, name: str, _: Any = None) -> Any:
            return lake

    with deployed(tmp_path, orders(Lake(), cdc="native", disorder="60d")) as made:
        until(made, lambda: rows_of(made, "Orders", ["id", "note"]) == [tuple(row) for row in rows[max(rows)]], 60)
        assert letters(made) == []
