"""The baseline: Spark's own stateful streaming doing the job of the write path.

Transactions (NDJSON) → filter → count and sum per user over the tiles that windows of a day, of seven days and forever
are made of: `groupBy` in update mode, state in RocksDB, and `foreachBatch` writing what changed to LMDB with fsync. The
choices are those that make it fastest here: the file source's own JSON reader with a schema, one aggregation for all
three tile sizes, as many partitions as cores, changelog checkpoints, and no second shuffle before the store.

    python -m benchmarks.baseline_spark [FOLDER OF NDJSON FILES]
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import transactions
from benchmarks.figure import Figure
from benchmarks.process import GIB, measure
from umbel.spark.session import Settings, running

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
FILES_PER_BATCH = 4
TILES = (864_000, 6_048_000, 1 << 62)
"""Milliseconds: a hundredth of a day and of seven days, and one tile for all time."""
SCHEMA = "uid long, amount double, merchant_id long, country string, payment_country string, ts long"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KEY, VALUE = ">qbq", "<qd"
"""The entries of the store: user, tile size and tile; count and sum."""
LMDB_SIZE = 8 << 30


def run() -> list[Figure]:
    """Measure the baseline on the transactions."""
    return figures(str(transactions()))


def figures(folder: str) -> list[Figure]:
    """Measure the baseline on a folder of NDJSON files."""
    measured = measure("benchmarks.baseline_spark", folder)
    report = measured.report
    note = f"{report['rows']:,.0f} rows in {report['batches']:.0f} batches, {report['seconds']:.1f} s"
    return [
        Figure("Spark's own stateful streaming", report["rows"] / report["seconds"], "rows/s", note=note),
        Figure("Spark's own, after its first batch", report["steady"], "rows/s"),
        Figure("Spark's own, peak memory", measured.rss / GIB, "GiB", note="resident, all processes"),
    ]


def tiles(rows: DataFrame) -> DataFrame:
    """Return count and sum per user and tile, of transactions paid from abroad."""
    from pyspark.sql.functions import count, expr
    from pyspark.sql.functions import sum as total

    tile = ", ".join(f"struct({size}Y as size, floor(ts / {length}) as tile)" for size, length in enumerate(TILES))
    return (
        rows.filter("country <> payment_country")
        .select("uid", "amount", expr(f"explode(array({tile})) as at"))
        .groupBy("uid", "at.size", "at.tile")
        .agg(count("*").alias("count"), total("amount").alias("sum"))
    )


def stream(session: SparkSession, folder: str, place: Path) -> dict[str, float]:
    """Run the query over all files; return rows, seconds, batches and the rate after the first batch."""
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH).json(folder)
    (place / "store").mkdir()
    save = saving(place / "store")

    def write(changed: DataFrame, _: int) -> None:
        changed.mapInArrow(save, "entries long").collect()

    begun = time.monotonic()
    query = (
        tiles(source)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(place / "checkpoint"))
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - begun
    progress = [batch for batch in query.recentProgress if batch.numInputRows]
    later = progress[1:]
    took = sum(batch.durationMs["triggerExecution"] for batch in later) / 1000
    rows = sum(batch.numInputRows for batch in progress)
    steady = sum(batch.numInputRows for batch in later) / took if took else 0.0
    return {"rows": rows, "seconds": seconds, "batches": len(progress), "steady": steady}


def saving(store: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task that writes one partition of changed aggregates to its LMDB file, in one durable transaction."""

    def save(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lmdb
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        environment = lmdb.open(str(store / str(context.partitionId())), map_size=LMDB_SIZE, writemap=True)
        entries, key_of, value_of = 0, struct.Struct(KEY).pack, struct.Struct(VALUE).pack
        with environment.begin(write=True) as transaction:
            for batch in batches:
                uid, size, tile, count, total = (batch[name].to_pylist() for name in batch.schema.names)
                for key, value in zip(map(key_of, uid, size, tile), map(value_of, count, total), strict=True):
                    transaction.put(key, value)
                entries += batch.num_rows
        environment.close()
        yield pa.RecordBatch.from_pydict({"entries": [entries]})

    return save


def options() -> dict[str, str]:
    """Return the settings of Spark that this query is fastest with."""
    return {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.files.maxPartitionBytes": "64m",
    }


def main(folder: str) -> None:
    """Run the baseline in this process and print what it reports."""
    with tempfile.TemporaryDirectory() as place:
        settings = Settings(Path(place) / "umbel", slots=SLOTS, memory="4g", tuning="", options=options())
        with running(settings) as session:
            print(json.dumps(stream(session, folder, Path(place))))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(transactions()))
