"""Backfill: a new dataset is computed from the history of rows that were processed before.

    python -m benchmarks.backfill [ROWS]

Payments are read from Parquet files into a running pipeline; then a second one with the same aggregates is committed, and the
time is taken until it answers. Beside it Polars scans the same files, filters, groups and sums in memory, and keeps nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.data import CACHE, made_once, transactions
from benchmarks.figure import Figure, readable
from benchmarks.process import GIB, measure

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

ROWS, FILES, SLOTS = 10_000_000, 20, 2
BATCHES = 6
"""In how many batches the files are read while they are live; the first one, with Spark's start, is not counted."""
MODULE = "benchmarks.backfill_features"
TOLERANCE = 1e-12
KEYS = 1_000
"""How many users are looked up in both datasets, to compare the values."""


def run() -> list[Figure]:
    """Measure."""
    return figures(ROWS)


def figures(rows: int) -> list[Figure]:
    """Measure a number of rows."""
    folder = str(parquet(rows))
    theirs = measure("benchmarks.backfill", "scan", folder)
    ours = measure("benchmarks.backfill", "umbel", folder)
    live, backfill = (rows / ours.report[name] for name in ("live", "backfill"))
    scan = rows / theirs.report["seconds"]
    return [
        Figure("live rate", live, "rows/s", note=f"{rows:,} rows from Parquet, without the first batch"),
        Figure("backfill", backfill, "rows/s", note="from the commit until the dataset answers"),
        Figure("Polars: scan, filter, group, sum", scan, "rows/s", note="in memory, nothing kept"),
        Figure("backfill / live rate", backfill / live, "×", at_least=2.5),
        Figure("backfill / Polars", backfill / scan, "×", at_least=0.5),
        Figure("values that differ", ours.report["differing"], "", at_most=0, note=f"of {KEYS} users"),
        Figure("peak memory", ours.pss / GIB, "GiB", at_most=3),
    ]


def parquet(rows: int) -> Path:
    """Return a folder of Parquet files with transactions, made when it is not there yet."""

    def write(folder: Path) -> None:
        for path in sorted(transactions(rows, FILES).glob("*.ndjson")):
            pl.read_ndjson(path).write_parquet(folder / f"{path.stem}.parquet")

    return made_once(CACHE / f"payments-{rows}-{FILES}", write)


def scan(folder: str) -> dict[str, float]:
    """Count and sum by Polars."""
    begun = time.monotonic()
    abroad = pl.scan_parquet(f"{folder}/*.parquet").filter(pl.col("country") != pl.col("payment_country"))
    tile = (pl.col("ts") // 864_000).alias("tile")
    made = abroad.group_by("uid", tile).agg(pl.len().alias("count"), pl.col("amount").sum()).collect()
    return {"seconds": time.monotonic() - begun, "groups": made.height}


def umbel(folder: str) -> dict[str, float]:
    """Process all rows, commit another dataset and wait until it answers."""
    os.environ["BACKFILL_DATA"] = folder
    from benchmarks.backfill_features import Live, New, Transaction
    from umbel.api.commit import check_commit
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    rows = pl.scan_parquet(f"{folder}/*.parquet").select(pl.len()).collect().item()
    size = sum(path.stat().st_size for path in Path(folder).glob("*.parquet"))
    with tempfile.TemporaryDirectory() as place:
        deployment = Deployment.at(Path(place), budget=size // BATCHES)
        commit(deployment, check_commit([Transaction, Live], ()))
        with processing(deployment) as (finished, wait):
            wait(lambda: bool(finished) and finished[-1][1] >= rows)
            (first, before), (last, _) = finished[0], finished[-1]
            begun = time.monotonic()
            commit(deployment, check_commit([Transaction, Live, New], ()))
            nodes = {node.state_id for node in deployment.graph(deployment.catalog.latest()).nodes}
            wait(lambda: nodes <= deployment.catalog.backfilled())
            seconds = time.monotonic() - begun
        live = (last - first) * rows / (rows - before)
        report = {"live": live, "backfill": seconds, "differing": differing(deployment)}
        deployment.store.close()  # its maintenance may still write, while the folder is deleted
        return report


@contextmanager
def processing(
    deployment: Deployment,
) -> Iterator[tuple[list[tuple[float, int]], Callable[[Callable[[], bool]], None]]]:
    """Run the live job; yields (seconds, rows) after each batch, and what waits for a condition."""
    from umbel.spark.job import LiveJob
    from umbel.spark.session import Settings, running

    finished, rows = list[tuple[float, int]](), 0

    def count(_: int, counts: Mapping[tuple[str, str], int]) -> None:
        nonlocal rows
        rows += counts.get(("Transaction", "rows"), 0)
        finished.append((time.monotonic(), rows))

    with running(Settings(deployment.directory, slots=SLOTS)) as session:
        query = LiveJob(deployment, session, on_batch=count).start()

        def wait(condition: Callable[[], bool]) -> None:
            while not condition():
                if not query.isActive:
                    raise SystemExit(str(query.exception()))
                time.sleep(0.05)

        yield finished, wait
        query.stop()


def differing(deployment: Deployment) -> int:
    """Return for how many of some users the two datasets have other values."""
    from umbel.query.lookups import Lookups
    from umbel.runtime.history import replayed

    graph = deployment.graph(deployment.catalog.latest())
    lookups = Lookups(graph, deployment.store, partial(replayed, deployment))
    keys = pl.DataFrame({"uid": pl.Series(range(KEYS), dtype=pl.Int64)})
    now = pl.Series([1_760_800_000_000], dtype=pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC"))
    found = [lookups.online(name, keys, now.new_from_index(0, KEYS)) for name in ("Live", "New")]
    (live, is_live), (new, is_new) = found
    assert is_live.any(), "none of the users is there"
    same = (is_live == is_new) & (live["ts"] == new["ts"])
    for name in ("count_1d", "sum_1d", "count", "sum"):  # sums of floats depend on the order, in the last digits
        same &= (live[name] - new[name]).abs() <= TOLERANCE * live[name].abs()
    return int((~same.fill_null(value=True)).sum())


def main(what: str = "", folder: str = "") -> None:
    """Print the figures, or run one of the two in this process and print what it reports."""
    if what in ("scan", "umbel"):
        print(json.dumps({"scan": scan, "umbel": umbel}[what](folder)))
        return
    for figure in figures(int(what or ROWS)):
        print(f"{figure.name:45} {readable(figure.value):>12} {figure.unit:7} {figure.verdict:15} {figure.note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
