"""Rows per second that umbel reads from Delta, Iceberg and Hudi tables, beside their own libraries.

    python -m benchmarks.lakes [--rows 1000000] [--turns 3]

The tables are in a folder, in files of 100,000 rows. The ways of reading take turns. Printed are the medians, and their ratios
to the library, which reads the same rows into nothing: `deltalake`, `pyiceberg` and `hudi`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.table_reading import opened, report, source, staged, timed
from tests.unit.connectors import hudi_lake, iceberg_lake
from umbel.connectors import Files
from umbel.connectors.polling import stop_polling

FILE = 100_000


def delta(folder: Path, rows: int) -> tuple[Any, Callable[[], None]]:
    """Return a table of Delta, and the library's way of reading it."""
    from deltalake import DeltaTable, write_deltalake

    feed = {"delta.enableChangeDataFeed": "true"}
    for start in range(0, rows, FILE):
        part = iceberg_lake.table(range(start, start + FILE), f"note {start}")
        write_deltalake(folder / "orders", part, mode="append", configuration=feed)

    def read() -> None:
        for _ in DeltaTable(folder / "orders").to_pyarrow_dataset().to_batches():
            pass

    return Files(name="lake", folder=str(folder)).path("orders", format="delta"), read


def iceberg(folder: Path, rows: int) -> tuple[Any, Callable[[], None]]:
    """Return the same of Iceberg."""
    lake = iceberg_lake.Lake(folder)
    for start in range(0, rows, FILE):
        lake.add(range(start, start + FILE), f"note {start}")

    def read() -> None:
        for _ in lake.opened.scan().to_arrow_batch_reader():
            pass

    return lake.table("orders"), read


def hudi(folder: Path, rows: int) -> tuple[Any, Callable[[], None]]:
    """Return the same of Hudi."""
    from hudi import HudiReadOptions, HudiTableBuilder

    lake = hudi_lake.Lake(folder)
    groups = {
        f"{start:08d}-1111-1111-1111-111111111111-0": range(start, start + FILE) for start in range(0, rows, FILE)
    }
    lake.commit({name: hudi_lake.numbered(ids, f"note {ids.start}") for name, ids in groups.items()})

    def read() -> None:
        names = ["id", "note", "updated_at"]
        table = HudiTableBuilder.from_base_uri(str(lake.path)).build()
        for _ in _batches(table.read_stream(HudiReadOptions(projection=names))):
            pass

    return lake.table("orders"), read


def _batches(found: Any) -> Iterator[Any]:
    yield from found


def turn(table: Any, read: Callable[[], None], folder: Path, rows: int) -> Mapping[str, float]:
    """Return the seconds of each way of reading the same rows."""
    reader = source(SimpleNamespace(table=lambda *_: table), folder, None)
    times = {"library": timed(read), "staged": staged(reader, rows)}
    stop_polling(folder)
    return {**times, "opened": opened(reader)}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000, help=f"a multiple of {FILE}")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    rows: int = arguments.rows
    for make in (delta, iceberg, hudi):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            table, read = make(folder / "lake", rows)
            print(f"{make.__name__}:")
            report(
                "rows/s",
                rows,
                "library",
                arguments.turns,
                lambda n, t=table, r=read, f=folder: turn(t, r, f / f"r{n}", rows),
            )


if __name__ == "__main__":
    main()
