"""The rows of one query while its features are being computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

INSTANT = pl.Datetime("us", "UTC")


@dataclass(slots=True)
class Plain:
    """A column as Python values: what few values are until somebody needs a Polars column of them.

    Args:
        values: as `pl.Series.to_list` has them.
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
        (instead,) = default.to_list()  # `item` gives lists as Polars columns
        return Plain([instead if value is None else value for value in self.values], self.dtype)

    @property
    def series(self) -> pl.Series:
        """The same as a Polars column."""
        kind = _NATIVE.get(type(self.dtype))
        if kind is not None and self.values and all(type(value) is kind for value in self.values):
            return pl.Series(self.values)  # not to be told the type is quicker
        return pl.Series(self.values, dtype=self.dtype, strict=False)


_NATIVE: dict[type, type] = {pl.Int64: int, pl.Float64: float}

Column = pl.Series | Plain


def is_same(one: pl.DataType, other: pl.DataType) -> bool:
    """Return whether two types are the same: what `==` says, sooner for those without parameters."""
    return (type(one) is type(other) and type(one) in _SIMPLE) or one == other


_SIMPLE = {pl.Int64, pl.Float64, pl.String, pl.Boolean}


def series_of(column: Column) -> pl.Series:
    """Return a column as Polars has it."""
    return column.series if isinstance(column, Plain) else column


class Instants:
    """An instant for each row; a Polars column when somebody needs one.

    Args:
        micros: µs since the epoch.
    """

    __slots__ = ("_series", "micros")

    def __init__(self, micros: npt.NDArray[np.int64]) -> None:
        self.micros = micros
        self._series: pl.Series | None = None

    @classmethod
    def of(cls, series: pl.Series) -> Instants:
        """Return a column of instants."""
        made = cls(series.cast(INSTANT).cast(pl.Int64).to_numpy())
        made._series = series
        return made

    def __len__(self) -> int:
        return len(self.micros)

    @property
    def series(self) -> pl.Series:
        """The same as a Polars column."""
        if self._series is None:
            self._series = pl.Series("at", self.micros).cast(INSTANT)
        return self._series


@dataclass(slots=True)
class Rows:
    """The features known so far, in storage types.

    Args:
        instants: as of which each row is asked for.
        columns: one per known feature, by fully qualified name.
    """

    instants: Instants
    columns: dict[str, Column] = field(default_factory=dict)

    @property
    def at(self) -> pl.Series:
        """The instants as a Polars column."""
        return self.instants.series

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.instants)

    def add(self, fqn: str, column: Column) -> None:
        """Add a feature; one that was given as an input is not replaced."""
        self.columns.setdefault(fqn, column)

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
