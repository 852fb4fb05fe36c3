"""Forgetting: with 30 days of disorder, state stops growing once the watermark moves, and values equal recomputation.

    python -m benchmarks.forgetting [ROWS]

Rows of 150 days, 5 % of them late by up to the bound, go through a join, duplicates dropped, sessions, and windows of a day and
a week. What can still change is that of the last 30 days, and the results of windows of the week before. The size of the state
and the anonymous memory are taken after each batch: once those days are full they should stay. Polars recomputes the values from
the files.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import psutil

from benchmarks.data import CACHE
from benchmarks.figure import Figure, readable
from benchmarks.live import Counts, counted, run_until
from benchmarks.pipelines_data import DAY, LATE, MINUTE, NOW, in_parts
from benchmarks.process import GIB, disk_of, measure, memory_of

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

ROWS, DAYS, DISORDER, BATCHES = 10_000_000, 150, 30 * DAY, 50
CUSTOMERS, PRODUCTS = 200_000, 20_000
FIRST = NOW - DAYS * DAY
SLOTS = 2
GAP = 30 * MINUTE
MODULE = "benchmarks.forgetting_features"


def run() -> list[Figure]:
    """Measure."""
    return figures(ROWS)


def figures(rows: int) -> list[Figure]:
    """Measure a number of rows."""
    folder = files(rows)
    with tempfile.TemporaryDirectory(prefix="umbel-forgetting-") as place:
        values = Path(place, "values.parquet")
        recomputed(folder).write_parquet(values)
        measured = measure("benchmarks.forgetting", "umbel", str(folder), str(values))
    report, note = measured.report, f"{rows:,} rows, the last of {DAYS} days against the middle ones"
    peak = (
        f"{max(anonymous for _, anonymous in measured.samples) / GIB:.2f} GiB anonymous, the rest pages of mapped files"
    )
    return [
        Figure(
            "30 days of disorder: rows", report["rows"] / report["seconds"], "rows/s", note="without the first batch"
        ),
        Figure("30 days of disorder: growth of the state", report["disk growth"], "×", at_most=1.05, note=note),
        Figure("30 days of disorder: growth of memory", report["memory growth"], "×", at_most=1.05, note=note),
        Figure("30 days of disorder: state", report["disk"] / GIB, "GiB"),
        Figure("30 days of disorder: peak memory", measured.pss / GIB, "GiB", at_most=3, note=peak),
        Figure("30 days of disorder: late rows", report["late"], "", at_most=0),
        Figure("30 days of disorder: values that differ", report["differing"], "", at_most=0, note="of all customers"),
    ]


def files(rows: int) -> Path:
    """Return the folder of the files, made when it is not there yet."""
    return in_parts(CACHE / f"forgetting-{rows}", BATCHES, partial(_made, rows))


def _made(rows: int, random: np.random.Generator) -> Mapping[str, pl.DataFrame]:
    """Return orders, one in ten of them sent twice, and prices, in order of arrival."""
    prices = rows // 20
    once = (rows - prices) * 10 // 11
    sent = np.concatenate([np.arange(once), random.choice(once, rows - prices - once, replace=False)])
    orders = {
        "order": np.arange(once),
        "customer": random.integers(0, CUSTOMERS, once),
        "product": random.integers(0, PRODUCTS, once),
        "quantity": random.integers(1, 5, once),
        "at": random.integers(FIRST, NOW - MINUTE, once),
    }
    first = np.arange(prices) < PRODUCTS
    table = {
        "product": np.where(first, np.arange(prices), random.integers(0, PRODUCTS, prices)),
        "price": random.integers(100, 10_000, prices) / 4,  # sums are exact in any order
        "at": np.where(first, FIRST, np.sort(random.integers(FIRST + 1, NOW - MINUTE, prices))),
    }
    again = {name: values[sent] for name, values in orders.items()}
    return {"orders": _arrived(again, random), "prices": _arrived(table, random, np.where(first, 0, 1))}


def _arrived(
    columns: Mapping[str, np.ndarray], random: np.random.Generator, share: np.ndarray | int = 1
) -> pl.DataFrame:
    """Return rows in order of arrival: within a minute, late ones within the bound."""
    count = len(columns["at"])
    late = random.random(count) < LATE
    delays = np.where(late, random.integers(0, DISORDER - DAY, count), random.integers(0, MINUTE, count)) * share
    return pl.DataFrame(dict(columns))[np.argsort(columns["at"] + delays, kind="stable")]


def recomputed(folder: Path) -> pl.DataFrame:
    """Return all values of each customer as of `NOW`, by Polars."""
    orders = pl.scan_ndjson(folder / "orders-*.ndjson").sort("at").collect()
    prices = pl.scan_ndjson(folder / "prices-*.ndjson").collect()
    prices = prices.unique(["product", "at"], keep="last", maintain_order=True).sort("at")
    week = orders.unique("order", maintain_order=True).filter(pl.col("at") >= NOW - 7 * DAY)
    amount = pl.col("price") * pl.col("quantity")
    priced = week.join_asof(prices, on="at", by="product", check_sortedness=False).drop_nulls("price")
    values = priced.group_by("customer").agg(
        (pl.col("at") >= NOW - DAY).sum().alias("sales_1d"),
        amount.sum().alias("spent_7d"),
        amount.mean().alias("mean_7d"),
    )
    is_first = (pl.col("at") // 1000).diff().fill_null(GAP) * 1000 > GAP
    visits = orders.group_by("customer").agg(is_first.sum().alias("visits"), pl.len().alias("orders"))
    found = visits.join(values, on="customer", how="left").fill_null(0).sort("customer")
    return found.cast({pl.UInt32: pl.Int64})


def stream(place: Path, folder: Path, values: pl.DataFrame) -> dict[str, float]:
    """Run the live job over the files; return how fast it was, what grew, and what differs from the values."""
    os.environ["PIPELINES_DATA"] = str(folder)
    from umbel.cli.loading import definitions
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    expected = sum(sum(1 for _ in path.open("rb")) for path in folder.glob("*.ndjson"))
    deployment = Deployment.at(place, budget=sum(path.stat().st_size for path in folder.glob("*.ndjson")) // BATCHES)
    commit(deployment, definitions(MODULE))
    batches, late = _run(deployment, expected)
    (first, before, *_), (last, rows, *_) = batches[0], batches[-1]
    middle, end = (batches[len(batches) * bound // 10 :][: len(batches) // 5] for bound in (4, 8))
    memory, disk = (max(each[at] for each in end) / max(each[at] for each in middle) for at in (2, 3))
    report = {"rows": rows - before, "seconds": last - first, "late": late, "disk": max(each[3] for each in batches)}
    report |= {"memory growth": memory, "disk growth": disk, "differing": _differing(deployment, values)}
    deployment.store.close()  # its maintenance may still write, while the folder is deleted
    return report


def _run(deployment: Deployment, expected: int) -> tuple[list[tuple[float, int, int, int]], int]:
    """Process all; return (time, rows so far, bytes of memory, bytes of state) of each batch, and the number of late rows."""
    batches, rows, late = list[tuple[float, int, int, int]](), 0, 0

    def is_enough(counts: Counts) -> bool:
        nonlocal rows, late
        rows += counted(counts, "rows")
        late += counted(counts, "late")
        state = disk_of(deployment.directory / "store")
        batches.append((time.monotonic(), rows, memory_of(psutil.Process())[2], state))
        return rows >= expected

    run_until(deployment, SLOTS, is_enough)
    return batches, late


def _differing(deployment: Deployment, values: pl.DataFrame) -> int:
    """Return how many customers have other values than those."""
    from umbel.query.lookups import Lookups
    from umbel.runtime.history import replayed

    graph = deployment.graph(deployment.catalog.revision())
    lookups = Lookups(graph, deployment.store, partial(replayed, deployment))
    at = pl.Series([NOW]).cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC")).new_from_index(0, values.height)
    differing = pl.Series([False]).new_from_index(0, values.height)
    for dataset in ("Spent", "Visits"):
        found, _ = lookups.online(dataset, values.select("customer"), at)
        for name in {*values.columns} & {*found.columns}:
            differing |= (found[name].fill_null(0) - values[name]).abs() > 1e-6
    return int(differing.sum())


def main(what: str = str(ROWS), folder: str = "", values: str = "") -> None:
    """Print the figures; with `umbel` run the job in this process and print what it reports."""
    if what == "umbel":
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(stream(Path(place), Path(folder), pl.read_parquet(values))))
        return
    for figure in figures(int(what)):
        print(f"{figure.name:45} {readable(figure.value):>12} {figure.unit:7} {figure.verdict:15} {figure.note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
