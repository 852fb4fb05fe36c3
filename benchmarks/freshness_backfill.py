"""Freshness while a backfill runs: the events of `freshness`, and payments from Parquet that a new dataset is computed from.

python -m benchmarks.freshness_backfill [ROWS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.backfill import parquet
from benchmarks.figure import Figure, readable
from benchmarks.freshness import at_share, measured, server, wait_until

ROWS = 10_000_000
MODULE = "benchmarks.freshness_backfill_features"
QUIET = 25
"""Seconds of events before the backfill."""
LONGEST = 900
MANY = 1_000_000
"""More requests than are made before the backfill."""


def run() -> list[Figure]:
    """Measure."""
    return figures(ROWS)


def figures(rows: int) -> list[Figure]:
    """Load rows, post events for a while, then commit a dataset and go on until it answers."""
    os.environ["BACKFILL_DATA"] = str(parquet(rows))
    with tempfile.TemporaryDirectory() as place, server(Path(place), f"{MODULE}:before") as url:
        wait_until(lambda: _rows(url) >= rows, LONGEST)
        _, quiet = measured(url, lambda seconds: seconds >= QUIET)
        begun = time.monotonic()
        waiting = subprocess.Popen(
            [sys.executable, "-m", "umbel.cli.main", "commit", f"{MODULE}:after", "--url", url, "--wait"]
        )
        _, busy = measured(url, lambda _: waiting.poll() is not None, warm=3.0, first=MANY)
        seconds = time.monotonic() - begun
    if waiting.returncode:
        raise SystemExit("the commit failed")
    without, during = sorted(quiet), sorted(busy)
    shares = {"median": 0.5, "p99": 0.99}
    return [
        *(
            Figure(
                f"accepted → visible, {name}, {when}", at_share(took, share), "ms", note=f"{len(took)} events watched"
            )
            for when, took in (("without", without), ("while it runs", during))
            for name, share in shares.items()
        ),
        *(
            Figure(
                f"{name}, while it runs / without", at_share(during, share) / at_share(without, share), "×", at_most=2
            )
            for name, share in shares.items()
        ),
        Figure("backfill beside 1,000 events a second", rows / seconds, "rows/s"),
    ]


def _rows(url: str) -> float:
    """Return how many payments the worker has processed."""
    lines = httpx.get(f"{url}/api/v1/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("umbel_dataset_rows") and '"Transaction"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def main(rows: int = ROWS) -> None:
    """Print the figures."""
    for figure in figures(rows):
        print(f"{figure.name:45} {readable(figure.value):>12} {figure.unit:7} {figure.verdict:15} {figure.note}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
