import decimal
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from umbel.errors import InvalidValue
from umbel.types import dtypes as d
from umbel.types.pandas import (
    from_pandas,
    raw_from_pandas,
    raw_series,
    series_from_pandas,
    series_to_pandas,
    to_pandas,
)
from umbel.types.structs import struct, struct_type
from umbel.types.windows import Window

NAN = float("nan")
DAY = datetime(2024, 1, 1, tzinfo=UTC)


@struct
class Point:
    x: int
    label: d.Optional(d.Str())


def shown(dtype, values):
    return series_to_pandas(d.Optional(dtype).ingest(values).values, dtype)


@pytest.mark.parametrize(
    ("dtype", "values", "kind", "expected"),
    [
        (d.Int(), [1, None], "Int64", [1, pd.NA]),
        (d.Float(), [1.5, None], "Float64", [1.5, pd.NA]),
        (d.Bool(), [True, None], "boolean", [True, pd.NA]),
        (d.Str(), ["a", None], "string", ["a", pd.NA]),
        (d.Datetime(), [DAY, None], "datetime64[ns, UTC]", [pd.Timestamp(DAY), pd.NaT]),
        (d.Date(), [date(2024, 1, 1), None], "object", [date(2024, 1, 1), pd.NA]),
        (d.Bytes(), [b"a", None], "object", [b"a", pd.NA]),
        (d.Decimal(2), ["1.50", None], "object", [decimal.Decimal("1.50"), pd.NA]),
        (d.List(d.Int()), [[1], [2], None], "object", [[1], [2], pd.NA]),
        (d.Dict(d.Int()), [{"a": 1}, None], "object", [{"a": 1}, pd.NA]),
        (d.Dict(d.Dict(d.Int())), [{"a": {"b": 1}}, None], "object", [{"a": {"b": 1}}, pd.NA]),
        (d.Embedding(2), [[1.0, 2.0], None], "object", [[1.0, 2.0], pd.NA]),
        (d.OneOf(d.Int(), (1,)), [1, None], "Int64", [1, pd.NA]),
        (d.Optional(d.Int()), [1, None], "Int64", [1, pd.NA]),
        (struct_type(Point), [{"x": 1, "label": "a"}, None], "object", [Point(1, "a"), pd.NA]),
        (d.List(struct_type(Point)), [[{"x": 1}], None], "object", [[Point(1, pd.NA)], pd.NA]),
    ],
    ids=str,
)
def test_handing_out(dtype, values, kind, expected):
    series = shown(dtype, values)
    assert str(series.dtype) == kind
    assert list(series.index) == list(range(len(values)))
    for got, value in zip(series.tolist(), expected, strict=True):
        assert got is value if value is pd.NA or value is pd.NaT else got == value
        assert type(got) is type(value)


def test_missing_optional_fields_are_na():
    point = shown(struct_type(Point), [{"x": 1}]).tolist()[0]
    assert type(point) is Point
    assert point.label is pd.NA


def test_nan_is_a_number():
    series = shown(d.Float(), [NAN, None, 1.0])
    assert series.isna().tolist() == [False, True, False]
    assert np.isnan(series.to_numpy(dtype=float, na_value=0.0)[0])
    assert raw_series(series).is_nan().to_list() == [True, None, False]


def test_windows_are_objects():
    [window] = shown(d.Window(), [{"begin": DAY, "end": DAY}]).tolist()
    assert window == Window(DAY, DAY)


def test_instants_beyond_nanoseconds():
    series = shown(d.Datetime(), [datetime(1000, 1, 1), datetime(9000, 1, 1), None])
    assert str(series.dtype) == "datetime64[us, UTC]"
    assert series[0].year == 1000
    assert series_from_pandas(series, d.Optional(d.Datetime())).to_list()[1] == datetime(9000, 1, 1, tzinfo=UTC)


def test_handed_out_series_can_be_written_to():
    for series in (shown(d.Int(), [1]), shown(d.Float(), [1.0]), shown(d.Bool(), [True]), shown(d.Str(), ["a"])):
        series[0] = pd.NA
        assert series[0] is pd.NA


def test_frames_have_the_requested_columns():
    frame = pl.DataFrame({"a": [1], "_weight": [1], "b": ["x"]})
    df = to_pandas(frame, {"b": d.Str(), "a": d.Int()})
    assert list(df.columns) == ["b", "a"]
    assert isinstance(df.index, pd.RangeIndex)
    assert len(to_pandas(frame, {})) == 1


@pytest.mark.parametrize(
    ("series", "kind", "expected"),
    [
        (pd.Series([1, 2]), pl.Int64, [1, 2]),
        (pd.Series([1, 2], dtype="uint8"), pl.UInt8, [1, 2]),
        (pd.Series([1.0, NAN]), pl.Float64, [1.0, None]),
        (pd.Series([1.0, NAN], dtype="float32"), pl.Float32, [1.0, None]),
        (pd.Series([1.0, NAN], dtype="float16"), pl.Float64, [1.0, None]),
        (pd.Series([True, False]), pl.Boolean, [True, False]),
        (pd.Series([1, None], dtype="Int64"), pl.Int64, [1, None]),
        (pd.Series([1.5, None], dtype="Float64"), pl.Float64, [1.5, None]),
        (pd.Series([True, None], dtype="boolean"), pl.Boolean, [True, None]),
        (pd.Series(["a", None], dtype="string"), pl.String, ["a", None]),
        (pd.Series(["a", None], dtype="string[pyarrow]"), pl.String, ["a", None]),
        (pd.Series([1, None], dtype="int64[pyarrow]"), pl.Int64, [1, None]),
        (pd.Series([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), pl.List(pl.Int64), [[1], None]),
        (pd.Series(["a", None]), pl.String, ["a", None]),
        (pd.Series(["a", NAN]), pl.String, ["a", None]),
        (pd.Series(["a", None], dtype="category"), pl.String, ["a", None]),
        (pd.Series([1, None], dtype="category"), pl.Int64, [1, None]),
        (pd.Series(pd.arrays.SparseArray([1.0, NAN])), pl.Float64, [1.0, None]),
        (pd.Series([datetime(2024, 1, 1), None]), pl.Datetime("us", "UTC"), [DAY, None]),
        (pd.Series([datetime(2024, 1, 1, 1), None]).dt.tz_localize("CET"), pl.Datetime("us", "UTC"), [DAY, None]),
        (pd.Series([DAY, None]).astype("datetime64[s, UTC]"), pl.Datetime("us", "UTC"), [DAY, None]),
        (pd.Series([date(2024, 1, 1), None]), pl.Date, [date(2024, 1, 1), None]),
        (pd.Series([1, "a", NAN, pd.NA]), pl.Object, [1, "a", None, None]),
        (pd.Series([[1], NAN]), pl.Object, [[1], None]),
        (pd.Series([pd.Timedelta("1s")]), pl.Object, [pd.Timedelta("1s")]),
        (pd.Series([], dtype=object), pl.Null, []),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)  # fmt: skip
def test_raw(series, kind, expected):
    column = raw_series(series)
    assert column.dtype == kind
    assert column.to_list() == expected


def test_nanoseconds_are_cut_downwards():
    series = pd.Series(pd.to_datetime([1_999, -1], unit="ns"))
    assert raw_series(series).to_physical().to_list() == [1, -1]


def test_instants_that_python_does_not_have_are_refused():
    column = raw_series(pd.Series(np.array(["300000-01-01", "2024-01-01"], dtype="M8[s]")))
    checked = d.Datetime().ingest(column)
    assert list(checked.errors) == [0]
    assert checked.values[1] == DAY


def test_raw_frames():
    df = pd.DataFrame({"a": [1, 2], 5: ["x", "y"]}, index=[7, 7])
    assert raw_from_pandas(df).rows() == [(1, "x"), (2, "y")]
    assert raw_from_pandas(pd.DataFrame(index=[1, 2])).height == 2
    with pytest.raises(InvalidValue, match="more than once: a"):
        raw_from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_column_without_a_name_is_none_of_another_name():
    df = pd.DataFrame([[1, 2, 3]], columns=["x", "", "column_1"])
    assert raw_from_pandas(df).to_dicts() == [{"x": 1, "": 2, "column_1": 3}]


def test_taking_in():
    df = pd.DataFrame(
        {"n": [1.0, 2.0], "p": [Point(1, pd.NA), {"x": 2, "label": "b"}], "v": [np.array([1.0, 2.0])] * 2}
    )
    dtypes = {"p": struct_type(Point), "n": d.Int(), "v": d.Embedding(2)}
    frame = from_pandas(df, dtypes)
    assert frame.schema == {name: dtype.polars() for name, dtype in dtypes.items()}
    assert frame.rows() == [({"x": 1, "label": None}, 1, [1.0, 2.0]), ({"x": 2, "label": "b"}, 2, [1.0, 2.0])]


def test_taking_in_names_the_error():
    df = pd.DataFrame({"a": [1, None, "x"]})
    with pytest.raises(ValueError, match=r"column 'a' of type int: null, and int is not Optional \(row 1 and 1 more\)"):
        from_pandas(df, {"a": d.Int()})
    with pytest.raises(ValueError, match=r"missing columns: b") as caught:
        from_pandas(df, {"a": d.Int(), "b": d.Int()})
    assert "the frame has: a" in str(caught.value)
