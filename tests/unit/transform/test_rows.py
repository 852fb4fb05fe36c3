"""Rows of frames: the same JSON as of their values in Python."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.errors import NotSupported
from umbel.transform.parquet import write_parquet
from umbel.transform.rows import lines_of
from umbel.transform.values import dump

NOW = datetime(2024, 5, 6, 7, 8, 9, 120)
COLUMNS = {
    "floats": pl.Series([1.5, None, 1e16, -0.0, 5e-324]),
    "odd floats": pl.Series([float("nan"), float("inf"), float("-inf"), None, 1.0]),
    "small floats": pl.Series([0.1, None, 1e30, 3.0, -0.0], dtype=pl.Float32),
    "lists of floats": pl.Series([[0.1], None, [], [None], [2.0]], dtype=pl.List(pl.Float32)),
    "lists of odd floats": pl.Series([[0.1], None, [], [None], [float("nan")]]),
    "instants": pl.Series([NOW, None, NOW.replace(microsecond=0), datetime(1969, 1, 1), datetime(9999, 12, 31)]),
    "nanoseconds": pl.Series([NOW] * 5, dtype=pl.Datetime("ns")) + pl.duration(nanoseconds=999),
    "zones": pl.Series([NOW.replace(tzinfo=UTC)] * 5).dt.convert_time_zone("Asia/Kolkata"),
    "first years": pl.Series([datetime(1, 1, 1), datetime(999, 12, 31), None, NOW, NOW]),
    "instants inside": pl.Series([{"at": NOW}, {"at": None}, None, {"at": NOW}, {"at": datetime(1, 1, 1)}]),
    "days": pl.Series([date(2024, 2, 29), None, date(1, 1, 1), date(9999, 1, 1), date(1970, 1, 1)]),
    "decimals": pl.Series([Decimal("1.50"), None, Decimal("-0.01"), Decimal("99999999.99"), Decimal(0)]),
    "integers": pl.Series([0, 2**64 - 1, None, 2**63, 1], dtype=pl.UInt64),
    "texts": pl.Series(['a"\\\n\x00', "é\u2028", None, "", "\U0001f600\x7f"]),
    "categories": pl.Series(["a", "b", None, "a", "a"], dtype=pl.Categorical),
    "times": pl.Series([[time(1, 2, 3, 456)], None, [None], [], [time(0)]]),
    "nothing": pl.Series([None] * 5),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_written_as_python_writes_them(name: str) -> None:
    check(pl.DataFrame({"x": pl.select(COLUMNS[name]).to_series()}))


def test_durations() -> None:
    frame = pl.DataFrame({"x": [timedelta(days=1, seconds=3), None], "y": [float("nan"), 1.0]})
    assert lines_of(frame) == b'{"x":"P1DT3S","y":NaN}\n{"x":null,"y":1.0}\n'
    with pytest.raises(NotSupported, match="column 'x' is List"):
        lines_of(pl.DataFrame({"x": [[timedelta(1)]]}))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "a": st.none() | st.floats(),
                "b": st.none() | st.integers(-(2**63), 2**63 - 1),
                "c": st.none() | st.text(),
                "d": st.none() | st.datetimes(),
            }
        )
    )
)
def test_random_rows(rows: list[dict[str, Any]]) -> None:
    check(pl.DataFrame(rows, schema={"a": pl.Float64, "b": pl.Int64, "c": pl.String, "d": pl.Datetime("us")}))


def check(frame: pl.DataFrame) -> None:
    doubles = frame.with_columns(pl.col(pl.Float32).cast(pl.Float64), pl.col(pl.List(pl.Time)).cast(pl.List(pl.String)))
    assert lines_of(frame) == b"".join(dump(row) + b"\n" for row in doubles.iter_rows(named=True))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "NaN", "null"], [1.0, float("nan"), None]),
        (["[1.5]", "[-Infinity]", "null"], [[1.5], [-math.inf], None]),
        (['{"x":NaN}', '{"y":"q"}', "{}"], [{"x": math.nan, "y": None}, {"x": None, "y": "q"}, {"x": None, "y": None}]),
        (["NaN", "NaN", "NaN"], [math.nan] * 3),
        (['"a\\ud800"', '"\\\\ud800"', '":NaN,"'], ["a\ufffd", "\\ud800", ":NaN,"]),
        (["NaN", str(2**70), "1"], [math.nan, 2.0**70, 1.0]),
        (['"NaN"', "1", "true"], ["NaN", "1", "true"]),
        (["1", '{"x":1}', '"x"'], ["1", '{"x": 1}', "x"]),
        (["1", "[1]", "null"], ["1", "[1]", None]),
        (["1", "true", "1.5"], ["1", "true", "1.5"]),
        (["{}", "{}", "null"], ["{}", "{}", None]),
        (['[{},{"x":[]}]', "null", "[]"], [[{"x": None}, {"x": []}], None, []]),
        (["1", str(2**64), "-1"], ["1", str(2**64), "-1"]),
        (["1", str(2**64), "0.5"], [1.0, 2.0**64, 0.5]),
        (["[1]", "[[2]]", '["x"]'], [["1"], ["[2]"], ["x"]]),
    ],
)
def test_parquet_of_what_only_python_reads(tmp_path: Path, values: list[str], expected: list[Any]) -> None:
    (tmp_path / "in").write_text("".join(f'{{"a":{each}}}\n' for each in values))
    with patch("umbel.transform.parquet.PIECE", 10):
        write_parquet(tmp_path / "in", tmp_path / "out.parquet")
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == len(values)
    assert repr(found["a"].to_list()) == repr(expected)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in", "out.parquet"]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x":', "}")])
@pytest.mark.parametrize("depth", [31, 60, 400, 900])
def test_parquet_of_deep_values(tmp_path: Path, opening: str, closing: str, depth: int) -> None:
    (tmp_path / "in").write_text(f'{{"a":{opening * depth}1{closing * depth}}}\n{{"a":null}}\n')
    write_parquet(tmp_path / "in", tmp_path / "out.parquet")
    (found, none) = pq.read_table(tmp_path / "out.parquet")["a"].to_pylist()
    while not isinstance(found, str | int):
        found = found[0] if opening == "[" else found["x"]
        depth -= 1
    assert none is None
    assert str(found) == f"{opening * depth}1{closing * depth}"


def test_parquet_of_records_without_fields(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("{}\n{}\n")
    with pytest.raises(pl.exceptions.PolarsError, match="no fields"):
        write_parquet(tmp_path / "in", tmp_path / "out.parquet")
