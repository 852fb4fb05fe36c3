"""One worker slot on one core, then two on two: how much faster the same rows go through Spark.

    python -m benchmarks.scale_out [SCALE]

The rows are those of the pipeline `orders`. The processes of the first run may use one core only, so that nothing of it, such as
the threads of Polars or of the JVM, runs on the second one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figure import Figure
from benchmarks.pipelines import ROWS, differences, folder_in
from benchmarks.pipelines_data import files
from benchmarks.process import measure

PIPELINE = "orders"
RATIO = 1.7


def run() -> list[Figure]:
    """Measure."""
    return figures()


def figures(scale: float = 1.0) -> list[Figure]:
    """Measure with one slot, then with two."""
    rows, speeds = int(ROWS[PIPELINE] * scale), list[float]()
    folder = str(files(PIPELINE, rows))
    with tempfile.TemporaryDirectory(prefix="umbel-scale-out-") as place:
        hand = folder_in(place, "hand")
        measure("benchmarks.pipelines_by_hand", PIPELINE, folder, str(hand))
        for slots in (1, 2):
            values = folder_in(place, str(slots))
            with cores(slots):
                found = measure(
                    "benchmarks.pipelines_umbel", PIPELINE, folder, str(hand), str(values), f"spark-{slots}"
                )
            speeds.append(found.report["rows"] / found.report["seconds"])
            if differing := list(differences(hand, values)):
                raise SystemExit(f"{slots} slots have other values: {differing}")
    one, two = speeds
    return [
        Figure("one slot on one core", one, "rows/s", note=f"{rows:,} rows of {PIPELINE}"),
        Figure("two slots on two cores", two, "rows/s"),
        Figure("two slots / one", two / one, "×", at_least=RATIO),
    ]


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Let processes that are started in a block use so many cores."""
    before = os.sched_getaffinity(0)
    if len(before) < count:
        raise SystemExit(f"this machine has {len(before)} cores; the benchmark takes {count}")
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main(scale: str = "1") -> None:
    """Print the figures."""
    for each in figures(float(scale)):
        print(f"{each.name:30} {each.value:12,.2f} {each.unit} {each.verdict} {each.note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
