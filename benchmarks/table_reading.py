"""What the benchmarks of sources have in common: the reading side of a table, and how long it takes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from umbel.connectors.polling import stop_polling
from umbel.connectors.sql.ranges import VARIABLE
from umbel.connectors.staged_source import StagedSource
from umbel.definitions.arguments import ReadOptions
from umbel.types.dtypes import Datetime, Int, Str

TYPES = {"id": Int(), "note": Str(), "updated_at": Datetime()}
IN_TRANSACTION = 100


def source(shop: Any, folder: Path, cursor: str | None) -> StagedSource:
    """Return the reading side of the table `orders`."""
    return reader_of(shop.table("orders", cursor), folder, is_native=not cursor)


def reader_of(connector: Any, folder: Path, *, is_native: bool = False) -> StagedSource:
    """Return the reading side of a connector, for a dataset with the columns of `TYPES`."""
    options = ReadOptions(
        directory=folder,
        key="orders",
        dataset="Orders",
        cdc="native" if is_native else "upsert",
        every=1_000_000,
        disorder=0,
        columns=tuple(TYPES),
        keys=("id",),
        is_keyed=True,
    )
    reader = connector.reader_of(options)
    assert isinstance(reader, StagedSource)
    return reader


def first_copy(reader: StagedSource, folder: Path) -> None:
    """Read the rows that are there, and stop before the changes."""
    while reader.is_loading:
        reader.tend()
    stop_polling(folder)


def staged(reader: StagedSource, rows: int) -> float:
    """Return the seconds until so many rows are staged on disk."""
    begun, found = time.perf_counter(), 0
    while found < rows:
        reader.tend()
        assert not reader.trouble, reader.trouble
        last = reader.stage.last()
        found = last.first + last.rows if last and reader.visible() else 0
        time.sleep(0.005)
    return time.perf_counter() - begun


def opened(reader: StagedSource) -> float:
    """Return the seconds that the staged rows take to be read into typed columns."""
    begun = time.perf_counter()
    for split, _ in reader.plan(None, 1 << 40)[0]:
        for batch in reader.open(split, TYPES, exact=True):
            assert not batch.raw.rejects.height
    return time.perf_counter() - begun


def timed(read: Callable[[], None]) -> float:
    """Return the seconds that a read takes."""
    begun = time.perf_counter()
    read()
    return time.perf_counter() - begun


def first_loads(shop: Any, folder: Path, rows: int) -> dict[str, float]:
    """Return the seconds of a first load by cursor over some connections, staged, and read at last."""
    times = dict[str, float]()
    for count in (1, 2, 4):
        os.environ[VARIABLE] = str(count)
        reader = source(shop, folder / str(count), "id")
        times[f"staged, {count}"] = staged(reader, rows)
        stop_polling(folder)
    return {**times, "opened": opened(reader)}


def report(unit: str, count: int, baseline: str, turns: int, measure: Callable[[int], Mapping[str, float]]) -> None:
    """Measure some times; print the median rate of each way, and its ratio to one of them."""
    runs: list[Any] = [measure(number) for number in range(turns)]
    rates = {name: count / statistics.median(run[name] for run in runs) for name in runs[0]}
    for name, rate in rates.items():
        print(f"{name:>10}: {rate:>12,.0f} {unit}, {rate / rates[baseline]:.2f} of {baseline}")
