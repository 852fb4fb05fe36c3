"""Five pipelines, each beside the same thing written by hand in plain Python, with the values of both compared.

    python -m benchmarks.pipelines [SCALE [spark] [PIPELINE…]]

| pipeline | is |
|---|---|
| orders | orders with the prices of their time, filtered and assigned by lambdas, ten features per customer and per category |
| stages | two aggregations, the second over the results and corrections of the first |
| tables | a keyed dataset joined with another, both updated |
| sessions | duplicates dropped, then session windows |
| many | ten pipelines on one source |

SCALE multiplies the rows. umbel runs in batches, in one process, and the first pipeline (with `spark`: each) also in Spark,
measured without Spark's start and the first batch. The loops by hand keep nothing on disk.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from benchmarks.figure import Figure, readable
from benchmarks.pipelines_data import files
from benchmarks.process import GIB, Measured, measure

ROWS = {"orders": 2_400_000, "stages": 1_200_000, "tables": 400_000, "sessions": 1_200_000, "many": 1_600_000}
IN_SPARK = ("orders",)
SPEEDS = {"orders: umbel in spark": 300_000}
RATIOS, RATIO = {"orders": 2.0}, 1.5
"""How many times the rows per second of the loop by hand."""
MEMORY = 3
TOLERANCE = 1e-9


def run() -> list[Figure]:
    """Measure all pipelines."""
    return [figure for name in ROWS for figure in figures(name, in_spark=name in IN_SPARK)]


def figures(name: str, scale: float = 1.0, *, in_spark: bool) -> list[Figure]:
    """Measure one pipeline: by hand, by umbel in one process, and by umbel in Spark."""
    rows = int(ROWS[name] * scale)
    folder = str(files(name, rows))
    with tempfile.TemporaryDirectory(prefix="umbel-pipelines-") as place:
        hand = folder_in(place, "hand")
        theirs = measure("benchmarks.pipelines_by_hand", name, folder, str(hand))
        ours, differing = dict[str, Measured](), list[str]()
        for how in ("process", "spark") if in_spark else ("process",):
            values = folder_in(place, how)
            ours[how] = measure("benchmarks.pipelines_umbel", name, folder, str(hand), str(values), how)
            differing += differences(hand, values)
    by_hand = rows / theirs.report["seconds"]
    best = max(each.report["rows"] / each.report["seconds"] for each in ours.values())
    return [
        Figure(f"{name}: by hand", by_hand, "rows/s", note=f"{rows:,} rows, {_memory(theirs)}"),
        *(figure for how, each in ours.items() for figure in _measured(f"{name}: umbel in {how}", each)),
        Figure(f"{name}: umbel / by hand", best / by_hand, "×", at_least=RATIOS.get(name, RATIO)),
        Figure(f"{name}: datasets that differ", len(differing), "", at_most=0, note="; ".join(differing)),
    ]


def folder_in(place: str, name: str) -> Path:
    """Make a folder."""
    folder = Path(place, name)
    folder.mkdir()
    return folder


def _measured(name: str, measured: Measured) -> Iterator[Figure]:
    report = measured.report
    note = f"{report['disk'] / GIB:.2f} GiB on disk"
    yield Figure(name, report["rows"] / report["seconds"], "rows/s", at_least=SPEEDS.get(name), note=note)
    yield Figure(f"{name}, peak memory", measured.pss / GIB, "GiB", at_most=MEMORY)


def _memory(measured: Measured) -> str:
    return f"{measured.pss / GIB:.2f} GiB at its peak"


def differences(expected: Path, found: Path) -> Iterator[str]:
    """Yield what differs between the values of two folders, a sentence for each dataset."""
    for path in sorted(expected.glob("*.parquet")):
        if reason := _difference(_comparable(pl.read_parquet(path)), _comparable(pl.read_parquet(found / path.name))):
            yield f"{path.stem}: {reason}"


def _comparable(values: pl.DataFrame) -> pl.DataFrame:
    """Return values with plain columns, in an order of their own: the last instant of a window is that of its last row."""
    if "window" in values.columns:
        bounds = pl.col("window").struct
        begin, end = (bounds.field(name).dt.epoch("us") for name in ("begin", "end"))
        values = values.with_columns((begin // 1000).alias("begin"), ((end - 1) // 1000).alias("last")).drop("window")
    exact = sorted(name for name, dtype in values.schema.items() if not dtype.is_float())
    return values.select(*exact, *sorted({*values.columns} - {*exact})).sort(exact)


def _difference(expected: pl.DataFrame, found: pl.DataFrame) -> str:
    if expected.columns != found.columns or expected.height != found.height:
        return f"{found.height} rows of {found.columns}, not {expected.height} of {expected.columns}"
    for column in expected.iter_columns():
        other = found[column.name]
        if column.dtype.is_float():
            same = ((column - other).abs() <= TOLERANCE * column.abs() + TOLERANCE).all()
        else:
            same = column.cast(other.dtype).equals(other, null_equal=True)
        if not same:
            return f"column {column.name} differs"
    return ""


def main(scale: str = "1", *names: str) -> None:
    """Measure some pipelines and print their figures."""
    everywhere = "spark" in names
    for name in [each for each in names if each != "spark"] or ROWS:
        for figure in figures(name, float(scale), in_spark=everywhere or name in IN_SPARK):
            print(f"{figure.name:45} {readable(figure.value):>12} {figure.unit:7} {figure.verdict:15} {figure.note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
