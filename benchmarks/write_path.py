"""The write path: transactions in files to durable, queryable windows, beside Spark's own stateful streaming.

python -m benchmarks.write_path [FOLDER OF NDJSON FILES]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.data import transactions
from benchmarks.figure import Figure
from benchmarks.live import Counts, run_until
from benchmarks.process import GIB, Measured, disk_of, measure

SLOTS = 2


def run() -> list[Figure]:
    """Measure umbel and the baseline on the same files, one after the other."""
    return figures(str(transactions()))


def figures(folder: str) -> list[Figure]:
    """Measure on a folder of NDJSON files."""
    baseline = measure("benchmarks.baseline_spark", folder)
    measured = measure("benchmarks.write_path", folder)
    report, theirs = measured.report, baseline.report
    ours, other = report["rows"] / report["seconds"], theirs["rows"] / theirs["seconds"]
    note = f"{report['rows']:,.0f} rows in {report['batches']:.0f} batches, {report['seconds']:.1f} s"
    return [
        Figure("umbel, after its first batch", report["steady"], "rows/s"),
        Figure("Spark's own stateful streaming, after its first batch", theirs["steady"], "rows/s"),
        Figure("umbel / Spark's own, after the first batch", report["steady"] / theirs["steady"], "×", at_least=4),
        Figure("umbel, start and all", ours, "rows/s", note=note),
        Figure("Spark's own, start and all", other, "rows/s", note=f"{theirs['seconds']:.1f} s"),
        Figure("umbel / Spark's own, start and all", ours / other, "×", note="most of it is Spark's start"),
        Figure(
            "umbel, peak memory", measured.pss / GIB, "GiB", at_most=3, note=f"{measured.rss / GIB:.2f} GiB resident"
        ),
        Figure("Spark's own, peak memory", baseline.pss / GIB, "GiB", note=f"{baseline.rss / GIB:.2f} GiB resident"),
        Figure(
            "anonymous memory, later / earlier",
            _growth(measured),
            "×",
            at_most=1.1,
            note="peaks of the halves after the first batch",
        ),
    ]


def _growth(measured: Measured) -> float:
    """Return how much the peak of anonymous memory grows from the first half of the time after the first batch to the second."""
    begin, end = measured.report["first"], measured.report["last"]
    early = max(size for at, size in measured.samples if begin <= at < (begin + end) / 2)
    late = max(size for at, size in measured.samples if (begin + end) / 2 <= at <= end)
    return late / early


def stream(folder: str, place: Path) -> dict[str, float]:
    """Run the live job until every row is in the store; return rows, seconds, batches, and how it went after the first one."""
    os.environ["TRANSACTIONS"] = folder
    from umbel.cli.loading import definitions
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    expected = sum(sum(1 for _ in path.open("rb")) for path in Path(folder).glob("*.ndjson"))
    deployment = Deployment.at(place)
    commit(deployment, definitions("benchmarks.transactions"))
    finished, rows = list[tuple[float, int]](), 0

    def is_enough(counts: Counts) -> bool:
        nonlocal rows
        rows += counts.get(("Transaction", "rows"), 0)
        finished.append((time.time(), rows))
        return rows >= expected

    seconds = run_until(deployment, SLOTS, is_enough)
    (first, before), (last, _) = finished[0], finished[-1]
    steady = (rows - before) / (last - first)
    report = {"rows": rows, "seconds": seconds, "batches": len(finished), "steady": steady, "first": first}
    disk = disk_of(place)
    deployment.store.close()  # its maintenance may still write, while the folder is deleted
    return {**report, "last": last, "disk": disk, "early": _rate(finished, 0), "late": _rate(finished, 2)}


def _rate(finished: Sequence[tuple[float, int]], third: int) -> float:
    """Return the rows per second of a third of the batches after the first one."""
    size = max(1, (len(finished) - 1) // 3)
    part = finished[third * size : (third + 1) * size + 1] if third < 2 else finished[-size - 1 :]
    (begin, before), (end, after) = part[0], part[-1]
    return (after - before) / (end - begin)


def main(folder: str) -> None:
    """Run the job in this process and print what it reports."""
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(stream(folder, Path(place))))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(transactions()))
