"""Statistics in the table of a change log, compared with its files.

The files have checksums, the table's log has none. By what it says files are skipped, and deleted when they are too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl
import pyarrow.parquet as pq

from umbel.log.change_files import MONTH
from umbel.types.schema import AT

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROUNDED = timedelta(milliseconds=1)
"""To what other writers of the table's log round instants."""


def differences(path: Path, table: DeltaTable) -> Iterator[str]:
    """Yield what the table says of its files and is not so.

    Args:
        path: the folder of the table.
        table: the table.
    """
    for said in pl.DataFrame(table.get_add_actions(flatten=True)).iter_rows(named=True):
        name = unquote(said["path"])
        wrong = [what for what, (noted, found) in _compared(path / name, name, said).items() if noted != found]
        if wrong:
            yield f"its table is wrong about {', '.join(wrong)} of {name}"


def spread_of(table: DeltaTable) -> list[tuple[datetime, datetime, int]]:
    """Return the first and the last instant of each file, and its number of rows.

    Files of which the table does not say when their rows were are left out.

    Args:
        table: the table.
    """
    files = pl.DataFrame(table.get_add_actions(flatten=True))
    names = f"min.{AT}", f"max.{AT}", "num_records"
    return list(files.select(names).drop_nulls().iter_rows()) if set(names) <= set(files.columns) else []


def _compared(file: Path, name: str, said: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what is said of a file beside what is so."""
    metadata = pq.read_metadata(file)
    first, last = _ends(metadata)
    found = {
        "the size": (said["size_bytes"], file.stat().st_size),
        "the number of rows": (said["num_records"], metadata.num_rows),
        "the month": (f"{MONTH}={said[f'partition.{MONTH}']}", name.partition("/")[0]),
    }
    for what, noted, exact in (
        ("the first instant", said.get(f"min.{AT}"), first),
        ("the last instant", said.get(f"max.{AT}"), last),
    ):
        if noted is not None and exact is not None:
            found[what] = (abs(noted - exact) <= ROUNDED, True)
    return found


def _ends(metadata: pq.FileMetaData) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last instant by the statistics in a file."""
    (number,) = (at for at in range(metadata.num_columns) if metadata.schema.column(at).path == AT)
    groups = [metadata.row_group(at).column(number).statistics for at in range(metadata.num_row_groups)]
    if not groups or not all(each is not None and each.has_min_max for each in groups):
        return None, None
    ends = min(each.min for each in groups), max(each.max for each in groups)
    first, last = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in ends)
    return first, last
