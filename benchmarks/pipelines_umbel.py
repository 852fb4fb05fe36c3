"""The pipelines of the benchmark as users of umbel run them: files in, durable state and change logs out.

    python -m benchmarks.pipelines_umbel PIPELINE FOLDER BY_HAND VALUES [process|spark|spark-SLOTS]

The definitions are those of `pipelines_<PIPELINE>`. The values as of `NOW` are written to the folder VALUES: those of looked-up
aggregates for the keys in the frames that the loop by hand wrote, of other datasets all rows of their change log.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.live import Counts, counted, run_until
from benchmarks.pipelines_data import NOW
from benchmarks.process import disk_of

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

BATCHES = 4
"""How many batches the input is read in."""
SLOTS = 2
INSTANT = pl.Datetime("us", "UTC")


def processed(place: Path, folder: Path, definitions_of: str, slots: int) -> tuple[Deployment, float, int]:
    """Process all rows; return the deployment, and seconds of processing with the rows that were processed in them.

    In Spark these are all but those of the first batch, which is that of starting workers.

    Args:
        place: of the deployment.
        folder: of the rows.
        definitions_of: the module with the definitions.
        slots: of Spark; 0 to process the rows without Spark.
    """
    from umbel.cli.loading import definitions
    from umbel.runtime.batch import drain
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment

    size = sum(path.stat().st_size for path in folder.glob("*.ndjson"))
    deployment = Deployment.at(place, budget=size // BATCHES + 1)
    commit(deployment, definitions(definitions_of))
    if slots:
        return deployment, *_by_spark(deployment, _rows(folder), slots)
    begun = time.monotonic()
    drain(deployment)
    return deployment, time.monotonic() - begun, _rows(folder)


def _rows(folder: Path) -> int:
    return sum(sum(1 for _ in path.open("rb")) for path in folder.glob("*.ndjson"))


def _by_spark(deployment: Deployment, requested: int, slots: int) -> tuple[float, int]:
    rows, finished = 0, list[tuple[float, int]]()

    def is_enough(counts: Counts) -> bool:
        nonlocal rows
        rows += counted(counts, "rows")
        finished.append((time.monotonic(), rows))
        return rows >= requested

    run_until(deployment, slots, is_enough)
    (first, before), (last, _) = finished[0], finished[-1]
    return last - first, rows - before


def write_values(deployment: Deployment, by_hand: Path, target: Path) -> None:
    """Write the values of every dataset that the loop written by hand has values of."""
    from umbel.query.lookups import Lookups
    from umbel.runtime.history import replayed

    graph = deployment.graph(deployment.catalog.revision())
    lookups = Lookups(graph, deployment.store, partial(replayed, deployment))
    for path in sorted(by_hand.glob("*.parquet")):
        node, expected = graph.outputs[path.stem], pl.read_parquet(path)
        if node.operator.is_terminal:
            keys = expected.select(node.operator.schema.key_names)
            now = pl.Series([NOW], dtype=pl.Int64).cast(pl.Datetime("ms", "UTC")).cast(INSTANT)
            found, _ = lookups.online(path.stem, keys, now.new_from_index(0, keys.height))
        else:
            found = _current(deployment.changes.read(node))
        found.drop(node.operator.schema.timestamp).write_parquet(target / path.name)


def _current(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that were inserted and not retracted."""
    columns = [name for name in changes.columns if not name.startswith("_")]
    net = changes.group_by(columns).agg(pl.col("_weight").sum()).filter(pl.col("_weight") != 0)
    assert (net["_weight"] == 1).all(), "a row is there twice"
    return net.drop("_weight")


def main(pipeline: str, folder: str, by_hand: str, values: str, how: str = "process") -> None:
    """Run a pipeline in this process, write its values and print what it took."""
    os.environ["PIPELINES_DATA"] = folder
    with tempfile.TemporaryDirectory() as place:
        umbel = Path(place)
        module = f"benchmarks.pipelines_{pipeline}"
        slots = 0 if how == "process" else int(how.partition("-")[2] or SLOTS)
        deployment, seconds, rows = processed(umbel, Path(folder), module, slots)
        disk = disk_of(umbel)
        write_values(deployment, Path(by_hand), Path(values))
        deployment.store.close()  # its maintenance may still write, while the folder is deleted
        print(json.dumps({"seconds": seconds, "rows": rows, "disk": disk}))


if __name__ == "__main__":
    main(*sys.argv[1:])
