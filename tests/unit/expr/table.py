"""How the tables of cases are run: an expression over columns, its type and its values."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

from umbel.errors import InvalidValue
from umbel.expr import Expr, evaluate
from umbel.expr.steps import Steps, Structures
from umbel.types.annotations import from_annotation
from umbel.types.dtypes import DType

NAN = float("nan")
Columns = Mapping[str, tuple[Any, Sequence[Any]]]


def schema_of(columns: Columns) -> dict[str, DType]:
    return {name: from_annotation(annotation) for name, (annotation, _) in columns.items()}


def frame_of(columns: Columns) -> pl.DataFrame:
    made = {name: from_annotation(annotation).ingest(list(values)) for name, (annotation, values) in columns.items()}
    assert not any(checked.errors for checked in made.values()), made
    return pl.DataFrame({name: checked.values for name, checked in made.items()})


def values_of(expr: Expr, columns: Columns) -> list[Any]:
    return evaluate(frame_of(columns), {"value": (expr, None)}, schema_of(columns))["value"].to_list()


@contextlib.contextmanager
def in_steps() -> Iterator[None]:
    """Compute every part of an expression apart, also the columns and constants."""

    def steps_of(exprs: Sequence[Expr]) -> Steps:
        structures = Structures()
        for each in exprs:
            structures.add(each)
        return Steps(structures.known)

    with patch("umbel.expr.tree.steps_of", steps_of):
        yield


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or left == pytest.approx(right, rel=1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def check(expr: Expr, columns: Columns, type_: Any, expected: Sequence[Any]) -> None:
    """Check the type, the values, that Polars agrees on the type, and that the other forms give the same.

    They are one Polars expression, and one column for each part.
    """
    schema, frame = schema_of(columns), frame_of(columns)
    dtype = expr.dtype(schema)
    assert dtype == from_annotation(type_), f"{expr} is {dtype}"
    values = evaluate(frame, {"value": (expr, None)}, schema)["value"]
    assert values.dtype == dtype.polars(), f"{expr} is stored as {values.dtype}"
    assert same(values.to_list(), list(expected)), f"{expr} gives {values.to_list()}"
    alone = frame.with_columns(_value=expr.polars(schema))["_value"]
    assert alone.equals(values.alias("_value"), null_equal=True)
    with in_steps():
        assert expr.dtype(schema) == dtype
        assert evaluate(frame, {"value": (expr, None)}, schema)["value"].equals(values, null_equal=True)


def refused(expr: Expr, columns: Columns, *texts: str) -> None:
    """Check that the expression does not type-check, and what the error says."""
    with pytest.raises(InvalidValue, match="failed to compile expression") as caught:
        expr.typeof({name: annotation for name, (annotation, _) in columns.items()})
    for text in texts:
        assert text in str(caught.value)


def fails(expr: Expr, columns: Columns, *texts: str) -> None:
    """Check that the expression type-checks and fails on the rows, in each form."""
    schema, frame = schema_of(columns), frame_of(columns)
    with pytest.raises(InvalidValue, match="failed to evaluate expression") as caught:
        evaluate(frame, {"value": (expr, None)}, schema)
    for text in texts:
        assert text in str(caught.value)
    with pytest.raises((pl.exceptions.PolarsError, InvalidValue)):
        frame.with_columns(expr.polars(schema))
    with in_steps(), pytest.raises(InvalidValue, match="failed to evaluate expression") as found:
        evaluate(frame, {"value": (expr, None)}, schema)
    assert found.value.message == caught.value.message
