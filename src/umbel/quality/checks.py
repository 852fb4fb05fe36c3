"""Expectation checks: counts of failing rows per expectation.

Rows are counted, never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import strptime
from typing import Any

import orjson
import polars as pl

from umbel.definitions.records import Expectation, Expectations
from umbel.quality.json_schema import fits
from umbel.types.dtypes import DType
from umbel.types.patterns import pattern_of

Arguments = Mapping[str, Any]
Condition = Callable[[pl.DataFrame, Mapping[str, DType], Arguments], pl.Series]


@dataclass(frozen=True, slots=True)
class Watched:
    """The row counts of an expectation.

    Args:
        expectation: its function's name.
        columns: the columns it checks.
        rows: the number of rows checked; nulls are excluded, unless the check is on nulls.
        failed: the number of these that fail.
        mostly: the share that must pass.
    """

    expectation: str
    columns: tuple[str, ...]
    rows: int
    failed: int
    mostly: float

    @property
    def holds(self) -> bool:
        """Return True if enough rows pass."""
        return self.rows == 0 or (self.rows - self.failed) / self.rows >= self.mostly


def watch(frame: pl.DataFrame, dtypes: Mapping[str, DType], expectations: Expectations) -> tuple[Watched, ...]:
    """Check rows against every expectation of their dataset.

    Args:
        frame: rows in storage types.
        dtypes: the types of their columns.
        expectations: of the dataset.
    """
    return tuple(_watched(frame, dtypes, each) for each in expectations.expected)


def _watched(frame: pl.DataFrame, dtypes: Mapping[str, DType], expectation: Expectation) -> Watched:
    passed = CONDITIONS[expectation.name](frame, dtypes, expectation.arguments)
    failed = int((~passed).sum())
    return Watched(expectation.name, expectation.columns, len(passed) - passed.null_count(), failed, expectation.mostly)


def _distinct(column: pl.Series, passes: Callable[[Any], bool]) -> pl.Series:
    """Return a mask of the values that pass a Python predicate.

    The predicate is called once per distinct value; null gives null.
    """
    values = column.unique().drop_nulls()
    good = pl.Series([value for value in values.to_list() if passes(value)], dtype=column.dtype)
    return column.is_in(good.implode())


def _succeeds(func: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def passes(value: Any) -> bool:
        try:
            func(value)
        except (ValueError, OverflowError, TypeError):
            return False
        return True

    return passes


def _parsed_date(text: str) -> Any:
    import pandas as pd

    return pd.to_datetime(text)


def _searched(column: pl.Series, provided: Arguments, decide: Callable[..., pl.Expr]) -> pl.Series:
    """Return a mask of the texts that have all or any of the patterns."""
    texts = [provided["regex"]] if "regex" in provided else provided["regex_list"]
    values = column.unique().drop_nulls().to_list()
    found = pl.DataFrame({f"{at}": pattern_of(text, is_search=True).matches(values) for at, text in enumerate(texts)})
    good = pl.Series(values, dtype=column.dtype).filter(found.select(decide(pl.all())).to_series())
    return column.is_in(good.implode())


def _matches(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    decide = pl.all_horizontal if provided.get("match_on") == "all" else pl.any_horizontal
    return _searched(frame[provided["column"]], provided, decide)


def _matches_none(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    return ~_searched(frame[provided["column"]], provided, pl.any_horizontal)


def _between(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    column = frame[provided["column"]]
    passed = pl.Series([True], dtype=pl.Boolean).new_from_index(0, len(column)).set(column.is_null(), None)
    if provided["min_value"] is not None:
        passed &= column > provided["min_value"] if provided["strict_min"] else column >= provided["min_value"]
    if provided["max_value"] is not None:
        passed &= column < provided["max_value"] if provided["strict_max"] else column <= provided["max_value"]
    return passed


def _lengths_between(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    lengths = frame.select(pl.col(provided["column"]).str.len_chars().cast(pl.Int64))
    return _between(lengths, dtypes, {**provided, "strict_min": False, "strict_max": False})


def _in_set(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    allowed = _members(provided["value_set"])
    return _distinct(frame[provided["column"]], lambda value: value in allowed)


def _members(values: Collection[Any]) -> Collection[Any]:
    try:
        return set(values)
    except TypeError:  # lists and structs have no hash
        return values


def _of_type(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    dtype = dtypes[provided["column"]]
    names = {str(dtype), str(dtype.base), str(dtype.plain), str(dtype.polars()).lower()}
    requested = provided["type_list"] if "type_list" in provided else [provided["type_"]]
    column = frame[provided["column"]]
    return pl.Series([bool(names & set(requested))]).new_from_index(0, len(column)).set(column.is_null(), None)


def _pairs_equal(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    one, two = frame[provided["column_A"]], frame[provided["column_B"]]
    ignored = {
        "both_values_are_missing": one.is_null() & two.is_null(),
        "either_value_is_missing": one.is_null() | two.is_null(),
    }
    same: pl.Series = one.eq_missing(two)
    return same.set(ignored[provided["ignore_row_if"]], None) if provided["ignore_row_if"] in ignored else same


def _pairs_in_set(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    allowed = {tuple(pair) for pair in provided["value_pairs_set"]}
    pairs = frame.select(provided["column_A"], provided["column_B"]).rows()
    return pl.Series([None if None in pair else pair in allowed for pair in pairs], dtype=pl.Boolean)


def _greater(frame: pl.DataFrame, dtypes: Mapping[str, DType], provided: Arguments) -> pl.Series:
    one, two = frame[provided["column_A"]], frame[provided["column_B"]]
    greater: pl.Series = one >= two if provided["or_equal"] else one > two
    return greater


def _column(test: Callable[[pl.Series, Arguments], pl.Series]) -> Condition:
    return lambda frame, _, provided: test(frame[provided["column"]], provided)


CONDITIONS: dict[str, Condition] = {
    "expect_column_values_to_not_be_null": _column(lambda column, _: column.is_not_null()),
    "expect_column_values_to_be_null": _column(lambda column, _: column.is_null()),
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_in_type_list": _of_type,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": lambda *provided: ~_in_set(*provided),
    "expect_column_values_to_be_between": _between,
    "expect_column_value_lengths_to_be_between": _lengths_between,
    "expect_column_value_lengths_to_equal": _column(
        lambda column, provided: column.str.len_chars() == provided["value"]
    ),
    "expect_column_values_to_match_regex": _matches,
    "expect_column_values_to_not_match_regex": _matches_none,
    "expect_column_values_to_match_regex_list": _matches,
    "expect_column_values_to_not_match_regex_list": _matches_none,
    "expect_column_values_to_match_strftime_format": _column(
        lambda column, provided: _distinct(column, _succeeds(lambda text: strptime(text, provided["strftime_format"])))
    ),
    "expect_column_values_to_be_dateutil_parseable": _column(
        lambda column, _: _distinct(column, _succeeds(_parsed_date))
    ),
    "expect_column_values_to_be_json_parseable": _column(lambda column, _: _distinct(column, _succeeds(orjson.loads))),
    "expect_column_values_to_match_json_schema": _column(
        lambda column, provided: _distinct(column, lambda text: fits(text, provided["json_schema"]))
    ),
    "expect_column_pair_values_to_be_equal": _pairs_equal,
    "expect_column_pair_values_A_to_be_greater_than_B": _greater,
    "expect_column_pair_values_to_be_in_set": _pairs_in_set,
    "expect_multicolumn_sum_to_equal": lambda frame, _, provided: (
        frame.select(pl.sum_horizontal(provided["column_list"], ignore_nulls=False))[provided["column_list"][0]]
        == provided["sum_total"]
    ),
}
