"""Laws of types: what validation lets through is what a naive reading of the rules lets through, in any batching."""

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import hypothesis.strategies as st
import pandas as pd
import polars as pl
from hypothesis import given

from tests.laws.naive_types import EPOCH, MICROSECOND, naive_all, same
from tests.profiles import examples
from umbel.types import dtypes as d
from umbel.types.annotations import from_annotation, to_annotation
from umbel.types.durations import format_duration, parse_duration
from umbel.types.epochs import from_number, from_text
from umbel.types.pandas import from_pandas, raw_from_pandas, to_pandas
from umbel.types.raw import from_records
from umbel.types.validate import validate

# ---- types and values -------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.sampled_from([d.Int(), d.Float(), d.Bool(), d.Str(), d.Bytes(), d.Datetime(), d.Date()]),
    st.integers(1, 6).map(d.Decimal),
    st.just(d.OneOf(d.Str(), ("a", "b"))),
    st.just(d.OneOf(d.Int(), (1, 2))),
    st.builds(d.Between, st.just(d.Int()), st.just(-3), st.just(3), st.booleans(), st.booleans()),
    st.builds(d.Between, st.just(d.Float()), st.just(0.0), st.just(1.5), st.booleans(), st.booleans()),
    st.just(d.Regex(d.Str(), "a|1")),
)


def optional(inner):
    return inner.filter(lambda dtype: not dtype.is_optional).map(d.Optional) | inner


def nested(inner):
    return st.one_of(
        optional(inner).map(d.List),
        optional(inner).map(d.Dict),
        st.tuples(optional(inner), optional(inner)).map(lambda pair: d.Struct("S", (("x", pair[0]), ("y", pair[1])))),
    )


types = optional(st.recursive(scalars | st.integers(1, 3).map(d.Embedding) | st.just(d.Window()), nested, max_leaves=3))

instants = st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1), timezones=st.none() | st.just(UTC))
odd_scalars = st.one_of(
    st.none(),
    st.sampled_from([pd.NA, pd.NaT, math.nan, math.inf, 2**63, -(2**63), 2**63 - 1, 10**400, 1e300, 0.5, -0.0]),
    st.sampled_from(
        ["", "a", "ab", "b", "1", " 2 ", "1.0", "1.5", "x", "2024-01-31", "2024-02-31", "2024-01-31T10:00:00Z"]
    ),
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6),
    instants,
    st.dates(),
)
odd = st.recursive(
    odd_scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "begin"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def fitting(dtype):
    """Values that belong to a type, most of the time."""
    return FITTING[type(dtype)](dtype)


def fitting_struct(dtype):
    return st.fixed_dictionaries({name: fitting(member) for name, member in dtype.members()})


FITTING = {
    d.Int: lambda _: st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3).map(float),
    d.Float: lambda _: st.floats() | st.integers(-10, 10),
    d.Bool: lambda _: st.booleans(),
    d.Str: lambda _: st.text(max_size=4),
    d.Bytes: lambda _: st.binary(max_size=4),
    d.Datetime: lambda _: instants | st.integers(0, 10**12),
    d.Date: lambda _: st.dates(),
    d.Decimal: lambda t: st.decimals(-1000, 1000, places=t.scale) | st.integers(-10, 10) | st.floats(-1e6, 1e6),
    d.List: lambda t: st.lists(fitting(t.of), max_size=3),
    d.Dict: lambda t: st.dictionaries(st.text(max_size=2), fitting(t.of), max_size=3),
    d.Embedding: lambda t: st.lists(st.floats(), min_size=t.size, max_size=t.size),
    d.Struct: fitting_struct,
    d.Window: fitting_struct,
    d.Optional: lambda t: st.none() | fitting(t.of),
    d.OneOf: lambda t: st.sampled_from(t.options),
    d.Between: lambda t: st.integers(0, 1) | st.floats(0, 2),
    d.Regex: lambda _: st.sampled_from(["a", "ab", "1", 1]),
}

typed_values = types.flatmap(lambda t: st.tuples(st.just(t), st.lists(fitting(t) | odd, max_size=6)))
fitting_values = types.flatmap(lambda t: st.tuples(st.just(t), st.lists(fitting(t), max_size=6)))


# ---- the laws ---------------------------------------------------------------------------------------------------


@given(typed_values)
@examples(150)
def test_validation_does_what_the_rules_say(case):
    dtype, values = case
    raw = from_records([{"v": value} for value in values])
    found = validate(raw.frame if values else pl.DataFrame({"v": []}), {"v": dtype})
    expected = naive_all(dtype, values)
    assert found.accepted.to_list() == list(expected)
    assert found.rejects["row"].to_list() == [row for row in range(len(values)) if row not in expected]
    assert found.frame.schema == {"v": dtype.polars()}
    assert same(found.frame["v"].to_list(), list(expected.values()))


@given(typed_values)
@examples(50)
def test_a_row_is_judged_alike_alone_and_among_others(case):
    dtype, values = case
    schema = {"v": dtype}
    together = validate(from_records([{"v": value} for value in values], schema).frame, schema)
    alone = [validate(from_records([{"v": value}], schema).frame, schema) for value in values]
    assert same(together.frame["v"].to_list(), [row for one in alone for row in one.frame["v"].to_list()])
    assert together.accepted.to_list() == [row for row, one in enumerate(alone) if one.frame.height]
    assert together.rejects["row"].to_list() == [row for row, one in enumerate(alone) if one.rejects.height]


@given(fitting_values)
@examples(50)
def test_what_was_validated_is_valid_and_costs_no_copy(case):
    dtype, values = case
    frame = validate(from_records([{"v": value} for value in values], {"v": dtype}).frame, {"v": dtype}).frame
    again = validate(frame, {"v": dtype})
    assert again.frame.equals(frame)
    assert dtype.ingest(frame["v"]).values is frame["v"] or dtype.ingest(frame["v"]).values.equals(frame["v"])


@given(fitting_values)
@examples(60)
def test_pandas_and_back(case):
    dtype, values = case
    stored = validate(from_records([{"v": value} for value in values], {"v": dtype}).frame, {"v": dtype}).frame
    df = to_pandas(stored, {"v": dtype})
    assert list(df.index) == list(range(stored.height))
    back = from_pandas(df, {"v": dtype})
    assert back.schema == stored.schema
    assert same(back["v"].to_list(), stored["v"].to_list())
    judged = validate(raw_from_pandas(df), {"v": dtype})
    assert same(judged.frame["v"].to_list(), stored["v"].to_list())


columns = st.one_of(
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)).map(lambda v: pl.Series(v, dtype=pl.Int32)),
    st.lists(st.none() | st.integers(0, 2**64 - 1)).map(lambda v: pl.Series(v, dtype=pl.UInt64)),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)).map(lambda v: pl.Series(v, dtype=pl.Int64)),
    st.lists(st.none() | st.floats(width=32)).map(lambda v: pl.Series(v, dtype=pl.Float32)),
    st.lists(st.none() | st.floats() | st.integers(-9, 9).map(float)).map(lambda v: pl.Series(v, dtype=pl.Float64)),
    st.lists(st.none() | st.booleans()).map(lambda v: pl.Series(v, dtype=pl.Boolean)),
    st.lists(st.none() | st.text(max_size=4) | st.integers().map(str)).map(lambda v: pl.Series(v, dtype=pl.String)),
    st.lists(st.none() | st.dates()).map(lambda v: pl.Series(v, dtype=pl.Date)),
    st.lists(st.none() | st.datetimes()).map(lambda v: pl.Series(v, dtype=pl.Datetime("ms"))),
    st.lists(st.none() | st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))).map(
        lambda v: pl.Series(v, dtype=pl.Datetime("ns")).dt.replace_time_zone(
            "Asia/Tokyo", ambiguous="earliest", non_existent="null"
        )
    ),
    st.lists(st.none() | st.decimals(-100, 100, places=3)).map(lambda v: pl.Series(v, dtype=pl.Decimal(20, 3))),
    st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3)).map(
        lambda v: pl.Series(v, dtype=pl.List(pl.Int16))
    ),
    st.lists(st.none() | st.lists(st.floats(), min_size=2, max_size=2)).map(
        lambda v: pl.Series(v, dtype=pl.Array(pl.Float64, 2))
    ),
    st.lists(st.none() | st.fixed_dictionaries({"x": st.integers(-9, 9), "z": st.none() | st.text(max_size=2)})).map(
        lambda v: pl.Series(v, dtype=pl.Struct({"x": pl.Int8, "z": pl.String}))
    ),
)


@given(types.filter(lambda dtype: not isinstance(dtype.plain, d.Dict)), columns)
@examples(150)
def test_a_typed_column_is_judged_like_its_values(dtype, column):
    typed, loose = dtype.ingest(column), dtype.ingest(column.to_list())
    assert typed.errors.keys() == loose.errors.keys()
    good = pl.Series([row not in typed.errors for row in range(len(column))], dtype=pl.Boolean)
    assert same(typed.values.filter(good).to_list(), loose.values.filter(good).to_list())


@given(st.integers(31_536_000, 9_000_000_000), st.integers(0, 999_999))
def test_epoch_numbers_are_distinguished_by_magnitude(second, micro):
    micros = second * 1_000_000 + micro
    assert from_number(second) == second * 1_000_000
    assert from_number(micros // 1_000) == micros // 1_000 * 1_000
    assert from_number(micros) == micros
    assert from_number(micros * 1_000 + 999) == micros
    assert from_text(f"{second}.{micro:06d}") == micros
    column = pl.Series([second, micros // 1_000, micros, micros * 1_000])
    assert d.Datetime().ingest(column).values.to_physical().to_list() == [from_number(n) for n in column]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_text_of_instants(moment, offset):
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    micros = (moment.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    local = micros - offset * 60_000_000
    texts = {
        moment.isoformat(): micros,
        moment.isoformat(sep=" ") + "Z": micros,
        moment.isoformat() + zone: local,
        moment.isoformat() + zone.replace(":", ""): local,
        format_datetime(moment.replace(microsecond=0)) + "": micros - moment.microsecond,
        moment.strftime("%a, %d %b %Y %H:%M:%S EST") + "": micros - moment.microsecond + 5 * 3_600_000_000,
        moment.date().isoformat(): (datetime(*moment.timetuple()[:3], tzinfo=UTC) - EPOCH) // MICROSECOND,
    }
    assert [from_text(text) for text in texts] == list(texts.values())
    assert d.Datetime().ingest(pl.Series(list(texts))).values.to_physical().to_list() == list(texts.values())


@given(st.integers(0, 10**17))
def test_durations_and_back(microseconds):
    assert parse_duration(format_duration(microseconds)) == microseconds


@given(types)
def test_annotations_and_back(dtype):
    assert from_annotation(to_annotation(dtype)) == dtype
