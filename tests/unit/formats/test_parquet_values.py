"""Values of Parquet files that Python or Polars do not have: read, or a dead letter, and no other row is lost."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.connectors.reading import read
from tests.unit.connectors.test_files import source
from umbel.types.dtypes import Date, Datetime, Decimal, Dict, Embedding, Float, Int, List, Optional, Str

AT = datetime(2026, 3, 1, tzinfo=UTC)
FAR = [253_402_300_800_000_000, 0, -62_135_596_800_000_001]
DAYS = pa.array([2_932_897, 0, -719_163], pa.int32()).cast(pa.date32())
MICROS = pa.array(FAR, pa.timestamp("us", "UTC"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CASES: dict[str, tuple[Any, Any, list[Any]]] = {
    "days": (DAYS, Date(), [..., date(1970, 1, 1), ...]),
    "days as instants": (DAYS, Datetime(), [..., EPOCH, ...]),
    "days as text": (DAYS, Str(), [..., ..., ...]),
    "instants": (MICROS, Datetime(), [..., EPOCH, ...]),
    "instants without zone": (pa.array(FAR, pa.timestamp("us")), Datetime(), [..., EPOCH, ...]),
    "instants in ms": (pa.array([2**62, 0, -(2**62)], pa.timestamp("ms")), Datetime(), [..., EPOCH, ...]),
    "instants in lists": (pa.array([FAR, FAR[1:2]], pa.list_(pa.timestamp("us"))), List(Datetime()), [..., [EPOCH]]),
    "an offset as zone": (pa.array([AT], pa.timestamp("us", "+05:30")), Datetime(), [AT]),
    "such in lists": (pa.array([[AT]], pa.list_(pa.timestamp("us", "+05:30"))), List(Datetime()), [[AT]]),
    "long decimals": (
        pa.array([Number("1.5"), None], pa.decimal256(50, 2)),
        Optional(Decimal(2)),
        [Number("1.50"), None],
    ),
    "too long ones": (pa.array([Number(10**45), Number(1)], pa.decimal256(50, 2)), Decimal(2), [..., Number("1.00")]),
    "too long ones in lists": (
        pa.array([[Number(10**45)], [Number(1)], None], pa.list_(pa.decimal256(50, 2))),
        Optional(List(Decimal(2))),
        [..., [Number("1.00")], None],
    ),
    "such in maps": (
        pa.array([[("a", Number(10**45))], [("b", Number(1))]], pa.map_(pa.string(), pa.decimal256(50, 2))),
        Dict(Decimal(2)),
        [..., [{"key": "b", "value": Number("1.00")}]],
    ),
    "instants in maps": (
        pa.array([[("a", AT)], []], pa.map_(pa.string(), pa.timestamp("us", "+05:30"))),
        Dict(Datetime()),
        [[{"key": "a", "value": AT}], []],
    ),
    "long decimals in lists of one length": (
        pa.array([[Number(1), Number(2)], None], pa.list_(pa.decimal256(50, 2), 2)),
        Optional(Embedding(2)),
        [[1.0, 2.0], None],
    ),
    "a zone that nobody knows": (pa.array([AT], pa.timestamp("us", "GMT+1")), Datetime(), [AT]),
    "too long floats": (pa.array([Number(10**45), Number(1)], pa.decimal256(50, 2)), Float(), [..., ...]),
}


@pytest.mark.parametrize("case", CASES)
def test_one_row_is_lost_for_one_value(case: str, tmp_path: Path) -> None:
    column, dtype, expected = CASES[case]
    pq.write_table(pa.table({"n": range(len(column)), "v": column}), tmp_path / "a.parquet", version="2.6")
    found = read(source(tmp_path, "*.parquet", "parquet"), {"n": Int(), "v": dtype})
    values = {row["n"]: row["v"] for row in found.rows.values()}
    assert [values.get(number, ...) for number in range(len(column))] == expected
    assert len(found.dead) == expected.count(...)


def test_instants_of_96_bits_far_from_now(tmp_path: Path) -> None:
    """In nanoseconds, as they are stored, 64 bits end in 2262: the year 3000 was read as 1830."""
    column = pa.array([datetime(3000, 1, 1), AT.replace(tzinfo=None)], pa.timestamp("us"))
    table = pa.table({"n": [0, 1], "v": column})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found = read(source(tmp_path, "*.parquet", "parquet"), {"n": Int(), "v": Datetime()})
    assert [row["v"] for row in found.rows.values()] == [datetime(3000, 1, 1, tzinfo=UTC), AT]


BROKEN = pa.array([b"a", b"caf\xe9", None, b"long enough to lie outside of its view \xff", b"z"]).view(pa.string())


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (BROKEN, Optional(Str())),
        (BROKEN.dictionary_encode(), Optional(Str())),
        (pa.ListArray.from_arrays(range(6), BROKEN), List(Optional(Str()))),
    ],
    ids=["plain", "dictionary", "lists"],
)
def test_a_text_that_is_not_utf_8_costs_its_row(column: Any, dtype: Any, tmp_path: Path) -> None:
    """It was stored: each lookup of the row failed, and then each reading of the history."""
    pq.write_table(pa.table({"n": range(5), "v": column}), tmp_path / "a.parquet")
    found = read(source(tmp_path, "*.parquet", "parquet"), {"n": Int(), "v": dtype})
    whole = [row["v"] if isinstance(row["v"], list) else [row["v"]] for row in found.rows.values()]
    assert whole == [["a"], [None], ["z"]]
    assert found.reasons() == ["v: a text in it is not UTF-8"] * 2
