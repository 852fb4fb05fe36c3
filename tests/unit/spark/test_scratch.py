"""The folders of Spark's temporary files."""

from __future__ import annotations

import os
from pathlib import Path

from umbel.spark import scratch
from umbel.spark.session import Settings


def test_a_killed_process_with_the_same_number_leaves_nothing(tmp_path: Path) -> None:
    """The first process of a container has the number 1 each time."""
    left = Settings(tmp_path).scratch.with_name(str(os.getpid()))
    (left / "blockmgr").mkdir(parents=True)
    scratch.claim(Settings(tmp_path).scratch)
    assert [each.name for each in left.parent.iterdir() if each.is_dir()] == [scratch.name()]
    scratch.claim(Settings(tmp_path).scratch)  # after a start that failed
    scratch.release()
    assert not Settings(tmp_path).scratch.exists()
