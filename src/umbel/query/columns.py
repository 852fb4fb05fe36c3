"""User-provided columns: query inputs, lookup keys, extractor results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import InvalidValue, did_you_mean, misspelt
from umbel.types.dtypes import Checked, Datetime, DType
from umbel.types.pandas import raw_series

if TYPE_CHECKING:
    import pandas as pd


def provided(df: pd.DataFrame, types: Mapping[str, DType]) -> dict[str, pl.Series]:
    """Return the query's input features in storage types, cast by name.

    Args:
        df: one column per feature, named by its fully qualified name; other columns are ignored. Without rows, without columns.
        types: the features.

    Raises:
        InvalidValue: a column is missing, or has values that are not of the feature's type.
    """
    if not len(df):
        return {fqn: pl.Series(fqn, [], dtype.polars()) for fqn, dtype in types.items()}
    missing = [fqn for fqn in types if fqn not in df.columns]
    if missing:
        raise InvalidValue(
            f"input dataframe misses columns {missing}; required: {list(types)}, present: {list(df.columns)}"
            f"{misspelt(missing, (name for name in df.columns if name not in types))}",
            hint="name the columns by the features' fully qualified names, as in 'Featureset.feature'",
        )
    return {fqn: cast(_column(df, fqn), dtype, f"input column '{fqn}': feature {fqn}") for fqn, dtype in types.items()}


def mapped(inputs: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each input.

    Args:
        inputs: names of features.
        columns: the columns of inputs whose columns are not named after them.

    Raises:
        InvalidValue: a mapped name is no input of the query.
    """
    names = list(inputs)
    strange = [name for name in columns if name not in names]
    if strange:
        raise InvalidValue(
            f"feature_to_column_map names {strange}, which are no inputs; inputs: {names}",
            hint="map the inputs of the query",
        )
    return {name: columns.get(name, name) for name in names}


def by_feature(df: pd.DataFrame, inputs: Iterable[str], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a frame with a column for each mapped input, beside its own.

    A column may be that of several features. Of a frame without rows columns may be missing.

    Args:
        df: the frame.
        inputs: names of features.
        columns: the columns of inputs whose columns are not named after them.

    Raises:
        InvalidValue: a mapped name is no input of the query, or its column is missing or there more than once.
    """
    mapped(inputs, columns)
    missing = [column for column in columns.values() if column not in df.columns]
    if missing and len(df):
        known = did_you_mean(str(missing[0]), map(str, df.columns))
        raise InvalidValue(
            f"input dataframe misses columns {missing}, which feature_to_column_map names{known}",
            hint="name columns of the dataframe",
        )
    return df.assign(**{name: _column(df, column) for name, column in columns.items() if column in df.columns})


def instants(df: pd.DataFrame, column: str) -> pl.Series:
    """Return the timestamp column of an offline query; a frame without rows may lack it."""
    if not len(df):
        return pl.Series(column, [], Datetime().polars())
    if column not in df.columns:
        raise InvalidValue(
            f"timestamp column '{column}' is not in the input dataframe; present: {list(df.columns)}",
            hint="add the column, or name another: timestamp_column=...",
        )
    return cast(_column(df, column), Datetime(), f"timestamp column '{column}'")


def check_timestamp(column: str, outputs: Iterable[str]) -> None:
    """Refuse a timestamp column with the name of an output, which it would replace."""
    if column in outputs:
        raise InvalidValue(
            f"timestamp column '{column}' has the name of an output, and the answer has both",
            hint="give the instants in a column of another name, or leave out the output",
        )


def pandas_dtypes(df: pd.DataFrame, columns: Iterable[str]) -> dict[str, Any]:
    """Return the dtypes of a frame's columns, none without rows: these dtypes mean nothing."""
    return {name: df[name].dtype for name in columns} if len(df) else {}


def keys_of(df: pd.DataFrame, types: Mapping[str, DType], what: str) -> pl.DataFrame:
    """Return the key columns of a frame.

    Args:
        df: one column per key.
        types: the keys.
        what: the requested operation, for messages.
    """
    missing = [name for name in types if name not in df.columns]
    if missing:
        raise InvalidValue(
            f"{what}: missing key columns {missing}; present: {list(df.columns)}"
            f"{misspelt(missing, (name for name in df.columns if name not in types))}",
            hint="one column for each key field",
        )
    columns = (cast(_column(df, name), dtype, f"{what}: key '{name}'").alias(name) for name, dtype in types.items())
    return pl.DataFrame(list(columns))


def _column(df: pd.DataFrame, name: str) -> pd.Series[Any]:
    found = df[name]
    if found.ndim > 1:
        raise InvalidValue(f"the dataframe has column '{name}' more than once", hint="rename or drop one")
    return found


def cast(series: pd.Series[Any], dtype: DType, what: str) -> pl.Series:
    """Return a series in the storage type, with the type's input conversions."""
    checked = dtype.ingest(raw_series(series))
    if checked.errors:
        raise InvalidValue(
            f"{what}: cannot cast to {dtype}: {reasons(checked)}", hint="give the column values of that type"
        )
    return checked.values


def strict(series: pd.Series[Any], dtype: DType) -> tuple[pl.Series, str]:
    """Return a series computed by user code in the storage type, with its error.

    The error is empty if there is none.

    Integers are accepted for floats, and integral floats for integers, since pandas stores integers with nulls as
    floats. No other value is converted: text is not a number, and a number is not text. A column of nulls has any type: pandas
    makes floats of them, and of an empty list.
    """
    raw = raw_series(series)
    if raw.dtype.is_float() and not dtype.polars().is_float() and raw.is_nan().fill_null(True).all():
        raw = pl.Series(raw.name, [None] * len(raw), dtype.polars())
    found, expected = _kind(raw.dtype), _kind(dtype.polars())
    if found and expected and found != expected:
        return raw, f"expected {dtype}, found {found}s ({series.dtype})"
    checked = dtype.ingest(raw)
    return checked.values, reasons(checked)


def reasons(checked: Checked) -> str:
    """Return the errors of a column as text, empty if there are none."""
    if not checked.errors:
        return ""
    row, reason = min(checked.errors.items())
    more = f" and {len(checked.errors) - 1} more" if len(checked.errors) > 1 else ""
    return f"{reason} (row {row}{more})"


def _kind(dtype: pl.DataType) -> str:
    if dtype == pl.String:
        return "text"
    if dtype == pl.Boolean:
        return "truth value"
    return "number" if dtype.is_numeric() else "instant" if dtype.is_temporal() else ""
