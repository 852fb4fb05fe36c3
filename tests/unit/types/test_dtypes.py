from decimal import Decimal
from enum import Enum

import polars as pl
import pytest

from umbel.types import dtypes as d

POINT = d.Struct("Point", (("x", d.Int()), ("y", d.Optional(d.Str()))))
EVERY = {
    d.Int(): ("int", pl.Int64()),
    d.Float(): ("float", pl.Float64()),
    d.Bool(): ("bool", pl.Boolean()),
    d.Str(): ("str", pl.String()),
    d.Bytes(): ("bytes", pl.Binary()),
    d.Datetime(): ("datetime", pl.Datetime("us", "UTC")),
    d.Date(): ("date", pl.Date()),
    d.Decimal(2): ("Decimal[2]", pl.Decimal(28, 2)),
    d.List(d.Int()): ("List[int]", pl.List(pl.Int64())),
    d.Dict(d.Int()): ("Dict[str, int]", pl.List(pl.Struct({"key": pl.String(), "value": pl.Int64()}))),
    d.Embedding(3): ("Embedding[3]", pl.Array(pl.Float64(), 3)),
    POINT: ("Point", pl.Struct({"x": pl.Int64(), "y": pl.String()})),
    d.Window(): ("Window", pl.Struct({"begin": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC")})),
    d.Optional(d.Int()): ("Optional[int]", pl.Int64()),
    d.OneOf(d.Str(), ("a",)): ("oneof(str, ['a'])", pl.String()),
    d.Between(d.Int(), 1, 2, strict_max=True): ("between(int, 1, 2, strict_max=True)", pl.Int64()),
    d.Regex(d.Str(), "a+"): ("regex('a+')", pl.String()),
}


@pytest.mark.parametrize(("dtype", "text", "stored"), [(k, *v) for k, v in EVERY.items()], ids=str)
def test_text_and_storage(dtype, text, stored):
    assert str(dtype) == text
    assert dtype.polars() == stored


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_null_is_an_error_unless_optional(dtype):
    assert list(dtype.ingest([None, None]).errors) == ([] if dtype.is_optional else [0, 1])
    checked = d.Optional(dtype.base).ingest([None, None])
    assert checked.errors == {}
    assert checked.values.to_list() == [None, None]
    assert checked.values.dtype == dtype.polars()


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_no_rows(dtype):
    for column in ([], pl.Series([], dtype=pl.Null), pl.Series([], dtype=dtype.polars())):
        checked = dtype.ingest(column)
        assert checked.errors == {}
        assert checked.values.dtype == dtype.polars()
        assert len(checked.values) == 0


def test_hashable_and_numeric():
    hashable = {str(dtype) for dtype in EVERY if dtype.is_hashable}
    assert hashable == {
        "int", "bool", "str", "Decimal[2]", "List[int]", "Dict[str, int]", "Optional[int]",
        "oneof(str, ['a'])", "between(int, 1, 2, strict_max=True)", "regex('a+')",
    }  # fmt: skip
    assert not d.List(d.Float()).is_hashable
    numeric = {str(dtype) for dtype in EVERY if dtype.is_numeric}
    assert numeric == {"int", "float", "Decimal[2]", "Optional[int]", "between(int, 1, 2, strict_max=True)"}


def test_base_and_plain():
    restricted = d.Between(d.Int(), 1, 2)
    assert d.Optional(restricted).base == restricted
    assert d.Optional(restricted).plain == restricted.plain == d.Int()
    assert d.Int().base == d.Int().plain == d.Int()


def test_struct_types_compare_without_their_class():
    assert d.Struct("P", (("x", d.Int()),), cls=int) == d.Struct("P", (("x", d.Int()),))
    assert d.Struct("P", (("x", d.Int()),)) != d.Struct("Q", (("x", d.Int()),))


def test_stored_columns_are_not_copied():
    for dtype, values in [(d.Int(), [1]), (d.Float(), [1.0]), (d.Str(), ["a"]), (d.List(d.Int()), [[1]])]:
        column = pl.Series(values, dtype=dtype.polars())
        assert dtype.ingest(column).values is column


def test_dicts_are_stored_in_the_order_of_keys():
    expected = [[{"key": "a", "value": 1}, {"key": "b", "value": 2}]]
    dtype = d.Dict(d.Int())
    stored = pl.Series([[{"key": "b", "value": 2}, {"key": "a", "value": 1}]], dtype=dtype.polars())
    for column in ([{"b": 2, "a": 1}], [[("b", 2), ("a", 1)]], [[("b", 3), ("a", 1), ("b", 2)]], stored):
        assert dtype.ingest(column).values.to_list() == expected
    assert dtype.to_python(dtype.ingest(stored).values) == [{"a": 1, "b": 2}]


def test_dicts_of_columns():
    dtype = d.Dict(d.Int())
    structs = pl.Series([{"a": 1, "b": None}, {"a": None, "b": 2}, None])
    assert dtype.to_python(dtype.convert(structs).values) == [{"a": 1}, {"b": 2}, None]
    maps = pl.Series(
        [[{"key": "a", "value": 1}], None], dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.Int32}))
    )
    assert dtype.to_python(dtype.convert(maps).values) == [{"a": 1}, None]


class Colour(str, Enum):
    RED = "red"


class Size(int, Enum):
    SMALL = 1


class Ratio(float, Enum):
    HALF = 0.5


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        (d.Str(), Colour.RED, "red"),
        (d.Str(), Size.SMALL, "1"),
        (d.Str(), Ratio.HALF, "0.5"),
        (d.OneOf(d.Str(), ("red",)), Colour.RED, "red"),
        (d.Regex(d.Str(), "r.d"), Colour.RED, "red"),
        (d.List(d.Str()), [Colour.RED], ["red"]),
        (d.Dict(d.Str()), {Colour.RED: Colour.RED}, [{"key": "red", "value": "red"}]),
        (d.Int(), Size.SMALL, 1),
        (d.Float(), Ratio.HALF, 0.5),
    ],
)
def test_members_of_enums_are_their_values(dtype, value, stored):
    checked = dtype.ingest([value])
    assert (checked.errors, checked.values.to_list()) == ({}, [stored])


@pytest.mark.parametrize(
    ("dtype", "value", "reason"),
    [
        (d.Int(), 1.5, "expected int, got 1.5 (float)"),
        (d.Int(), 2**63, "expected int, got 9223372036854775808 (int): it does not fit in 64 bits"),
        (d.Float(), True, "expected float, got True (bool)"),
        (d.Float(), Decimal("1e400"), "expected float, got Decimal('1E+400') (Decimal)"),
        (d.Str(), b"x", "expected str, got b'x' (bytes)"),
        (d.List(d.Int()), [1, 1.5], "[1]: expected int, got 1.5 (float)"),
        (d.List(d.Int()), [1, None], "[1]: null, and int is not Optional"),
        (d.List(d.Int()), "ab", "expected List[int], got 'ab' (str)"),
        (d.Dict(d.Int()), {"k": "v"}, "['k']: expected int, got 'v' (str)"),
        (d.Dict(d.Int()), {1: 1}, "expected Dict[str, int], got the key 1 (int)"),
        (d.Dict(d.Int()), [("a", 1, 2)], "expected Dict[str, int], got [('a', 1, 2)] (list)"),
        (POINT, {"y": "a"}, ".x: null, and int is not Optional"),
        (d.List(POINT), [{"x": "q"}], "[0]: .x: expected int, got 'q' (str)"),
        (POINT, 5, "expected Point, got 5 (int)"),
        (d.Embedding(2), [1.0], "expected Embedding[2], got 1 elements"),
        (d.Embedding(2), [1.0, None], "[1]: null, and float is not Optional"),
        (d.OneOf(d.Str(), ("a",)), "b", "expected oneof(str, ['a']), got 'b' (str)"),
        (d.Between(d.Int(), 1, 4, strict_min=True), 1, "expected between(int, 1, 4, strict_min=True), got 1 (int)"),
        (d.Between(d.Float(), 0.0, 1.0), float("nan"), "expected between(float, 0.0, 1.0), got nan (float)"),
        (d.Regex(d.Str(), "a+"), "ba", "expected regex('a+'), got 'ba' (str)"),
        (d.Datetime(), "soon", "expected datetime, got 'soon' (str)"),
        (d.Datetime(), True, "expected datetime, got True (bool)"),
    ],
    ids=str,
)
def test_reasons(dtype, value, reason):
    assert dtype.ingest([value]).errors == {0: reason}
    assert d.Optional(dtype).ingest([None, value]).errors == {1: reason}


@pytest.mark.parametrize("kind", [d.Int(), d.Decimal(2), d.Datetime()], ids=str)
@pytest.mark.parametrize("text", ["1e999999999", "-1e999999999", "1e99999"])
def test_decimals_of_any_size_are_refused_one_by_one(kind, text):
    """Their absolute value overflows: an error of the library cost the other rows, too."""
    ingested = kind.ingest([Decimal(1), Decimal(text)])
    assert list(ingested.errors) == [1]
    assert ingested.values[0] is not None


def test_decimals_are_not_cut():
    dtype = d.Decimal(2)
    reason = dtype.ingest(["1.505"]).errors[0]
    assert "would lose data" in reason
    assert "2 digits" in reason
    assert [str(value) for value in dtype.ingest(["1.50", "1.500", 1, 1.005, 2.675]).values] == [
        "1.50", "1.50", "1.00", "1.00", "2.67",
    ]  # fmt: skip
    assert dtype.ingest([10**26]).errors
    assert dtype.ingest([float("inf")]).errors


@pytest.mark.parametrize("text", ["NaN", "-NaN", "sNaN"])
def test_a_decimal_that_is_no_number_is_a_missing_value(text):
    """As for pandas, of whose missing values it is one."""
    for kind in (d.Decimal(2), d.Int(), d.Datetime()):
        ingested = d.Optional(kind).ingest([Decimal(1), Decimal(text)])
        assert not ingested.errors
        assert ingested.values[1] is None
        assert list(kind.ingest([Decimal(1), Decimal(text)]).errors) == [1]


def test_long_values_are_shown_short():
    assert len(d.Int().ingest(["x" * 10_000]).errors[0]) < 200
