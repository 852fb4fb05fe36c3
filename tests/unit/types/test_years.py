"""Instants and days that columns of files can hold and Python cannot."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, List, Optional

import polars as pl
import pytest

from umbel.types.annotations import from_annotation
from umbel.types.years import outside, row_of, within

LAST_DAY, LAST_MICRO = 2_932_896, 253_402_300_799_999_999
FIRST_DAY, FIRST_MICRO = -719_162, -62_135_596_800_000_000
EXTREME = 2**63 - 1


def days(*numbers: int | None) -> pl.Series:
    return pl.Series("v", numbers, pl.Int32).cast(pl.Date)


def instants(*numbers: int | None, unit: Any = "us", zone: str | None = "UTC") -> pl.Series:
    return pl.Series("v", numbers, pl.Int64).cast(pl.Datetime(unit, zone))


COLUMNS = [
    (days(FIRST_DAY, LAST_DAY, None), []),
    (days(FIRST_DAY - 1, LAST_DAY + 1, 0, 2**31 - 1, -(2**31)), [0, 1, 3, 4]),
    (instants(FIRST_MICRO, LAST_MICRO, None), []),
    (instants(FIRST_MICRO - 1, LAST_MICRO + 1, 0, EXTREME), [0, 1, 3]),
    (instants(LAST_MICRO // 1000, LAST_MICRO // 1000 + 1, EXTREME, unit="ms", zone=None), [1, 2]),
    (instants(EXTREME, -EXTREME, unit="ns"), []),
    (days(LAST_DAY + 1, 0, None, 1).to_frame().select(pl.concat_list("v", "v")).to_series(), [0]),
    (pl.Series("v", [[], None, [0, EXTREME], [1]], pl.List(pl.Datetime("us"))), [2]),
    (pl.DataFrame({"a": days(0, LAST_DAY + 1), "b": instants(EXTREME, 0)}).to_struct("v"), [0, 1]),
    (pl.Series("v", [1, EXTREME]), []),
    (pl.Series("v", [[1], [EXTREME]]), []),
    (pl.Series("v", [], pl.List(pl.Date)), []),
]


@pytest.mark.parametrize(("column", "rows"), COLUMNS, ids=[*map(str, range(len(COLUMNS)))])
def test_rows_with_instants_outside_the_years(column: pl.Series, rows: list[int]) -> None:
    assert outside(column) == rows
    found, reasons = within(column)
    assert (found.name, found.dtype, found.null_count()) == ("v", column.dtype, column.null_count() + len(rows))
    assert list(reasons) == rows
    for row in range(len(column)):
        assert (row_of(column.to_frame(), row)["v"] is None) == (row in rows or column.is_null()[row])


@pytest.mark.parametrize("kind", [datetime, date, str, int, float, Optional[date], List[date]], ids=str)
@pytest.mark.parametrize("number", [number for number, (_, rows) in enumerate(COLUMNS) if rows])
def test_no_type_takes_them(kind: Any, number: int) -> None:
    column, _ = COLUMNS[number]
    checked = from_annotation(kind).ingest(column)
    assert checked.errors.keys() >= set(outside(column))
    assert "the years 1 to 9999" in checked.errors[outside(column)[0]]


def test_a_row_has_python_values() -> None:
    frame = pl.DataFrame({"l": [[1, 2], None], "s": [{"a": [1]}, {"a": None}], "d": days(0, LAST_DAY + 1)})
    assert row_of(frame, 0) == frame[:1].row(0, named=True)
    assert row_of(frame, 1) == {"l": None, "s": {"a": None}, "d": None}
