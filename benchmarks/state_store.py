"""The store of sorted runs beside the LMDB store: large and small batches of random updates, and point lookups.

    python -m benchmarks.state_store [--scale 0.1]

Both keep a count, a sum and a latest instant per key. The LMDB store reads the entries of a batch, merges and puts them; the
store of runs appends partial states, and merges them beside. Both commit each batch durably. At scale 1 there are 2.3 million
keys and 175,000 updates in a batch.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from umbel.state.keys import encode_keys
from umbel.state.port import Stamp
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import Maintainer, maintain
from umbel.state.runs.rules import SumRule, TableSchema
from umbel.state.runs.shard import Shard, ShardOptions
from umbel.state.tables import State
from umbel.state.urls import open_store

STATE_ID = "a" * 16
TABLE = f"{STATE_ID}/tiles"
KEYS, UPDATES, BATCHES, SMALL = 2_300_000, 175_000, 12, 100
COLUMNS = {"count": pl.Int64, "sum": pl.Float64, "last": pl.Int64}
MERGE = {"count": pl.col("count").sum(), "sum": pl.col("sum").sum(), "last": pl.col("last").max()}


def batch(numbers: np.ndarray[Any, Any], at: int) -> pl.DataFrame:
    """Return the partial states of a batch, one per key."""
    keys = encode_keys(pl.DataFrame({"uid": numbers}))
    ones = np.ones(len(numbers), np.int64)
    return pl.DataFrame({"_key": keys, "count": ones, "sum": numbers / 7, "last": ones * at})


class OldStore:
    """The LMDB store: read, merge, put."""

    def __init__(self, folder: Path) -> None:
        self.store, self.batches = open_store(f"lmdb://{folder}", 1), 0

    def write(self, rows: pl.DataFrame) -> None:
        """Apply a batch."""
        with self.store.transaction(0, [STATE_ID], Stamp(1, self.batches)) as tx:
            table = State(tx, STATE_ID).table("tiles", COLUMNS)
            known = table.get(rows["_key"])
            merged = pl.concat([known, rows.select(known.columns)]).group_by("_key").agg(**MERGE)
            table.replace(rows["_key"], merged)
        self.batches += 1

    def read(self, keys: pl.Series) -> int:
        """Look up keys; return how many there are."""
        with self.store.snapshot(0) as reader:
            return State(reader, STATE_ID).table("tiles", COLUMNS).get(keys).height

    def ready(self) -> None:
        """Finish what runs beside."""

    def close(self) -> None:
        """Release files."""
        self.store.close()


class NewStore:
    """The store of runs: append, merged beside."""

    def __init__(self, folder: Path, scale: float) -> None:
        options = ShardOptions(flush_bytes=int((16 << 20) * scale))
        self.shard = Shard(LocalFiles(folder), {TABLE: TableSchema(COLUMNS, SumRule(MERGE))}, options)
        self.maintainer, self.batches = Maintainer(self.shard), 0

    def write(self, rows: pl.DataFrame) -> None:
        """Apply a batch."""
        with self.shard.transaction([STATE_ID], Stamp(1, self.batches)) as tx:
            tx.append(TABLE, rows)
        self.maintainer.wake()
        self.batches += 1

    def read(self, keys: pl.Series) -> int:
        """Look up keys; return how many there are."""
        return self.shard.snapshot().lookup(TABLE, keys).height

    def ready(self) -> None:
        """Finish what runs beside."""
        self.close()
        maintain(self.shard)

    def close(self) -> None:
        """End the thread beside."""
        self.maintainer.close()


def measured(work: Callable[[], None]) -> float:
    """Return the seconds that some work takes."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def percentiles(work: Callable[[int], object], count: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of many calls, in ms."""
    times = []
    for number in range(count):
        start = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - start)
    return float(np.percentile(times, 50) * 1e3), float(np.percentile(times, 99) * 1e3)


def figures(store: OldStore | NewStore, folder: Path, scale: float) -> dict[str, float]:
    """Run the workloads on one store; return its figures."""
    keys, updates = int(KEYS * scale), int(UPDATES * scale)
    random = np.random.default_rng(1)
    filling = [batch(part, 0) for part in np.array_split(random.permutation(keys), 14)]
    large = [batch(random.choice(keys, updates, replace=False), at) for at in range(BATCHES)]
    small = [batch(random.choice(keys, SMALL, replace=False), at) for at in range(200)]
    found = {"fill, keys/s": keys / measured(lambda: [store.write(rows) for rows in filling] and None)}
    found["large batches, updates/s"] = updates * BATCHES / measured(lambda: [store.write(r) for r in large] and None)
    found["small batch p50, ms"], found["small batch p99, ms"] = percentiles(lambda at: store.write(small[at]), 200)
    found["finishing beside, s"] = measured(store.ready)
    for width in (1, 100, 10_000):
        wanted = [encode_keys(pl.DataFrame({"uid": random.integers(0, keys, width)})).unique() for _ in range(200)]
        count = 200 if width < 1000 else 20
        name = f"lookup of {width:,} keys"
        found[f"{name} p50, ms"], found[f"{name} p99, ms"] = percentiles(lambda at, w=wanted: store.read(w[at]), count)
    found["folder, MiB"] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    return found


def main() -> None:
    """Run both stores in turn and print their figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    scale = parser.parse_args().scale
    folder = Path(tempfile.mkdtemp())
    try:
        old_store, new_store = OldStore(folder / "old"), NewStore(folder / "new", scale)
        old = figures(old_store, folder / "old", scale)
        old_store.close()
        new = figures(new_store, folder / "new", scale)
        entries = new_store.shard.refresh().manifest.runs[TABLE]
        print(f"scale {scale}; runs by tier: {[entry.tier for entry in entries]}")
        for name, value in old.items():
            ratio = new[name] / value if value else float("nan")
            print(f"{name:<32} LMDB {value:>12,.2f}   runs {new[name]:>12,.2f}   runs/LMDB {ratio:.2f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
