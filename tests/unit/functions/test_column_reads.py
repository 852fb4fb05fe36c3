"""The columns that a function reads: known only where its code can reach no other one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

from umbel.errors import UnknownName
from umbel.functions.column_reads import columns_read
from umbel.functions.computed import ByFunction, called
from umbel.functions.user_function import UserFunction
from umbel.types import pandas as conversion
from umbel.types.dtypes import Datetime, Int, Str

NAME = "b"
QUERY = "SELECT a + b AS c FROM df"
by_text = duckdb.query


def by_statements(df: Any) -> Any:
    first = df["a"]
    if first.isna().any():
        return first
    return first + df["b"] * df["b"]


def in_a_loop(df: Any) -> Any:
    return pd.Series([one for one in df["a"] for _ in range(1)])


def assigns(df: Any) -> Any:
    df["c"] = 1
    return df["a"]


def replaces(df: Any) -> Any:
    df = df.copy()
    return df["a"]


def deletes(df: Any) -> Any:
    del df["a"]
    return df["b"]


def by_another_name(df: Any) -> Any:
    first = df["a"]
    other = df
    return first + other["b"]


def by_a_variable(df: Any) -> Any:
    name = "b"
    return df["a"] + df[name]


def captures(df: Any) -> Any:
    return df["a"].map(lambda one: one + df["b"].iloc[0])


def by_its_variables(df: Any) -> Any:
    return next(iter(locals().values()))["b"]


def yields(df: Any) -> Any:
    yield df["a"]


READS: list[tuple[Callable[..., Any], set[str]]] = [
    (lambda df: df["a"], {"a"}),
    (lambda df: df["a"] > df["b"], {"a", "b"}),
    (lambda df: df["a"].map(lambda one: one + 1), {"a"}),
    (lambda df: df["a"] if NAME else df["b"], {"a", "b"}),
    (lambda df: 7, set()),
    (by_statements, {"a", "b"}),
    (in_a_loop, {"a"}),
]
UNKNOWN: list[Callable[..., Any]] = [
    lambda df: df[NAME],
    lambda df: df.a,
    lambda df: df[["a", "b"]].sum(axis=1),
    lambda df: pd.Series(range(len(df))),
    lambda df: (df["a"], df)[0],
    lambda df: df["a"] + df.eval("b"),
    lambda df, more=1: df["a"] + more,
    lambda *df: df[0]["a"],
    lambda df: eval("df['b']") + df["a"],
    lambda df: df["a"].to_frame().query("a > @df['b'].mean()")["a"],
    lambda df: duckdb.query("SELECT a + b AS c FROM df").to_df()["c"],
    lambda df: df["a"] + duckdb.query(QUERY).to_df()["c"],
    lambda df: df["a"] + by_text("SELECT a + b AS c FROM df"),
    lambda df: by_text(QUERY),
    assigns,
    replaces,
    deletes,
    by_another_name,
    by_a_variable,
    captures,
    by_its_variables,
    yields,
    partial(lambda by, df: df["a"] * by, 2),
    pd.DataFrame.sum,
]


@pytest.mark.parametrize(("function", "expected"), READS)
def test_columns_taken_by_constant_names_are_known(function: Callable[..., Any], expected: set[str]) -> None:
    assert columns_read(function) == expected


@pytest.mark.parametrize("function", UNKNOWN)
def test_any_other_use_of_the_frame_may_read_all(function: Callable[..., Any]) -> None:
    assert columns_read(function) is None


TYPES = {"a": Int(), "b": Int(), "s": Str(), "t": Datetime()}
ROWS = pl.DataFrame({"a": [1, 2], "b": [3, 4], "s": ["x", "y"], "t": [datetime(2024, 1, 1, tzinfo=UTC)] * 2}).cast(
    {"t": pl.Datetime("us", "UTC")}
)


@pytest.mark.parametrize("function", [function for function, _ in READS] + [UNKNOWN[0], UNKNOWN[1], captures])
def test_values_are_those_of_a_whole_frame(function: Callable[..., Any]) -> None:
    whole = function(conversion.to_pandas(ROWS, TYPES))
    found = called(UserFunction(function), ROWS, TYPES)
    assert pd.Series(found).tolist() == pd.Series(whole).tolist()


def test_only_these_become_columns_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = list[str]()
    monkeypatch.setattr(
        Int, "to_pandas", lambda _, column: converted.append(column.name) or pd.Series(column.to_list())
    )
    monkeypatch.setattr(
        Str, "to_pandas", lambda _, column: converted.append(column.name) or pd.Series(column.to_list())
    )
    function = ByFunction(UserFunction(lambda df: df["b"] + df["a"]))
    assert function.values(ROWS, TYPES, Int()).to_list() == [4, 6]
    assert function.raw_values(ROWS, TYPES).to_list() == [4, 6]
    assert converted == ["a", "b"] * 2


def test_a_missing_column_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match=r"no column 'bb'; did you mean 'b'"):
        called(UserFunction(lambda df: df["a"] + df["bb"]), ROWS, TYPES)


def test_it_is_known_after_a_function_has_arrived_in_another_process() -> None:
    assert UserFunction.arrived(UserFunction(by_statements).pickled).reads == {"a", "b"}
