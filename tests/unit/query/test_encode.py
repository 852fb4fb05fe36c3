"""Values as JSON: every value comes back as it was, and what is no value of a type is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from umbel.errors import InvalidType, InvalidValue
from umbel.query.encode import (
    column_from_json,
    column_to_json,
    columns_from_json,
    columns_of,
    from_json,
    rows_from_json,
    to_json,
)
from umbel.query.rows import Plain, series_of
from umbel.types import dtypes as t

POINT = t.Struct("Point", (("x", t.Float()), ("tag", t.Optional(t.Bytes()))))
INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
FLOATS = st.floats(allow_subnormal=False)

VALUES = [
    (t.Int(), st.integers(-(2**63), 2**63 - 1)),
    (t.Float(), FLOATS),
    (t.Bool(), st.booleans()),
    (t.Str(), st.text()),
    (t.Bytes(), st.binary()),
    (t.Datetime(), INSTANTS),
    (t.Date(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    (t.Decimal(2), st.decimals(-(10**20), 10**20, places=2)),
    (t.List(t.Optional(t.Float())), st.lists(st.none() | FLOATS)),
    (t.Dict(t.Bytes()), st.dictionaries(st.text(), st.binary())),
    (t.Embedding(2), st.lists(FLOATS, min_size=2, max_size=2)),
    (POINT, st.fixed_dictionaries({"x": FLOATS, "tag": st.none() | st.binary()})),
    (t.Window(), st.fixed_dictionaries({"begin": INSTANTS, "end": INSTANTS})),
    (t.List(POINT), st.lists(st.fixed_dictionaries({"x": FLOATS, "tag": st.none() | st.binary()}))),
    (t.Between(t.Float(), 0.0, 1.0), st.floats(0, 1)),
]


@pytest.mark.parametrize(("dtype", "values"), VALUES, ids=lambda each: str(each) if isinstance(each, t.DType) else "")
@given(data=st.data())
@examples(20)
def test_values_survive_the_way_there_and_back(dtype, values, data):
    rows = data.draw(st.lists(st.none() | values, max_size=5))
    column = t.Optional(dtype).ingest(rows).values
    over_the_wire = json.loads(json.dumps(column_to_json(column, t.Optional(dtype)), allow_nan=False))
    again = column_from_json(over_the_wire, t.Optional(dtype))
    assert again.dtype == column.dtype
    assert repr(again.to_list()) == repr(column.to_list())  # repr, because NaN differs from itself


@pytest.mark.parametrize(
    ("dtype", "value", "shown"),
    [
        (t.Float(), math.nan, "NaN"),
        (t.Float(), -math.inf, "-Infinity"),
        (t.Datetime(), datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2024-01-02T03:04:05.000006Z"),
        (t.Date(), date(2024, 1, 2), "2024-01-02"),
        (t.Decimal(2), Decimal("1E+3"), "1000.00"),
        (t.Bytes(), b"\x00\xff", "AP8="),
        (t.Dict(t.Int()), {"b": 1, "a": 2}, {"a": 2, "b": 1}),
        (POINT, {"x": math.inf, "tag": None}, {"x": "Infinity", "tag": None}),
    ],
)
def test_forms(dtype, value, shown):
    assert column_to_json(dtype.ingest([value]).values, dtype) == [shown]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (t.Int(), 1.5),
        (t.Int(), "x"),
        (t.Int(), 2**63),
        (t.Float(), "nan"),
        (t.Bytes(), "not base64!"),
        (t.Bytes(), 1),
        (t.Datetime(), "yesterday"),
        (t.Bool(), 1),
        (t.Embedding(2), [1.0]),
        (t.List(t.Int()), 3),
        (POINT, {"tag": None}),
        (t.Int(), None),
    ],
    ids=str,
)
def test_what_is_no_value_of_the_type_is_refused(dtype, value):
    with pytest.raises(InvalidValue, match="column 'c'") as report:
        column_from_json([value], dtype, "c")
    assert report.value.hint


def test_tables_come_as_columns_or_as_rows():
    types = {"a": t.Int(), "b": t.Optional(t.Float())}
    by_column = from_json({"a": [1, 2], "b": ["NaN", None], "other": [0, 0]}, types)
    by_row = from_json([{"a": 1, "b": "NaN"}, {"a": 2}], types)
    assert by_column.equals(by_row, null_equal=True)
    assert by_column.columns == ["a", "b"]
    assert to_json({name: by_row[name] for name in types}, types) == {"a": [1, 2], "b": ["NaN", None]}


def test_no_rows():
    assert from_json([], {"a": t.Int()}).schema == {"a": pl.Int64()}
    assert from_json({"a": []}, {"a": t.Int()}).schema == {"a": pl.Int64()}


def test_malformed_tables():
    with pytest.raises(InvalidValue, match=r"missing columns \['b'\]"):
        from_json({"a": [1]}, {"a": t.Int(), "b": t.Int()})
    with pytest.raises(InvalidValue, match="differ in length"):
        from_json({"a": [1], "b": [1, 2]}, {"a": t.Int()})
    with pytest.raises(InvalidType, match="expected an object of lists"):
        from_json([1, 2], {"a": t.Int()})
    with pytest.raises(InvalidType, match="column 'a': expected a list"):
        columns_of({"a": 1})


@given(
    values=st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(2**63) - 1, 2**63)
        | st.floats()
        | st.text(max_size=3)
        | st.just("\ud800")
    ),
    kind=st.sampled_from([int, float, str, bool, None]),
    dtype=st.sampled_from([t.Int(), t.Float(), t.Str(), t.Bool()]),
    is_optional=st.booleans(),
)
def test_what_is_stored_as_it_is_comes_out_as_from_a_column(values, kind, dtype, is_optional):
    """Whether or not a shorter way is taken: the same values, or a refusal."""
    values = [value for value in values if kind is None or type(value) in (kind, type(None))]
    types = {"x": t.Optional(dtype) if is_optional else dtype}
    try:
        column = columns_from_json({"x": values}, types)["x"]
    except InvalidValue:
        with pytest.raises(InvalidValue):
            rows_from_json({"x": values}, types)
        return
    small = rows_from_json({"x": values}, types)["x"]
    assert small.dtype == column.dtype
    assert list(map(repr, small.to_list())) == list(map(repr, column.to_list()))
    assert list(map(repr, series_of(small).to_list())) == list(map(repr, column.to_list()))


def test_plain_values_make_no_column():
    found = rows_from_json({"x": [1, None], "y": ["a", "é"]}, {"x": t.Optional(t.Int()), "y": t.Str()})
    assert [type(column) for column in found.values()] == [Plain, pl.Series]


@pytest.mark.parametrize("data", [{"tailnm": ["N1"], "seats": [3]}, [{"tailnm": "N1"}, {"seats": 3}]])
def test_the_misspelt_name_is_reported_not_the_right_one(data: object) -> None:
    with pytest.raises(
        InvalidValue, match=r"missing columns \['tailnum'\].*; is 'tailnm' meant to be 'tailnum'\?"
    ) as report:
        from_json(data, {"tailnum": t.Str(), "seats": t.Optional(t.Int())}, "keys")
    assert "did you mean" not in str(report.value)


def test_a_column_that_is_there_is_no_misspelling_of_another() -> None:
    with pytest.raises(InvalidValue, match="missing columns") as report:
        from_json({"uid1": [1], "other": [2]}, {"uid1": t.Int(), "uid2": t.Int()})
    assert "meant" not in str(report.value)
    rows = from_json([{"uid1": 1, "note": "x"}], {"uid1": t.Int(), "uid2": t.Optional(t.Int())})
    assert rows.to_dicts() == [{"uid1": 1, "uid2": None}]
