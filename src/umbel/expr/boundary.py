"""Conversions between expressions and Python: annotations in schemas, pandas frames and series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.expr.errors import InvalidExprException
from umbel.expr.evaluate import evaluate
from umbel.expr.lattice import Null, optional
from umbel.types.dtypes import Bool, DType, Float, Int, Str

if TYPE_CHECKING:
    import pandas as pd

    from umbel.expr.tree import Expr

_PLAIN: dict[type[DType], str] = {Int: "int64", Float: "float64", Bool: "bool", Str: "object"}


def type_of(annotation: Any) -> DType:
    """Return the type of an annotation."""
    from umbel.types.annotations import from_annotation

    return annotation if isinstance(annotation, DType) else from_annotation(annotation)


def types_of(schema: Mapping[str, Any]) -> dict[str, DType]:
    """Return the types of a schema of annotations."""
    return {name: type_of(annotation) for name, annotation in schema.items()}


def python_type(dtype: DType) -> Any:
    """Return the annotation of a type."""
    return type(None) if isinstance(dtype, Null) else dtype.annotation()


def evaluate_pandas(
    expr: Expr,
    df: pd.DataFrame,
    schema: Mapping[str, Any],
    output_dtype: Any,
    parse: bool,
    context: Mapping[str, Any] | None,
) -> pd.Series[Any]:
    """Evaluate over a pandas frame; see `Expr.eval`."""
    from umbel.types.pandas import from_pandas

    types = types_of(schema)
    missing = [name for name in types if name not in df.columns]
    if missing:
        raise InvalidExprException(
            f"column {', '.join(map(repr, missing))} is in the schema, not in the frame",
            hint="add the column to the frame, or take it out of the schema",
        )
    inferred = expr.dtype(types)
    declared = None if output_dtype is None else type_of(output_dtype)
    frame = from_pandas(df, types) if types else pl.DataFrame(height=len(df))
    values = evaluate(frame, {"value": (expr, declared)}, types, (context or {}).get("now"))["value"]
    return _handed_out(values, declared or inferred, parse)


def _handed_out(values: pl.Series, dtype: DType, parse: bool) -> pd.Series[Any]:
    import pandas as pd

    if isinstance(dtype.plain, Float):
        values = values.fill_nan(None)
    if isinstance(dtype, Null) or not parse:
        return pd.Series([pd.NA if value is None else value for value in values.to_list()], dtype=object)
    shown = optional(dtype).to_pandas(values).rename(None)
    plain: Any = _PLAIN.get(type(dtype.plain))
    return shown.astype(plain) if plain and not dtype.is_optional and not values.null_count() else shown
