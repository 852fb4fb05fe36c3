"""Hudi tables as Hudi itself writes them: what `hudi_samples.tar.xz` has, and how it was made.

With PySpark 3.5.7, Java 17 and Hudi's bundle 1.1.1 for Spark 3.5, in an environment of their own, apart from the project's:

    python tests/unit/connectors/hudi_samples.py hudi-spark3.5-bundle_2.12-1.1.1.jar folder
    tar -C folder -cJf tests/unit/connectors/hudi_samples.tar.xz .

Beside the tables is `rows.json`: for each table and each of its commits the rows that Spark read as of then.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

READ, COPY = "MERGE_ON_READ", "COPY_ON_WRITE"
START = datetime(2026, 11, 1)
PAYLOAD = "hoodie.datasource.write.payload.class"
MODEL = "org.apache.hudi.common.model."
BUCKETS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.index.bucket.engine": "SIMPLE",
}
PARTITIONS = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.write.partitionpath.field": "note",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}
COMPACTED = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
CLEANED = {
    **COMPACTED,
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
SCHEDULED = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
CLUSTERED = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


class Writer:
    """Writes the tables.

    Args:
        spark: the session.
        folder: gets a folder for each table.
    """

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.rows: dict[str, dict[str, Any]] = {}

    def frame(self, ids: range, note: str, shift: int = 0) -> Any:
        rows = [(each, note, START + timedelta(seconds=each + shift)) for each in ids]
        return self.spark.createDataFrame(rows, "id long, note string, updated_at timestamp")

    def write(self, name: str, kind: str, rows: Any, operation: str = "upsert", **options: str) -> None:
        """Commit, and note what Spark reads then."""
        path = self.folder / name / "orders"
        usual = {
            "table.name": "orders",
            "datasource.write.recordkey.field": "id",
            "datasource.write.precombine.field": "updated_at",
            "datasource.write.table.type": kind,
            "datasource.write.operation": operation,
            "datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "write.table.version": name[-1],
            "metadata.enable": "false",
            "embed.timeline.server": "false",
            "compact.inline": "false",
        }
        shuffles = {f"{each}.shuffle.parallelism": "1" for each in ("upsert", "insert", "delete")}
        chosen = {f"hoodie.{key}": value for key, value in {**usual, **shuffles}.items()}
        rows.write.format("hudi").options(**{**chosen, **options}).mode("append").save(str(path))
        self.note(name)

    def note(self, name: str) -> None:
        path = self.folder / name / "orders"
        commits_folder = path / ".hoodie" / "timeline"
        listed = [
            each.name for each in (commits_folder if commits_folder.is_dir() else commits_folder.parent).iterdir()
        ]
        done = [
            each for each in listed if each.endswith((".commit", ".deltacommit", ".replacecommit")) and each[0] != "."
        ]
        instant = max(done).split(".")[0].split("_")[0]
        read = self.spark.read.format("hudi").load(str(path)).select("id", "note").orderBy("id")
        self.rows.setdefault(name, {})[instant] = [tuple(row) for row in read.collect()]


def plain(at: Writer, name: str, **options: str) -> None:
    """Rows older and newer than the stored ones, and a deletion."""
    write = partial(at.write, name, READ, **options)
    write(at.frame(range(30), "first"))
    write(at.frame(range(5), "older", -5))
    write(at.frame(range(3, 9), "newer", 5))
    write(at.frame(range(3, 5), "between", 3))
    write(at.frame(range(7, 12), "deleted", 9), "delete")


def compacted(at: Writer, name: str) -> None:
    """Commits between the plan of a compaction and its end."""
    at.write(name, READ, at.frame(range(30), "first"))
    at.write(name, READ, at.frame(range(5), "planned"), **SCHEDULED)
    at.write(name, READ, at.frame(range(3, 9), "between"))
    at.write(name, READ, at.frame(range(20, 22), "deleted"), "delete")
    at.spark.sql(f"call run_compaction(op => 'run', path => '{at.folder / name / 'orders'}')")
    at.write(name, READ, at.frame(range(28, 33), "after"))


def cleaned(at: Writer, name: str) -> None:
    """Compactions, with old slices deleted and old commits archived."""
    for number in range(9):
        at.write(name, READ, at.frame(range(number, number + 20), f"{number}"), **CLEANED)


def buckets(at: Writer, name: str, kind: str) -> None:
    """An index by buckets, by which inserts go to log files, too; the whole table is overwritten once."""
    write = partial(at.write, name, kind, **BUCKETS)
    write(at.frame(range(30), "first"))
    write(at.frame(range(25, 40), "second"))
    write(at.frame(range(6), "deleted"), "delete")
    write(at.frame(range(50, 60), "over"), "insert_overwrite_table")
    write(at.frame(range(55, 65), "last"))


def partitions(at: Writer, name: str, kind: str) -> None:
    """Partitions, one of which is overwritten, and a clustering."""
    write = partial(at.write, name, kind)
    write(at.frame(range(20), "a").union(at.frame(range(20, 30), "b")), **PARTITIONS)
    write(at.frame(range(5), "a").union(at.frame(range(50, 60), "c")), **PARTITIONS)
    write(at.frame(range(22, 25), "b"), "delete", **PARTITIONS)
    write(at.frame(range(100, 105), "b"), "insert_overwrite", **PARTITIONS)
    write(at.frame(range(101, 107), "b"), **PARTITIONS, **CLUSTERED)
    write(at.frame(range(3), "a"), **PARTITIONS)


TABLES: dict[str, Callable[[Writer, str], None]] = {
    "plain": plain,
    "by_event_time": lambda at, name: plain(at, name, **{PAYLOAD: f"{MODEL}DefaultHoodieRecordPayload"}),
    "parquet_logs": lambda at, name: plain(at, name, **{"hoodie.logfile.data.block.format": "parquet"}),
    "compacted": compacted,
    "cleaned": cleaned,
    "buckets": lambda at, name: buckets(at, name, READ),
    "copied_buckets": lambda at, name: buckets(at, name, COPY),
    "partitions": lambda at, name: partitions(at, name, READ),
    "copied_partitions": lambda at, name: partitions(at, name, COPY),
}
OWN_MERGER = "own_merger6"


def main(jar: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jar,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    writer = Writer(builder.getOrCreate(), folder)
    for kind, make in TABLES.items():
        for version in (6, 9):  # of the table's format
            make(writer, f"{kind}{version}")
    plain(writer, OWN_MERGER, **{PAYLOAD: f"{MODEL}OverwriteNonDefaultsWithLatestAvroPayload"})
    for each in [*folder.rglob("*.crc"), *folder.rglob(".temp")]:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    (folder / "rows.json").write_text(json.dumps(writer.rows))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
