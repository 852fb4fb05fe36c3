"""The files of a change log, and what its table says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from umbel.state.runs.sorting import gathered, order_of
from umbel.types.schema import AT, SEQ

MONTH = "_at_month"
MOST_FILES = 36
"""The most files of months that one write makes; with more its files are of years, with more still of decades or centuries."""
PERIODS = (1, 12, 120, 1200)
"""Their months."""
_OF_BATCH = re.compile(r"batch-(-?\d+)-")


@dataclass(frozen=True, slots=True)
class ChangeLogFile:
    """A Parquet file with changes, not yet part of its table.

    Args:
        path: relative to the table.
        month: its partition: that of its changes, or the first one of a longer period.
        size: in bytes.
        rows: number of changes.
        first: the earliest `_at`, in ISO form.
        last: the latest.
    """

    path: str
    month: str
    size: int
    rows: int
    first: str
    last: str

    @property
    def statistics(self) -> str:
        """The statistics of the file in its table, without values of the dataset's columns."""
        ends = {"minValues": {AT: self.first}, "maxValues": {AT: self.last}, "nullCount": {AT: 0}}
        return json.dumps({"numRecords": self.rows, **ends})


def prefix_of(batch: int) -> str:
    """Return the beginning of the names of the files with the changes of one batch."""
    return f"batch-{batch:012d}-"


def batch_of(name: str) -> int | None:
    """Return the batch that a file's name tells, None if it has rows of several."""
    found = _OF_BATCH.match(name.rpartition("/")[2])
    return None if found is None else int(found[1])


def may_have(name: str, first: int | None, last: int | None) -> bool:
    """Return False if the file's name tells that all its changes are of other batches.

    Args:
        name: of the file, relative to the table.
        first: the first of the batches, None for any.
        last: the last one, None for any.
    """
    batch = batch_of(name)
    return batch is None or ((first is None or batch >= first) and (last is None or batch <= last))


def unfinished(table: Path) -> Iterator[Path]:
    """Yield a table's files that a process began to write, and may have left.

    Delta Lake's library begins a file as `name#1`, and lists none of that name: its vacuum leaves them out.
    """
    return chain(table.glob("**/*#[0-9]*"), (table / "_delta_log").glob(".*.new"))


def added(part: ChangeLogFile) -> Any:
    """Return the action that adds a file to its table."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=part.path,
        size=part.size,
        partition_values={MONTH: part.month},
        modification_time=0,
        data_change=True,
        stats=part.statistics,
    )


def added_as_json(part: ChangeLogFile) -> dict[str, Any]:
    """Return the same action as the table's log has it."""
    return {
        "path": part.path,
        "partitionValues": {MONTH: part.month},
        "size": part.size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": part.statistics,
    }


def iso(instant: datetime) -> str:
    """Return an instant as statistics spell it."""
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def in_order(changes: pl.DataFrame) -> pl.DataFrame:
    """Return changes in the order of their instants and numbers; equal ones remain in order."""
    at, seq = changes[AT], changes[SEQ]
    if at.null_count() or seq.null_count():
        return changes.sort(AT, SEQ, maintain_order=True)
    numbers, instants = seq.to_numpy(), at.to_physical().to_numpy()
    is_sorted = not len(instants) or bool((instants[1:] >= instants[:-1]).all())
    order = np.arange(len(instants)) if is_sorted else order_of(instants)
    ordered = instants[order]
    if ((ordered[1:] == ordered[:-1]) & (numbers[order[1:]] < numbers[order[:-1]])).any():
        return gathered(changes, order_of(instants, numbers))
    return changes if is_sorted else gathered(changes, order)


def by_period(changes: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Return the first days of periods in order, and the changes of each.

    The periods are months where there are few of these.

    Args:
        changes: in the order of their instants.
    """
    for months in PERIODS:
        found = list(islice(_periods(changes, months), MOST_FILES + 1))
        if len(found) <= MOST_FILES:
            return found
    return list(_periods(changes, PERIODS[-1]))


def _periods(changes: pl.DataFrame, months: int) -> Iterator[tuple[str, pl.DataFrame]]:
    instants, start = changes[AT], 0
    while start < len(instants):
        at = instants[start]
        number = at.year * 12 + at.month - 1
        begin, end = max(12, number - number % months), number - number % months + months
        following = datetime(end // 12, end % 12 + 1, 1, tzinfo=UTC) if end // 12 <= MAXYEAR else None
        stop = len(instants) if following is None else instants.search_sorted(following, side="left")
        yield f"{begin // 12:04d}-{begin % 12 + 1:02d}-01", changes.slice(start, stop - start)
        start = stop
