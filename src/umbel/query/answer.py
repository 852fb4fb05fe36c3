"""Query answers, and their conversion to Polars, pandas and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.query.encode import Writers, writers, written
from umbel.query.rows import Column, series_of
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    import pandas as pd


DTYPES_HEADER = "X-UMBEL-DTYPES"
"""The header of a JSON answer with the pandas dtypes of columns from extractors; see `Answer.dtypes_json`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns in storage types, in the requested order.

    Args:
        columns: by name.
        types: of the columns.
        writers: the columns' JSON encoders, if the caller has them.
        dtypes: the pandas dtypes of columns from extractors or callers.
    """

    columns: Mapping[str, Column]
    types: Mapping[str, DType]
    writers: Writers | None = None
    dtypes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def to_polars(self) -> pl.DataFrame:
        """Return the columns as a Polars frame in storage types."""
        return pl.DataFrame([series_of(column).alias(name) for name, column in self.columns.items()])

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns as a pandas frame, with structs as objects.

        Columns from pandas series have their original dtypes if these can represent the values; others are nullable.
        """
        import pandas as pd

        shown = {name: self.types[name].to_pandas(series_of(column)) for name, column in self.columns.items()}
        shown |= {name: in_dtype(shown[name], dtype) for name, dtype in self.dtypes.items()}
        return pd.DataFrame(shown, columns=list(self.columns))

    def to_json(self) -> dict[str, list[Any]]:
        """Return the columns as lists of JSON values."""
        return written(self.columns, self.writers or writers(self.types))

    def dtypes_json(self) -> str:
        """Return `dtypes` as JSON, empty if there are none.

        Each dtype has the positions of its columns. A dtype that cannot be made from its name is left out.
        """
        if not self.dtypes:
            return ""
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(self.columns):
            if name in self.dtypes:
                positions.setdefault(str(self.dtypes[name]), []).append(position)
        named = {name: found for name, found in positions.items() if _dtype(name) is not None}
        return json.dumps(named, separators=(",", ":")) if named else ""


def dtypes_from_json(text: str, columns: Sequence[str]) -> dict[str, Any]:
    """Return the pandas dtypes by column, from the result of `Answer.dtypes_json`.

    Args:
        text: the result; may be empty.
        columns: the columns of the answer.
    """
    named: dict[str, list[int]] = json.loads(text) if text else {}
    found = {name: _dtype(name) for name in named}
    return {columns[position]: found[name] for name in named for position in named[name] if found[name] is not None}


def _dtype(name: str) -> Any:
    """Return the pandas dtype of a name, None if there is none."""
    import pandas as pd

    with suppress(TypeError, ValueError, NotImplementedError):  # the last for types of Arrow with parameters
        return pd.api.types.pandas_dtype(name)
    return None


def _has_other_values(series: pd.Series[Any], dtype: Any) -> bool:
    """Return True if pandas converts to a dtype in a way of its own.

    Of text, every one but the empty is True for it, and instants are nanoseconds.
    """
    from pandas.api import types

    is_text, is_instants = types.is_string_dtype(series.dtype), types.is_datetime64_any_dtype(series.dtype)
    return (is_text and types.is_bool_dtype(dtype)) or (is_instants and types.is_numeric_dtype(dtype))


def in_dtype(series: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    """Return a series in another pandas dtype.

    It is returned unchanged if the dtype cannot represent its values.
    """
    import pandas as pd

    if series.dtype == dtype or _has_other_values(series, dtype):
        return series
    try:
        if isinstance(series.dtype, pd.DatetimeTZDtype) and getattr(dtype, "tz", None) is None and dtype.kind == "M":
            series = series.dt.tz_localize(None)
        made: pd.Series[Any] = series.astype(dtype)
    except (TypeError, ValueError, OverflowError, SystemError):  # the last of Arrow, for instances of structs
        return series
    return made if bool((made.isna() == series.isna()).all()) else series
