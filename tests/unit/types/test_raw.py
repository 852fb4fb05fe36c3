from datetime import UTC, date, datetime, timedelta, timezone

import pandas as pd
import polars as pl
import pytest

from umbel.types import dtypes as d
from umbel.types.raw import column_of, from_records


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, None], pl.Int64),
        ([1.5, None], pl.Float64),
        (["a", None], pl.String),
        ([True, None], pl.Boolean),
        ([b"a"], pl.Binary),
        ([date(2024, 1, 1)], pl.Date),
        ([None, None], pl.Null),
        ([], pl.Null),
        ([pd.NA, 1], pl.Int64),
        ([pd.NaT, None], pl.Null),
        ([1, 1.5], pl.Object),
        ([1, True], pl.Object),
        ([1, "a"], pl.Object),
        ([2**63], pl.Object),
        (["\ud800"], pl.Object),
        ([[1]], pl.Object),
        ([{"a": 1}], pl.Object),
        ([...], pl.Object),
    ],
    ids=str,
)
def test_columns_are_typed_when_nothing_is_lost(values, dtype):
    column = column_of("v", values)
    assert column.dtype == dtype
    assert column.name == "v"
    assert column.to_list() == [None if value is pd.NA or value is pd.NaT else value for value in values]


def test_datetimes_become_instants():
    moment = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    column = column_of("v", [datetime(2024, 1, 1), moment, pd.Timestamp("2024-01-01", tz="UTC"), None])
    assert column.dtype == pl.Datetime("us", "UTC")
    day = datetime(2024, 1, 1, tzinfo=UTC)
    assert column.to_list() == [day, day + timedelta(hours=10), day, None]


def test_records():
    raw = from_records([{"a": 1, "b": "x"}, {"b": 5, "c": [1]}, {}, {1: "no name"}])
    assert raw.frame.columns == ["a", "b", "c"]
    assert raw.frame.height == 4
    assert raw.frame["a"].to_list() == [1, None, None, None]
    assert raw.frame["b"].to_list() == ["x", 5, None, None]
    assert raw.frame["c"].to_list() == [None, [1], None, None]
    assert raw.rejects.is_empty()


def test_a_name_may_be_empty():
    raw = from_records([{"x": 1, "": 2, "column_1": 3}, {"x": 4, "": 5}])
    assert raw.frame.to_dicts() == [{"x": 1, "": 2, "column_1": 3}, {"x": 4, "": 5, "column_1": None}]


def test_what_is_no_record_keeps_its_place():
    raw = from_records([{"a": 1}, None, [1], {"a": 2}])
    assert raw.frame["a"].to_list() == [1, None, None, 2]
    assert raw.rejects.rows() == [
        (1, "", "expected an object, got None (NoneType)"),
        (2, "", "expected an object, got [1] (list)"),
    ]


def test_no_records():
    assert from_records([]).frame.height == 0
    assert from_records([{}, {}]).frame.height == 2
    assert from_records([], {"a": d.Int()}).frame.schema == {"a": pl.Int64()}


def test_declared_columns_exist_and_are_stored_when_they_fit():
    declared = {"a": d.Float(), "b": d.Int(), "gone": d.Optional(d.Str())}
    raw = from_records([{"a": 1, "b": 1.0}, {"a": 1.5, "b": "x"}], declared)
    assert raw.frame.schema == {"a": pl.Float64(), "b": pl.Object(), "gone": pl.String()}
    assert raw.frame["b"].to_list() == [1.0, "x"]
