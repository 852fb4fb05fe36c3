"""Rows per second that umbel reads from files, beside the libraries that read the same files into nothing.

    python -m benchmarks.file_reading [--rows 1000000] [--turns 3]

The files have 100,000 rows each. The ways of reading take turns. Printed are the medians, and their ratios to the library: Polars
for lines of JSON, CSV and Parquet, fastavro for Avro. umbel plans the files and reads them into typed columns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.table_reading import TYPES, report, timed
from umbel.connectors import CSV, Files

FILE = 100_000
START = datetime(2026, 1, 1, tzinfo=UTC)


def frame(first: int) -> pl.DataFrame:
    """Return the rows of one file."""
    ids = range(first, first + FILE)
    instants = [START + timedelta(seconds=n) for n in ids]
    return pl.DataFrame({"id": ids, "note": [f"note {n}" for n in ids], "updated_at": instants})


def as_avro(rows: pl.DataFrame, path: Path) -> None:
    """Write a file of Avro."""
    from fastavro import parse_schema, writer

    instant = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [
        {"name": name, "type": kind} for name, kind in (("id", "long"), ("note", "string"), ("updated_at", instant))
    ]
    with path.open("wb") as file:
        writer(file, parse_schema({"type": "record", "name": "order", "fields": fields}), rows.to_dicts())


def read_avro(path: Path) -> None:
    """Read a file of Avro into nothing."""
    from fastavro import reader

    with path.open("rb") as file:
        for _ in reader(file):
            pass


FORMATS: dict[str, tuple[Any, Callable[[pl.DataFrame, Path], Any], Callable[[Path], Any]]] = {
    "json": ("json", pl.DataFrame.write_ndjson, pl.read_ndjson),
    "csv": (CSV(), pl.DataFrame.write_csv, pl.read_csv),
    "parquet": ("parquet", pl.DataFrame.write_parquet, pl.read_parquet),
    "avro": ("avro", as_avro, read_avro),
}


def into_columns(folder: Path, declared: Any) -> None:
    """Read all files as umbel does."""
    reader: Any = Files(name="f", folder=str(folder)).path("*", format=declared).reader(Path())
    position = None
    while True:
        splits, position = reader.plan(position, 128 << 20)
        if not splits:
            return
        for split, _ in splits:
            for batch in reader.open(split, TYPES, exact=True):
                assert not batch.raw.rejects.height


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000, help=f"a multiple of {FILE}")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    rows: int = arguments.rows
    for name, (declared, write, read) in FORMATS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for first in range(0, rows, FILE):
                write(frame(first), folder / f"{first:010d}.{name}")

            def turn(_: int, f: Path = folder, d: Any = declared, r: Callable[[Path], Any] = read) -> dict[str, float]:
                paths = sorted(f.iterdir())
                return {
                    "library": timed(lambda: [r(path) for path in paths]),
                    "read": timed(lambda: into_columns(f, d)),
                }

            print(f"{name}:")
            report("rows/s", rows, "library", arguments.turns, turn)


if __name__ == "__main__":
    main()
