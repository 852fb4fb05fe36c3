"""The pipelines of the benchmark: umbel and the loops by hand compute the same values, and a difference is seen."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks import pipelines, pipelines_by_hand
from benchmarks.pipelines_data import files
from benchmarks.process import measure


@pytest.mark.parametrize("name", sorted(pipelines.ROWS))
def test_a_pipeline_computes_what_the_loop_by_hand_computes(name: str, tmp_path: Path) -> None:
    source, hand, values = str(files(name, 1_500, tmp_path)), tmp_path / "hand", tmp_path / "values"
    hand.mkdir()
    values.mkdir()
    pipelines_by_hand.main(name, source, str(hand))
    report = measure("benchmarks.pipelines_umbel", name, source, str(hand), str(values)).report
    assert report["rows"] == 1_500
    assert list(pipelines.differences(hand, values)) == []


def test_a_difference_between_values_is_seen(tmp_path: Path) -> None:
    hand, values = tmp_path / "hand", tmp_path / "values"
    frame = pl.DataFrame({"user": [1, 2], "total": [1.0, 3.0]})
    for folder, found in ((hand, frame), (values, frame[::-1])):
        folder.mkdir()
        found.write_parquet(folder / "Totals.parquet")
    assert list(pipelines.differences(hand, values)) == []
    frame.with_columns(pl.col("total") + 1e-6).write_parquet(values / "Totals.parquet")
    assert list(pipelines.differences(hand, values)) == ["Totals: column total differs"]
    frame[:1].write_parquet(values / "Totals.parquet")
    assert len(list(pipelines.differences(hand, values))) == 1
