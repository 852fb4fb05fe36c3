"""The baseline counts right: a benchmark against a wrong program would say nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import lmdb
import polars as pl
from pyspark.sql import SparkSession

from benchmarks.baseline_spark import KEY, TILES, VALUE, options, stream
from benchmarks.data import transactions


def stored(store: Path) -> pl.DataFrame:
    """Return the entries of all partitions' files."""
    rows = []
    for place in store.iterdir():
        with lmdb.open(str(place), readonly=True, lock=False) as environment, environment.begin() as transaction:
            rows += [struct.unpack(KEY, key) + struct.unpack(VALUE, value) for key, value in transaction.cursor()]
    return pl.DataFrame(rows, schema=["uid", "size", "tile", "count", "sum"], orient="row")


def test_the_baseline_stores_what_a_recomputation_says(spark: SparkSession, tmp_path: Path) -> None:
    folder = transactions(4000, 8, tmp_path / "data")
    for name, value in options().items():
        if name.startswith("spark.sql"):
            spark.conf.set(name, value)
    try:
        report = stream(spark, str(folder), tmp_path)
    finally:
        for name in options():
            spark.conf.unset(name)
    assert report["rows"] == 4000
    assert report["batches"] == 2
    paid = pl.concat(pl.read_ndjson(path) for path in folder.iterdir()).filter(
        pl.col("country") != pl.col("payment_country")
    )
    expected = pl.concat(
        paid.group_by("uid", size=pl.lit(size, pl.Int64), tile=pl.col("ts") // length).agg(
            count=pl.len().cast(pl.Int64), sum=pl.col("amount").sum()
        )
        for size, length in enumerate(TILES)
    )
    order = ["uid", "size", "tile"]
    both = stored(tmp_path / "store").sort(order), expected.sort(order)
    assert both[0].drop("sum").equals(both[1].drop("sum"))
    assert (both[0]["sum"] - both[1]["sum"]).abs().max() < 1e-6
