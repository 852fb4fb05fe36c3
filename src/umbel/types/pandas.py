"""Conversion of frames to and from pandas, for user code and clients.

Out: nullable dtypes (`Int64`, `Float64`, `boolean`, `string`), `datetime64[ns, UTC]`, objects for the rest; null is
`pd.NA`, for instants `NaT`. In: any pandas dtype. A NaN in a float column of numpy or among objects is
pandas' null; in `Float64` and Arrow columns it is a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from umbel.errors import InvalidValue
from umbel.types.dtype import DType, is_nan
from umbel.types.epochs import LAST
from umbel.types.instants import STORED
from umbel.types.raw import column_of

if TYPE_CHECKING:
    import pandas as pd

_NAT = np.iinfo(np.int64).min
_TO_MICROS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def to_pandas(frame: pl.DataFrame, dtypes: Mapping[str, DType]) -> pd.DataFrame:
    """Return stored columns as a pandas frame, in the order of `dtypes`."""
    import pandas as pd

    columns = {name: dtype.to_pandas(frame[name]) for name, dtype in dtypes.items()}
    return pd.DataFrame(columns, index=pd.RangeIndex(frame.height), copy=False)


def series_to_pandas(series: pl.Series, dtype: DType) -> pd.Series[Any]:
    """Return a stored column as a pandas series."""
    return dtype.to_pandas(series)


def from_pandas(df: pd.DataFrame, dtypes: Mapping[str, DType]) -> pl.DataFrame:
    """Return the columns of `dtypes` of a pandas frame in storage form.

    Raises:
        InvalidValue: a column is missing, or a value does not belong to its type; names the column and the type.
    """
    missing = [name for name in dtypes if name not in df.columns]
    if missing:
        present = ", ".join(map(str, df.columns))
        raise InvalidValue(f"missing columns: {', '.join(missing)}", hint=f"the frame has: {present}")
    return pl.DataFrame([series_from_pandas(df[name], dtype).alias(name) for name, dtype in dtypes.items()])


_UNFIT = "convert the column, or give it another type"


def series_from_pandas(series: pd.Series[Any], dtype: DType) -> pl.Series:
    """Return a pandas series in the storage form of a type.

    Raises:
        InvalidValue: a value does not belong to the type; names the series, if it has a name, and the type.
    """
    checked = dtype.ingest(raw_series(series))
    if checked.errors:
        row, reason = min(checked.errors.items())
        more = f" and {len(checked.errors) - 1} more" if len(checked.errors) > 1 else ""
        subject = "" if series.name is None else f"column '{series.name}' of type {dtype}: "
        raise InvalidValue(f"{subject}{reason} (row {row}{more})", hint=_UNFIT)
    return checked.values.alias("" if series.name is None else str(series.name))


def raw_from_pandas(df: pd.DataFrame) -> pl.DataFrame:
    """Return a pandas frame as a raw frame for validation, without loss or conversion.

    Raises:
        InvalidValue: two columns have the same name.
    """
    names = [str(name) for name in df.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidValue(f"columns that occur more than once: {', '.join(twice)}", hint="rename or drop one")
    columns = {name: raw_series(df.iloc[:, position]).alias(name) for position, name in enumerate(names)}
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=len(df))


def raw_series(series: pd.Series[Any]) -> pl.Series:
    """Return a pandas series as a raw column."""
    import pandas as pd

    dtype: Any = series.dtype
    if isinstance(dtype, pd.SparseDtype):
        return raw_series(pd.Series(series.to_numpy()))
    if dtype.kind == "M" and not isinstance(dtype, pd.ArrowDtype):
        return _instants(pd.DatetimeIndex(series))
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return _numbers(series.to_numpy())
    if isinstance(dtype, (pd.ArrowDtype, pd.StringDtype)) or isinstance(
        series.array, (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray)
    ):
        return _arrow(series)
    return _objects(series.astype(object).tolist())


def _numbers(values: np.ndarray[Any, Any]) -> pl.Series:
    if values.dtype.kind != "f":
        return pl.Series(values)
    return pl.Series(values if values.dtype.itemsize in {4, 8} else values.astype(np.float64)).fill_nan(None)


def _instants(index: pd.DatetimeIndex) -> pl.Series:
    stamps = (index if index.tz is None else index.tz_convert(None)).to_numpy()
    raw = stamps.view(np.int64)
    times, parts = _TO_MICROS[index.unit]
    known = raw != _NAT
    if (np.abs(raw[known] // parts) > LAST // times).any():
        return pl.Series(list(stamps), dtype=pl.Object)  # beyond the year 9999: for the type to refuse
    micros = np.where(known, raw, 0) // parts * times
    return pl.Series(micros).set(pl.Series(~known), None).cast(STORED)


def _arrow(series: pd.Series[Any]) -> pl.Series:
    array: Any = series.array
    try:
        return pl.Series(pl.from_arrow(array.__arrow_array__()))
    except (TypeError, ValueError, UnicodeError, pl.exceptions.PolarsError):
        return _objects(series.astype(object).tolist())  # an Arrow type Polars does not have


def _objects(values: Iterable[Any]) -> pl.Series:
    return column_of("", [None if is_nan(value) else value for value in values])
