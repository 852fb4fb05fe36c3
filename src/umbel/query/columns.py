"""Columns that come from users: the frame of a query, the keys of a lookup, what an extractor returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import InvalidValue
from umbel.types.dtypes import Checked, Datetime, DType
from umbel.types.pandas import raw_series

if TYPE_CHECKING:
    import pandas as pd


def given(df: pd.DataFrame, types: Mapping[str, DType]) -> dict[str, pl.Series]:
    """Return the input features of a query in storage types, cast by name.

    Args:
        df: one column per feature, named by its fully qualified name; other columns are ignored.
        types: the features.

    Raises:
        InvalidValue: a column is missing, or holds values that are not of the feature's type.
    """
    missing = [fqn for fqn in types if fqn not in df.columns]
    if missing:
        raise InvalidValue(
            f"input dataframe misses columns {missing}; required: {list(types)}, present: {list(df.columns)}",
            hint="name the columns by the features' fully qualified names, as in 'Featureset.feature'",
        )
    return {fqn: cast(_column(df, fqn), dtype, f"input column '{fqn}': feature {fqn}") for fqn, dtype in types.items()}


def instants(df: pd.DataFrame, column: str) -> pl.Series:
    """Return the timestamp column of an offline query."""
    if column not in df.columns:
        raise InvalidValue(
            f"timestamp column '{column}' is not in the input dataframe; present: {list(df.columns)}",
            hint="add the column, or name another: timestamp_column=...",
        )
    return cast(_column(df, column), Datetime(), f"timestamp column '{column}'")


def keys_of(df: pd.DataFrame, types: Mapping[str, DType], what: str) -> pl.DataFrame:
    """Return the columns of a frame that hold keys.

    Args:
        df: one column per key.
        types: the keys.
        what: what is asked, for messages.
    """
    missing = [name for name in types if name not in df.columns]
    if missing:
        raise InvalidValue(
            f"{what}: missing key columns {missing}; present: {list(df.columns)}", hint="one column for each key field"
        )
    columns = (cast(_column(df, name), dtype, f"{what}: key '{name}'").alias(name) for name, dtype in types.items())
    return pl.DataFrame(list(columns))


def _column(df: pd.DataFrame, name: str) -> pd.Series[Any]:
    found = df[name]
    if found.ndim > 1:
        raise InvalidValue(f"the dataframe has column '{name}' more than once", hint="rename or drop one")
    return found


def cast(series: pd.Series[Any], dtype: DType, what: str) -> pl.Series:
    """Return a series in the storage type, taking in whatever the type takes in."""
    checked = dtype.ingest(raw_series(series))
    if checked.faults:
        raise InvalidValue(
            f"{what}: cannot cast to {dtype}: {reasons(checked)}", hint="give the column values of that type"
        )
    return checked.values


def strict(series: pd.Series[Any], dtype: DType) -> tuple[pl.Series, str]:
    """Return a series computed by user code in the storage type, and what is wrong with it, empty when nothing is.

    Integers pass for floats and integral floats for integers, as pandas writes integers beside nulls. No other kind of
    value is converted: text is no number, a number no text.
    """
    raw = raw_series(series)
    found, expected = _kind(raw.dtype), _kind(dtype.polars())
    if found and expected and found != expected:
        return raw, f"expected {dtype}, found {found}s ({series.dtype})"
    checked = dtype.ingest(raw)
    return checked.values, reasons(checked)


def reasons(checked: Checked) -> str:
    """Return what is wrong with a column, empty when nothing is."""
    if not checked.faults:
        return ""
    row, reason = min(checked.faults.items())
    more = f" and {len(checked.faults) - 1} more" if len(checked.faults) > 1 else ""
    return f"{reason} (row {row}{more})"


def _kind(dtype: pl.DataType) -> str:
    if dtype == pl.String:
        return "text"
    if dtype == pl.Boolean:
        return "truth value"
    return "number" if dtype.is_numeric() else "instant" if dtype.is_temporal() else ""
