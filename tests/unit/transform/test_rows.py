"""Rows of frames: the same JSON as of their values in Python."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from umbel.errors import InvalidValue
from umbel.formats.chunks import MAX_ROW
from umbel.transform.inputs import InputFile
from umbel.transform.parquet import CELLS, MOST_COLUMNS, write_parquet
from umbel.transform.rows import check_columns, parts_of
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
    "nothing": pl.Series([None] * 5),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_written_as_python_writes_them(name: str) -> None:
    check(pl.DataFrame({"x": pl.select(COLUMNS[name]).to_series()}))


def test_durations() -> None:
    frame = pl.DataFrame({"x": [timedelta(days=1, seconds=3), None], "y": [float("nan"), 1.0]})
    assert lines_of(frame.to_arrow()) == b'{"x":"P1DT3S","y":NaN}\n{"x":null,"y":1.0}\n'
    assert lines_of(pl.DataFrame({"x": [[timedelta(1)]]}).to_arrow()) == b'{"x":["P1D"]}\n'


NAN, BERLIN = float("nan"), pa.timestamp("us", "Europe/Berlin")
WINTER = datetime(2024, 1, 1, 0, 0, 0, 5)
VALUES: dict[str, tuple[pa.DataType, Any, str]] = {
    "odd float": (pa.float64(), NAN, "NaN"),
    "small float": (pa.float32(), 0.1, "0.10000000149011612"),
    "half float": (pa.float16(), 0.1, "0.0999755859375"),
    "naive instant": (pa.timestamp("us"), WINTER, '"2024-01-01T00:00:00.000005Z"'),
    "zoned instant": (BERLIN, WINTER, '"2024-01-01T00:00:00.000005Z"'),
    "instant with an offset": (pa.timestamp("s", "+05:30"), 1704067200, '"2024-01-01T00:00:00Z"'),
    "day": (pa.date32(), date(500, 1, 2), '"0500-01-02"'),
    "day of milliseconds": (pa.date64(), date(2024, 1, 2), '"2024-01-02"'),
    "time": (pa.time64("us"), time(1, 2, 3, 500_000), '"01:02:03.500000"'),
    "whole time": (pa.time32("s"), time(1, 2, 3), '"01:02:03"'),
    "duration": (pa.duration("us"), timedelta(1), '"P1D"'),
    "decimal": (pa.decimal128(5, 2), Decimal("1.50"), '"1.50"'),
    "long decimal": (pa.decimal256(60, 1), Decimal("1e50"), f'"1{"0" * 50}.0"'),
    "category": (pa.dictionary(pa.int8(), pa.string()), "a", '"a"'),
    "list view": (pa.list_view(pa.int8()), [1, None], "[1,null]"),
    "array": (pa.list_(pa.float32(), 1), [0.5], "[0.5]"),
    "object": (pa.struct({"": pa.int8(), "b": pa.float64()}), {"": 1, "b": NAN}, '{"":1,"b":NaN}'),
    "empty object": (pa.struct([]), {}, "{}"),
    "map": (pa.map_(pa.string(), pa.map_(pa.string(), BERLIN)), [("k", [("l", None)])], '{"k":{"l":null}}'),
    "map of integers": (pa.map_(pa.int32(), pa.string()), [(1, "a")], '{"1":"a"}'),
    "map of truth values": (pa.map_(pa.bool_(), pa.string()), [(True, "a")], '{"true":"a"}'),
    "nothing": (pa.null(), None, "null"),
}


@pytest.mark.parametrize("beside", [1.0, NAN])
@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_one_form_wherever_it_is(name: str, beside: float) -> None:
    kind, value, text = VALUES[name]
    inside = pa.schema(
        {"": kind, "list": pa.list_(kind), "map": pa.map_(pa.string(), kind), "object": pa.struct({"a": kind})}
    )
    row = [value, [value, None], [("k", value)], {"a": value}]
    columns = [pa.array([each, None, each, None], column.type) for each, column in zip(row, inside, strict=True)]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([beside] * 4)], [*inside.names, "x"])
    shown = f'{{"":{text},"list":[{text},null],"map":{{"k":{text}}},"object":{{"a":{text}}},"x":{beside}}}'
    none = f'{{"":null,"list":null,"map":null,"object":null,"x":{beside}}}'
    expected = [each.replace("nan", "NaN").encode() for each in (shown, none)] * 2
    assert lines_of(batch).split(b"\n") == [*expected, b""]
    assert lines_of(batch.slice(1, 2)).split(b"\n") == [*expected[1:3], b""]


def test_uuids_are_texts() -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16)))
    lists = pa.ListArray.from_arrays([0, 2, 2], ids)
    maps = pa.MapArray.from_arrays([0, 1, 1], ids[:1], ids[:1])
    text = '"30303030-3030-3030-3030-303030303030"'
    expected = f'{{"a":{text},"b":[{text},null],"c":{{{text}:{text}}}}}\n{{"a":null,"b":[],"c":{{}}}}\n'
    assert lines_of(pa.RecordBatch.from_arrays([ids, lists, maps], ["a", "b", "c"])) == expected.encode()


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.timestamp("us"), 253_402_300_800_000_000),
        (pa.timestamp("us"), -62_135_596_800_000_001),
        (pa.timestamp("s", "UTC"), 2**63 - 1),
        (pa.date32(), 3_000_000),
        (pa.date64(), -(2**50) * 1000),
    ],
)
def test_a_row_with_an_instant_that_json_has_not_is_a_dead_letter(kind: pa.DataType, number: int) -> None:
    numbers = [0, number, 0, 0, number, None]
    days = pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    lists = pa.ListArray.from_arrays([0, 2, 3, 3, 6, 6, 6], days)
    for column, far in ((days, {1, 4}), (lists, {0, 3})):
        parts = list(parts_of("f", pa.RecordBatch.from_arrays([pa.array(range(6)), column], ["n", "at"])))
        numbers_of = [([json.loads(line)["n"] for line in part.read().splitlines()], part.error) for part in parts]
        assert [n for found, _ in numbers_of for n in found] == list(range(6))
        assert {n for found, error in numbers_of if error for n in found} == far
        assert all(f"column 'at': {number} as {kind} is not in the years" in error for _, error in numbers_of if error)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("b", pa.binary())], "column 'b' has values of type binary: JSON has no bytes"),
        (
            [("b", pa.map_(pa.string(), pa.list_(pa.binary_view())))],
            "column 'b' has values of type binary_view: JSON has no bytes",
        ),
        (
            [("b", pa.dictionary(pa.int8(), pa.binary(2)))],
            r"column 'b' has values of type fixed_size_binary\[2\]: JSON has no bytes",
        ),
        (
            [("b", pa.month_day_nano_interval())],
            "column 'b' has values of type month_day_nano_interval, which JSON has not",
        ),
        ([("b", pa.map_(pa.struct({"x": pa.int8()}), pa.int8()))], "column 'b' has keys of type struct<x: int8>"),
        ([("b", pa.int8()), ("b", pa.int8())], "there are two columns 'b'"),
        ([("b", pa.struct([("x", pa.int8()), ("x", pa.int8())]))], "column 'b' has two fields 'x'"),
    ],
)
def test_columns_that_json_has_not_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        check_columns(pa.schema([("a", pa.int8()), *columns]))


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
    doubles = frame.with_columns(pl.col(pl.Float32).cast(pl.Float64))
    assert lines_of(frame.to_arrow()) == b"".join(dump(row) + b"\n" for row in doubles.iter_rows(named=True))


def lines_of(rows: pa.Table | pa.RecordBatch) -> bytes:
    batches = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    return b"".join(part.read() for each in batches for part in parts_of("f", each))


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-7)
@example(-1.5e-5)
@example(1e-05)
@example(1.25e-9)
@example(1e-10)
def test_a_number_has_one_form_in_json(number: float) -> None:
    alone = orjson.dumps(number)
    assert dump({"a": number}) == b'{"a":%b}' % alone
    assert dump({"1e-07": [number], "b": math.nan}) == b'{"1e-07":[%b],"b":NaN}' % alone
    assert dump(['"1e-07', number, 2**70]) == b'["\\"1e-07",%b,%d]' % (alone, 2**70)


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
        (["1", '{"x":1}', '"x"'], ["1", '{"x":1}', "x"]),
        (["1", "[1]", "null"], ["1", "[1]", None]),
        (["1", "true", "1.5"], ["1", "true", "1.5"]),
        (["{}", "{}", "null"], ["{}", "{}", None]),
        (['[{},{"x":[]}]', "null", "[]"], [[{"x": None}, {"x": []}], None, []]),
        (["1", str(2**64), "-1"], ["1", str(2**64), "-1"]),
        (["1", str(2**64), "0.5"], [1.0, 2.0**64, 0.5]),
        (["9007199254740993", "1.5"], ["9007199254740993", "1.5"]),
        (["9007199254740993", "1"], [9007199254740993, 1]),
        (["9007199254740992", "1.5"], [9007199254740992.0, 1.5]),
        (["9007199254740993", str(2**64)], ["9007199254740993", str(2**64)]),
        (["1.5", str(2**64 + 1), "1"], ["1.5", str(2**64 + 1), "1"]),
        (["[1]", "[1.5]", "[9007199254740993]"], [["1"], ["1.5"], ["9007199254740993"]]),
        (["0.5", "1" + "0" * 400, "NaN"], ["0.5", "1" + "0" * 400, "NaN"]),
        (["1.0", '"s"', '{"x":1.0,"y":1e22,"z":1e-7}'], ["1.0", "s", '{"x":1.0,"y":1e+22,"z":1e-7}']),
        (["NaN", '"s"', '{"x":1.0,"y":1e22,"z":1e-7}'], ["NaN", "s", '{"x":1.0,"y":1e+22,"z":1e-7}']),
        (
            ['{"":1}', '{"":true}', '{"\\u00e9\\"":1.0}'],
            [{"": "1", 'é"': None}, {"": "true", 'é"': None}, {"": None, 'é"': 1.0}],
        ),
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


def test_parquet_of_a_record_longer_than_those_that_are_read(tmp_path: Path) -> None:
    text = "x" * (MAX_ROW + 1)
    (tmp_path / "in").write_text(f'{{"a":"{text}","b":NaN}}\n')
    write_parquet(tmp_path / "in", tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet")["a"].to_list() == [text]


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


@pytest.mark.parametrize("records", [3_000, 1_200])  # more than the first ones, and fewer
def test_parquet_of_objects_with_names_of_their_own(tmp_path: Path, records: int) -> None:
    """As of a map by user: columns for each took memory with the square of the records."""
    (tmp_path / "in").write_text("".join(f'{{"a":{{"u{n}":{n}}},"b":[{{"x":{n}}}]}}\n' for n in range(records)))
    write_parquet(tmp_path / "in", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["a"].to_pylist() == [f'{{"u{n}":{n}}}' for n in range(records)]
    assert found["b"].to_pylist() == [[{"x": n}] for n in range(records)]


def test_parquet_of_records_with_fields_of_their_own(tmp_path: Path) -> None:
    """Of three thousand fields each has one value: so many cells are made at once as memory has room for."""
    records = 3_000
    (tmp_path / "in").write_text("".join(f'{{"a":{n},"u{n}":{n}}}\n' for n in range(records)))
    made, build = list[int](), pl.DataFrame
    with patch.object(pl, "DataFrame", side_effect=lambda *a, **k: made.append(build(*a, **k)) or made[-1]):  # type: ignore[func-returns-value]
        write_parquet(tmp_path / "in", tmp_path / "out.parquet")
    assert max(each.height * each.width for each in made) <= CELLS  # type: ignore[attr-defined]
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["a"].to_pylist() == list(range(records))
    assert found["u7"].to_pylist() == [7 if n == 7 else None for n in range(records)]


def test_parquet_of_too_many_fields_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f'{{"u{n}":{n}}}\n' for n in range(MOST_COLUMNS + 1)))
    with pytest.raises(pl.exceptions.PolarsError, match="10001 fields, more than 10000"):
        write_parquet(tmp_path / "in", tmp_path / "out.parquet")


def test_parquet_of_records_without_fields(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("{}\n{}\n")
    with pytest.raises(pl.exceptions.PolarsError, match="no fields"):
        write_parquet(tmp_path / "in", tmp_path / "out.parquet")


def test_instants_of_96_bits_have_all_years(tmp_path: Path) -> None:
    """So Spark writes them; those after 2262, such as an end that is open, became others of the 19th century."""
    years = (1, 1677, 2024, 2263, 9999)
    at = pa.array([datetime(year, 12, 31, 1, 2, 3, 4) for year in years], pa.timestamp("us"))
    pq.write_table(pa.table({"at": at}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    parts = [bytes(each.read()) for each in InputFile(tmp_path / "a.parquet").parts(lambda _: None)]
    assert b"".join(parts).split() == [b'{"at":"%04d-12-31T01:02:03.000004Z"}' % year for year in years]


def test_a_large_row_group_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read as a whole, whatever its size."""
    texts = pa.array([f"{number:0300}" for number in range(60_000)])
    pq.write_table(pa.table({"a": texts, "b": texts}), tmp_path / "a.parquet", compression="none", use_dictionary=False)
    monkeypatch.setattr("umbel.formats.parquet.STREAMED_BYTES", 1 << 20)
    before, most, lines = pa.total_allocated_bytes(), 0, 0
    for part in InputFile(tmp_path / "a.parquet").parts(lambda _: None):
        most, lines = max(most, pa.total_allocated_bytes() - before), lines + bytes(part.data).count(b"\n")
    assert (lines, most < 20 << 20) == (60_000, True)
