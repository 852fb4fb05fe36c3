"""The store of sorted runs beside plain LMDB: large and small batches of random updates, and point lookups.

    python -m benchmarks.state_store [--scale 0.1]

Both keep a count, a sum and a latest instant per key. With LMDB a batch reads the entry of each key, adds to it and puts it:
packed structs, by the `lmdb` package, without anything of umbel. The store of runs appends partial states, and merges them
beside. Both commit each batch durably. At scale 1 there are 2.3 million keys and 175,000 updates in a batch.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import polars as pl

from umbel.state.keys import encode_keys
from umbel.state.port import Stamp
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import Maintainer, maintain
from umbel.state.runs.rules import SumRule, TableSchema
from umbel.state.runs.shard import Shard, ShardOptions

STATE_ID = "a" * 16
TABLE = f"{STATE_ID}/tiles"
KEYS, UPDATES, BATCHES, SMALL = 2_300_000, 175_000, 12, 100
ENTRY = struct.Struct("<qdq")
"""An entry of LMDB: count, sum, latest instant."""
MAP_BYTES = 32 << 30
COLUMNS = {"count": pl.Int64, "sum": pl.Float64, "last": pl.Int64}
MERGE = {"count": pl.col("count").sum(), "sum": pl.col("sum").sum(), "last": pl.col("last").max()}


def batch(numbers: np.ndarray[Any, Any], at: int) -> pl.DataFrame:
    """Return the partial states of a batch, one per key."""
    keys = encode_keys(pl.DataFrame({"uid": numbers}))
    ones = np.ones(len(numbers), np.int64)
    return pl.DataFrame({"_key": keys, "count": ones, "sum": numbers / 7, "last": ones * at})


class PlainLmdb:
    """An LMDB environment used directly: read, add, put, a key at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.environment = lmdb.open(str(folder), map_size=MAP_BYTES)

    def write(self, rows: pl.DataFrame) -> None:
        """Apply a batch in one durable transaction."""
        updates = sorted(rows.rows())
        with self.environment.begin(write=True) as transaction:
            cursor = transaction.cursor()
            known = dict(cursor.getmulti([key for key, *_ in updates]))
            entries = []
            for key, *added in updates:
                before = known.get(key)
                entries.append((key, ENTRY.pack(*(added if before is None else _sum(ENTRY.unpack(before), added)))))
            cursor.putmulti(entries)

    def read(self, keys: pl.Series) -> int:
        """Look up keys; return how many there are."""
        with self.environment.begin() as transaction:
            found = transaction.cursor().getmulti(keys.to_list())
        return len([ENTRY.unpack(value) for _, value in found])

    def ready(self) -> None:
        """Finish what runs beside: nothing does."""

    def close(self) -> None:
        """Release files."""
        self.environment.close()


def _sum(before: Sequence[Any], added: Sequence[Any]) -> tuple[Any, Any, Any]:
    return before[0] + added[0], before[1] + added[1], max(before[2], added[2])


class SortedRuns:
    """The store of runs: append, merged beside."""

    def __init__(self, folder: Path, scale: float) -> None:
        options = ShardOptions(flush_bytes=int((16 << 20) * scale))
        self.shard = Shard(LocalFiles(folder), {TABLE: TableSchema(COLUMNS, SumRule(MERGE))}, options)
        self.maintainer, self.batches = Maintainer(), 0

    def write(self, rows: pl.DataFrame) -> None:
        """Apply a batch."""
        with self.shard.transaction([STATE_ID], Stamp(1, self.batches)) as tx:
            tx.append(TABLE, rows)
        self.maintainer.after(self.shard)
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


def figures(store: PlainLmdb | SortedRuns, folder: Path, scale: float) -> dict[str, float]:
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
        requested = [encode_keys(pl.DataFrame({"uid": np.unique(random.integers(0, keys, width))})) for _ in range(200)]
        count = 200 if width < 1000 else 20
        name = f"lookup of {width:,} keys"
        found[f"{name} p50, ms"], found[f"{name} p99, ms"] = percentiles(
            lambda at, w=requested: store.read(w[at]), count
        )
    found["folder, MiB"] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    return found


def main() -> None:
    """Run both stores in turn and print their figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    scale = parser.parse_args().scale
    folder = Path(tempfile.mkdtemp())
    try:
        plain, runs = PlainLmdb(folder / "lmdb"), SortedRuns(folder / "runs", scale)
        old = figures(plain, folder / "lmdb", scale)
        plain.close()
        new = figures(runs, folder / "runs", scale)
        entries = runs.shard.refresh().manifest.runs[TABLE]
        print(f"scale {scale}; runs by tier: {[entry.tier for entry in entries]}")
        for name, value in old.items():
            ratio = new[name] / value if value else float("nan")
            print(f"{name:<32} LMDB {value:>12,.2f}   runs {new[name]:>12,.2f}   runs/LMDB {ratio:.2f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
