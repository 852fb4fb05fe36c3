"""Batches of input rows, which are answered together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from umbel.connectors.buckets import FolderBucket
from umbel.formats import chunks, files, unpacking
from umbel.formats.declarations import CSV
from umbel.offline import inputs
from umbel.offline.inputs import FileInput, InputColumns
from umbel.types.dtypes import Datetime, Int

REQUESTED = InputColumns({"at": Datetime(), "n": Int()}, {"n": "n"})
ROWS = [{"n": number, "at": "2026-03-01T00:00:00Z", "more": "x" * 200} for number in range(100)]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_batch_of_a_compressed_file_is_small(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is one part was collected up to a number of reads, however many bytes these had."""
    monkeypatch.setattr(files, "LARGE_CHUNK_BYTES", 1000)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(unpacking, "UNPACKED_BYTES", 1000)
    monkeypatch.setattr(inputs, "PART_BYTES", 3000)
    lines = [json.dumps(row) if form == "json" else ",".join(map(str, row.values())) for row in ROWS]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"a.{form}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    bucket = FolderBucket(tmp_path, "data", "bucket 'data'")
    found = FileInput(bucket, "json" if form == "json" else CSV(headers=[*ROWS[0]]), (*bucket.listed(""),), REQUESTED)
    (part,) = found.parts()
    batches = list(found.batches(part))
    assert [n for batch in batches for n in batch.frame["n"]] == list(range(100))
    assert max(batch.frame.height for batch in batches) * len(lines[-1]) < 3000 + 1000 + 200
