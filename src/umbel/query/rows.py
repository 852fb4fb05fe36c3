"""The rows of one query during its execution."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from umbel.types.numeric import unchanged

INSTANT = pl.Datetime("us", "UTC")


@dataclass(slots=True)
class Plain:
    """A column as a Python list, converted to Polars only on demand.

    Point lookups use it, since creating a Polars column costs more than reading a small list.

    Args:
        values: in the form of `pl.Series.to_list`.
        dtype: the storage type.
    """

    values: list[Any]
    dtype: pl.DataType

    def __len__(self) -> int:
        return len(self.values)

    def to_list(self) -> list[Any]:
        """Return the values."""
        return self.values

    def filled(self, default: pl.Series | None) -> Plain:
        """Return the column with its nulls replaced by the one value of `default`."""
        if default is None or None not in self.values:
            return self
        (instead,) = default.to_list()  # `item` returns lists as Polars columns
        return Plain([instead if value is None else value for value in self.values], self.dtype)

    @property
    def series(self) -> pl.Series:
        """The values as a Polars column."""
        kind = _NATIVE.get(type(self.dtype))
        if kind is not None and self.values and all(type(value) is kind for value in self.values):
            return pl.Series(self.values)  # inferring the type is faster
        return pl.Series(self.values, dtype=self.dtype, strict=False)


_NATIVE: dict[type, type] = {pl.Int64: int, pl.Float64: float}

Column = pl.Series | Plain
Fields = AbstractSet[str] | None


def is_same(one: pl.DataType, other: pl.DataType) -> bool:
    """Return True if two types are equal.

    The result is that of `==`, but faster for types without parameters.
    """
    return (type(one) is type(other) and type(one) in _SIMPLE) or one == other


_SIMPLE = {pl.Int64, pl.Float64, pl.String, pl.Boolean}


def series_of(column: Column) -> pl.Series:
    """Return a column as a Polars series."""
    return column.series if isinstance(column, Plain) else column


def as_keys(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values as keys of a dataset.

    Those that are no such key are null, which no row has.
    """
    return column if column.dtype == dtype else unchanged(column, dtype)


class Instants:
    """An instant for each row, converted to Polars only on demand.

    Args:
        micros: µs since the epoch.
    """

    __slots__ = ("_series", "micros")

    def __init__(self, micros: npt.NDArray[np.int64]) -> None:
        self.micros = micros
        self._series: pl.Series | None = None

    @classmethod
    def of(cls, series: pl.Series) -> Instants:
        """Return the instants of a Polars column."""
        made = cls(series.cast(INSTANT).cast(pl.Int64).to_numpy())
        made._series = series
        return made

    def __len__(self) -> int:
        return len(self.micros)

    @property
    def series(self) -> pl.Series:
        """The instants as a Polars column."""
        if self._series is None:
            self._series = pl.Series("at", self.micros).cast(INSTANT)
        return self._series


@dataclass(slots=True)
class QueryRows:
    """The features known so far, in storage types.

    Args:
        instants: the instant of each row.
        columns: one per known feature, by fully qualified name.
        dtypes: the pandas dtypes of features from pandas series: extractor results and inputs.
    """

    instants: Instants
    columns: dict[str, Column] = field(default_factory=dict)
    dtypes: dict[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> pl.Series:
        """The instants as a Polars column."""
        return self.instants.series

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.instants)

    def add(self, fqn: str, column: Column) -> None:
        """Add a feature; a query input is not replaced."""
        self.columns.setdefault(fqn, column)

    def add_computed(self, computed: Iterable[tuple[str, pl.Series, Any]]) -> None:
        """Add what extractors returned: name, column and pandas dtype of each feature."""
        for fqn, column, dtype in computed:
            self.add(fqn, column)
            self.dtypes[fqn] = dtype

    def series(self, fqn: str) -> pl.Series:
        """Return a known feature as a Polars column."""
        column = self.columns[fqn]
        if isinstance(column, Plain):
            column = self.columns[fqn] = column.series
        return column


def filled(column: pl.Series, default: pl.Series | None) -> pl.Series:
    """Return a column with its nulls replaced by the one value of `default`."""
    if default is None or not column.null_count():
        return column
    return column.zip_with(column.is_not_null(), default.new_from_index(0, len(column)))
