"""Small files that follow each other are read together in Spark's tasks as they are in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.deployed import Deployed, live
from tests.unit.runtime.test_small_files import FILES, ROWS, datasets, json_file, outcome, rows_of, stored, write


def test_tasks_read_small_files_as_one_process_does(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "json")
    large = [row for _ in range(400) for row in rows_of(19)]  # read alone, between two groups
    (tmp_path / "in" / "f019b.json").write_bytes(json_file(large))
    expected = outcome(tmp_path, "json")
    (tmp_path / "d").rename(tmp_path / "first")
    deployed = Deployed(tmp_path / "d")
    deployed.commit(datasets(tmp_path, "json"))
    counts = dict(expected[3])
    with live(deployed, spark, small=0) as caught_up:
        caught_up({"Payment": sum(counts["Payment", name] for name in ("rows", "dead"))})
    assert stored(deployed) == expected
    assert len(expected[0]) >= (FILES - 8) * ROWS
