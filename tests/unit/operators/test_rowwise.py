"""Row-wise operators: what becomes of changes, and which definitions are refused."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.unit.operators.frames import EPOCH, changes, day, emitted, leaf, schema
from umbel.errors import InvalidType, InvalidValue, Terminal, UmbelError
from umbel.expr import col, lit, when
from umbel.functions.computed import ByExpression, ByFunction
from umbel.functions.user_function import UserFunction
from umbel.operators.assign import Assign, Assigned
from umbel.operators.changelog import Changelog
from umbel.operators.dropnull import DropNull
from umbel.operators.explode import Explode
from umbel.operators.filter import Filter
from umbel.operators.operator import Operator
from umbel.operators.rename import Rename
from umbel.operators.select import Drop, Select
from umbel.operators.transform import Transform
from umbel.operators.union import Union
from umbel.types.annotations import Decimal as DecimalHint
from umbel.types.annotations import from_annotation
from umbel.types.dtypes import Int, Str
from umbel.types.dtypes import Optional as OptionalType
from umbel.types.schema import Schema

TwoDigits = DecimalHint[2]
STREAM = schema(a=int, b=int | None, s=str)
TABLE = schema({"k": int}, v=int, o=str | None)
SAME = ("_at", "_weight", "_seq")


def make(kind: type[Operator], *inputs: Schema, **parameters: Any) -> Any:
    return kind(parents=tuple(leaf(each) for each in inputs), pipeline="D.p", **parameters)


def function(func: Callable[..., Any]) -> ByFunction:
    return ByFunction(UserFunction(func))


def assigned(name: str, annotation: Any, how: Any) -> Assigned:
    return Assigned(name, from_annotation(annotation), function(how) if callable(how) else ByExpression(how))


INPUT = changes(STREAM, (1, None, "x", 0, 0, 1), (2, 20, "y", 1, 1, 1), (3, 30, "z", 2, 2, 1), (2, 20, "y", 1, 1, -1))


# what becomes of changes


@pytest.mark.parametrize(
    "condition",
    [ByExpression(col("a") > 1), function(lambda df: df["a"] > 1), function(lambda df: (df["a"] > 1).to_numpy(bool))],
)
def test_filter_keeps_inserts_and_retractions_that_pass(condition: Any) -> None:
    retained = make(Filter, STREAM, condition=condition).apply(INPUT)
    assert emitted(retained, "a") == [(2, 1.0, 1, 1), (3, 2.0, 1, 2), (2, 1.0, -1, 3)]


def test_filter_takes_null_as_no() -> None:
    retained = make(Filter, STREAM, condition=function(lambda df: df["b"] > 25)).apply(INPUT)
    assert emitted(retained, "a") == [(3, 2.0, 1, 2)]


def test_assign_sees_the_input_only_and_passes_changes_through() -> None:
    columns = (assigned("a", float, col("a") + 1), assigned("twice", int, col("a") * 2), assigned("c", int, lit(1)))
    made = make(Assign, STREAM, columns=columns)
    assert made.schema.value_names == ["a", "b", "s", "twice", "c"]
    assert emitted(made.apply(INPUT), "a", "twice", "c") == [
        (2.0, 2, 1, 0.0, 1, 0), (3.0, 4, 1, 1.0, 1, 1), (4.0, 6, 1, 2.0, 1, 2), (3.0, 4, 1, 1.0, -1, 3),
    ]  # fmt: skip


def test_assign_by_function_gets_nullable_dtypes() -> None:
    seen: list[pd.DataFrame] = []

    def count(df: pd.DataFrame) -> pd.Series:
        seen.append(df)
        return df["b"].fillna(0) + 1

    made = make(Assign, STREAM, columns=(assigned("b", int, count),)).apply(INPUT)
    assert made["b"].to_list() == [1, 21, 31, 21]
    assert seen[0].dtypes.astype(str).to_dict() == {
        "a": "Int64",
        "b": "Int64",
        "s": "string",
        "t": "datetime64[ns, UTC]",
    }


def test_functions_are_not_called_for_no_rows() -> None:
    def fail(df: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError

    nothing = INPUT.clear()
    assert make(Filter, STREAM, condition=function(fail)).apply(nothing).is_empty()
    made = make(
        Transform, STREAM, function=UserFunction(fail), columns=(("t", from_annotation(type(EPOCH))), ("q", Int()))
    )
    assert made.apply(nothing).schema == made.schema.changes()


def test_transform_replaces_rows() -> None:
    def double(df: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"t": df["t"], "d": df["a"].astype(float) * 2, "n": df["s"].map({"x": Decimal("1.5")})})

    declared = {"d": float, "n": TwoDigits | None, "t": type(EPOCH)}
    columns = tuple((name, from_annotation(each)) for name, each in declared.items())
    made = make(Transform, STREAM, function=UserFunction(double), columns=columns)
    assert emitted(made.apply(INPUT), "d", "n")[:2] == [(2.0, Decimal("1.50"), 0.0, 1, 0), (4.0, None, 1.0, 1, 1)]


def test_transform_decodes_bytes_in_text_columns() -> None:
    def encoded(df: pd.DataFrame) -> pd.DataFrame:
        texts = [None if pd.isna(text) else f"ü{text}".encode() for text in df["s"]]
        return pd.DataFrame({"t": df["t"], "s": pd.Series(texts, dtype=object), "u": ["y"] * len(df)})

    declared = {"s": str | None, "t": type(EPOCH), "u": str}
    columns = tuple((name, from_annotation(each)) for name, each in declared.items())
    made = make(Transform, STREAM, function=UserFunction(encoded), columns=columns).apply(INPUT)
    assert made["s"].to_list() == [text and f"ü{text}" for text in INPUT["s"]]
    assert "üx" in made["s"].to_list()


def test_transform_of_the_timestamp_moves_inserts_and_leaves_deletes() -> None:
    def later(df: pd.DataFrame) -> pd.DataFrame:
        return df.assign(t=df["t"] + pd.Timedelta(hours=12))

    rows = changes(TABLE, (1, 10, None, 0, 0, 1), (1, 10, None, 0, 4, -1))
    made = make(Transform, TABLE, function=UserFunction(later)).apply(rows)
    assert made["t"].to_list() == [day(0.5), day(0.5)]
    assert emitted(made) == [(0.5, 1, 0), (4.0, -1, 1)]


def test_transform_that_returns_rows_in_another_order() -> None:
    def reordered(df: pd.DataFrame) -> pd.DataFrame:
        return df.sort_values("v", ascending=False)

    def renumbered(df: pd.DataFrame) -> pd.DataFrame:
        return reordered(df).reset_index(drop=True)

    rows = changes(TABLE, (1, 10, None, 0, 2, -1), (1, 20, None, 2, 2, 1), (2, 30, None, 3, 3, 1))
    same, anew = (
        Transform(parents=(leaf(TABLE, appends=False),), pipeline="D.p", function=UserFunction(each))
        for each in (reordered, renumbered)
    )
    assert sorted(emitted(same.apply(rows), "k", "v")) == sorted(emitted(rows, "k", "v"))
    assert emitted(anew.apply(rows), "k", "v") == emitted(rows, "k", "v")
    with pytest.raises(Terminal, match=r"D\.p.*another order, with a new index"):
        anew.apply(pl.concat([rows, rows[:1]]))
    assert emitted(anew.apply(rows[:1]), "k", "v") == emitted(rows[:1], "k", "v")


def test_rename_of_key_value_and_timestamp() -> None:
    made = make(Rename, TABLE, names=(("k", "id"), ("v", "w"), ("t", "at")))
    assert (made.schema.key_names, made.schema.value_names, made.schema.timestamp) == (["id"], ["w", "o"], "at")
    assert made.apply(changes(TABLE, (1, 2, "x", 0, 0, 1))).columns == ["id", "w", "o", "at", *SAME]


def test_select_and_drop_keep_the_timestamp() -> None:
    assert make(Select, TABLE, columns=("k", "o")).schema.names == ["k", "o", "t"]
    dropped = make(Drop, TABLE, columns=("o",))
    assert dropped.apply(changes(TABLE, (1, 2, "x", 0, 0, 1))).columns == ["k", "v", "t", *SAME]


@pytest.mark.parametrize(("columns", "remaining"), [((), [2, 3]), (("b",), [2, 3])])
def test_dropnull(columns: tuple[str, ...], remaining: list[int]) -> None:
    made = make(DropNull, STREAM, columns=columns)
    assert made.schema.dtypes["b"] == Int()
    assert made.apply(INPUT)["a"].to_list() == [*remaining, 2]


def test_explode_zips_lists_and_keeps_empty_ones_as_null() -> None:
    lists = schema(l=list[int], m=list[str | None], a=int)
    rows = changes(lists, ([1, 2], ["p", None], 7, 0, 0, 1), ([], [], 8, 1, 1, -1))
    made = make(Explode, lists, columns=("l", "m"))
    assert made.schema.dtypes["l"] == OptionalType(Int())
    assert made.schema.dtypes["m"] == OptionalType(Str())
    assert emitted(made.apply(rows), "l", "m", "a") == [
        (1, "p", 7, 0.0, 1, 0), (2, None, 7, 0.0, 1, 0), (None, None, 8, 1.0, -1, 1),
    ]  # fmt: skip


def test_explode_of_lists_of_unequal_lengths_fails() -> None:
    lists = schema(l=list[int], m=list[str])
    rows = changes(lists, ([1, 2], ["p"], 0, 0, 1))
    with pytest.raises(Terminal, match=r"D\.p.*unequal lengths.*'l': 2, 'm': 1"):
        make(Explode, lists, columns=("l", "m")).apply(rows)


def test_union_brings_columns_into_one_order() -> None:
    other = Schema((), (("s", Str()), ("a", Int()), ("b", OptionalType(Int()))), "t")
    made = make(Union, STREAM, other)
    assert made.apply(changes(other, ("x", 1, None, 0, 0, 1))).columns == ["a", "b", "s", "t", *SAME]


# run-time errors


FILTER = r"Error in filter function <lambda> for pipeline D\.p"
ASSIGN = r"Error in assign node for column c for pipeline D\.p"
TRANSFORM = r"Error in transform function <lambda> for pipeline D\.p"
FAILING: list[tuple[type[Operator], dict[str, Any], str]] = [
    (
        Filter,
        {"condition": function(lambda df: df["nope"])},
        FILTER + ", UnknownName: the frame has no column 'nope'; known: a, b, s, t",
    ),
    (Filter, {"condition": function(lambda df: df["s"])}, FILTER),
    (Filter, {"condition": function(lambda df: None)}, "expected a Series, found NoneType"),
    (Filter, {"condition": function(lambda df: (df["a"] > 1).head(1))}, "each of 4 rows, found 1"),
    (Assign, {"columns": (assigned("c", int, lambda df: df["s"]),)}, ASSIGN + ".*an integer dtype for int, found"),
    (Assign, {"columns": (assigned("c", int, col("a") // 0),)}, ASSIGN),
    (Transform, {"function": UserFunction(lambda df: 1)}, TRANSFORM + ".*DataFrame, found int"),
    (Transform, {"function": UserFunction(lambda df: pl.DataFrame())}, "a pandas.DataFrame, found polars.DataFrame"),
    (Transform, {"function": UserFunction(lambda df: df.head(1))}, "as many rows as came in, 4, found 1"),
]


@pytest.mark.parametrize(("kind", "parameters", "text"), FAILING)
def test_what_goes_wrong_names_the_operator_and_the_pipeline(kind: Any, parameters: Any, text: str) -> None:
    with pytest.raises(Terminal, match=text):
        make(kind, STREAM, **parameters).apply(INPUT)


@pytest.mark.parametrize("columns", [(), (("a", Int()), ("t", from_annotation(type(EPOCH))))])
def test_transform_that_returns_other_columns_is_a_value_error(columns: Any) -> None:
    made = make(
        Transform, STREAM, function=UserFunction(lambda df: df.drop(columns="s").assign(new=1)), columns=columns
    )
    with pytest.raises(ValueError, match="returned columns 'a', 'b', 'new', 't', expected") as caught:
        made.apply(INPUT)
    assert ("provide schema" in str(caught.value)) == (not columns)


# definitions that are refused

LISTS = schema(l=list[int], a=int)
MISTYPED = (assigned("c", int, col("s")), assigned("d", int, col("b")))
TIMES = (("t", from_annotation(type(EPOCH))),)
REFUSED: list[tuple[type[Operator], Schema, dict[str, Any], type[Exception], str]] = [
    (Filter, STREAM, {"condition": ByExpression(col("a") + 1)}, TypeError, r"pipeline 'D\.p'.*bool, found int"),
    (Filter, STREAM, {"condition": ByExpression(col("b") > 1)}, TypeError, r"found Optional\[bool\]"),
    (Assign, STREAM, {"columns": (assigned("t", int, col("a")),)}, ValueError, "'t' is the timestamp"),
    (Assign, TABLE, {"columns": (assigned("k", int, col("v")),)}, ValueError, "'k' is a key"),
    (Assign, STREAM, {"columns": MISTYPED}, TypeError, r"(?s)D\.p.*'c': .*int, found str.*'d': .*Optional\[int\]"),
    (Assign, STREAM, {"columns": (assigned("c", int, col("s") + 1),)}, ValueError, "column 'c'"),
    (Assign, STREAM, {"columns": (assigned("_at", int, lit(1)),)}, ValueError, "reserved"),
    (Transform, STREAM, {"function": UserFunction(len), "columns": (("a", Int()),)}, TypeError, "timestamp 't'"),
    (Transform, TABLE, {"function": UserFunction(len), "columns": TIMES}, TypeError, "key 'k' as int, found missing"),
    (Transform, TABLE, {"function": UserFunction(len), "columns": (("k", Str()), *TIMES)}, TypeError, "int, found str"),
    (Rename, STREAM, {"names": ()}, ValueError, "no columns"),
    (Rename, STREAM, {"names": (("z", "y"),)}, ValueError, "unknown column 'z'"),
    (Rename, STREAM, {"names": (("a", "s"),)}, ValueError, "'s' exists"),
    (Rename, STREAM, {"names": (("a", "q"), ("s", "q"))}, ValueError, "more than one column would be named 'q'"),
    (Drop, STREAM, {"columns": ()}, ValueError, r"value columns: a, b, s"),
    (Drop, STREAM, {"columns": ("t",)}, ValueError, "'t' is the timestamp"),
    (Drop, TABLE, {"columns": ("k",)}, ValueError, r"(?s)'k' is a key.*value columns: v, o"),
    (Drop, STREAM, {"columns": ("zz",)}, ValueError, r"(?s)unknown value column 'zz'.*a, b, s"),
    (Select, STREAM, {"columns": ()}, ValueError, "no columns"),
    (Select, TABLE, {"columns": ("v",)}, ValueError, "key 'k' must be selected"),
    (Select, TABLE, {"columns": ("k", "x")}, ValueError, "unknown column 'x'"),
    (DropNull, STREAM, {"columns": ("zz",)}, ValueError, "unknown column 'zz'"),
    (DropNull, STREAM, {"columns": ("t",)}, ValueError, "'t' is not optional"),
    (DropNull, STREAM, {"columns": ("a",)}, ValueError, "'a' is not optional: 'a' is int"),
    (DropNull, LISTS, {}, ValueError, "no optional column"),
    (Explode, schema({"k": int}, l=list[int]), {"columns": ("l",)}, TypeError, "must be keyless, found key 'k'"),
    (Explode, LISTS, {"columns": ("zz",)}, ValueError, "unknown value column 'zz'"),
    (Explode, LISTS, {"columns": ("t",)}, ValueError, "'t' is the timestamp"),
    (Explode, LISTS, {"columns": ("a",)}, ValueError, "'a' must be a list, found int"),
    (Explode, LISTS, {"columns": ()}, ValueError, "no columns"),
    (Changelog, STREAM, {"marker": "m", "marks_deletes": True}, TypeError, "must be keyed"),
    (Changelog, TABLE, {"marker": "v", "marks_deletes": True}, ValueError, "'v' exists already"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rows", "parameters", "error", "text"), REFUSED)
def test_refused(kind: Any, rows: Schema, parameters: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        make(kind, rows, **parameters)
    assert isinstance(caught.value, UmbelError)


def test_union_lists_every_difference() -> None:
    other = Schema((), (("a", Str()), ("c", Int())), "u")
    with pytest.raises(InvalidValue) as caught:
        make(Union, STREAM, other)
    text = str(caught.value)
    for part in (
        "timestamp 't' in input 0, 'u' in input 1",
        "'a' is int in input 0, str in input 1",
        "'b'",
        "'s'",
        "'c' is missing in input 0",
    ):
        assert part in text
    with pytest.raises(InvalidType, match="keyless, found key 'k'"):
        make(Union, TABLE, TABLE)


# identity


def test_equal_definitions_have_equal_ids_whatever_the_pipeline() -> None:
    def condition() -> Any:
        return ByExpression((when(col("a") > 1).then(lit(1)).otherwise(col("a"))) == 1)

    one = Filter(parents=(leaf(STREAM),), pipeline="A.p", condition=condition())
    two = Filter(parents=(leaf(STREAM),), pipeline="B.q", condition=condition())
    three = Filter(parents=(leaf(STREAM),), pipeline="A.p", condition=ByExpression(col("a") > 2))
    four = Filter(parents=(leaf(STREAM, "Other"),), pipeline="A.p", condition=condition())
    assert one.id == two.id
    assert len({one.id, three.id, four.id}) == 3
    assert len(one.id) == 16


def test_inserts_only_comes_from_the_leaves() -> None:
    below = leaf(STREAM, appends=True)
    above = leaf(STREAM, appends=False)
    assert Drop(parents=(below,), columns=("a",)).inserts_only
    assert not Union(parents=(below, above)).inserts_only
    assert np.all([not Drop(parents=(above,), columns=("a",)).inserts_only])
