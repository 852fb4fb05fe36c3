"""Computed columns: a value per row, from an expression or from the user's function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import InvalidType, InvalidValue, RuntimeFault, Terminal, UmbelError, line_of
from umbel.expr import Expr, evaluate, matches
from umbel.operators.userfunction import UserFunction
from umbel.types.dtypes import Bool, Checked, Date, Datetime, DType, Float, Int, Str

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, DType]

SINGLE = (bool, int, float, str, bytes, Decimal, date)
"""What a user's function may return once instead of for every row, as pandas lets columns be set."""

PARTS = 16
"""Rows among which one is at fault are tried again in so many parts."""


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Report whatever goes wrong inside as an error in `what`."""
    try:
        yield
    except RuntimeFault:
        raise
    except Exception as error:
        told = error.message if isinstance(error, UmbelError) else error
        hint = getattr(error, "hint", None) or "mend the function, or the rows it is given"
        raise Terminal(f"Error in {what}, {type(error).__name__}: {told}", where=line_of(error), hint=hint) from error


class Computed(ABC):
    """How the values of a column are computed from the other columns of a row."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, for messages."""

    @abstractmethod
    def dtype(self, columns: Columns) -> DType | None:
        """Return the type of the values, None when only the values themselves will tell."""

    def fits(self, found: DType, declared: DType) -> bool:
        """Whether values of the type found may be declared as another."""
        return found == declared

    @abstractmethod
    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> pl.Series:
        """Return one value of the declared type per row, or raise."""

    @abstractmethod
    def judged(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        """Return one value per row, and which rows have none; never raises for the sake of some rows.

        Args:
            rows: columns in storage form; for a function, also columns of any other form.
            columns: their types, of those that have one.
            declared: the type of the values.
        """


@dataclass(frozen=True)
class ByExpression(Computed):
    """Values of an expression."""

    expression: Expr

    @property
    def title(self) -> str:
        return f"expression {self.expression}"

    def dtype(self, columns: Columns) -> DType:
        return self.expression.dtype(columns)

    def fits(self, found: DType, declared: DType) -> bool:
        return matches(found, declared, self.expression)

    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> pl.Series:
        return evaluate(rows, {"value": (self.expression, declared)}, columns)["value"]

    def judged(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        def values(part: pl.DataFrame) -> pl.Series:
            found = evaluate(part, {"value": (self.expression, None)}, columns)["value"]
            return found.cast(declared.polars()) if found.dtype == pl.Null else found

        return judged_by_parts(values, rows, declared)


@dataclass(frozen=True)
class ByFunction(Computed):
    """Values of the user's function, which gets the rows as a pandas frame."""

    function: UserFunction

    @property
    def title(self) -> str:
        return f"function {self.function.name}"

    def dtype(self, columns: Columns) -> None:
        return None

    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> pl.Series:
        from umbel.types.pandas import series_from_pandas

        if rows.is_empty():
            return pl.Series("value", [], declared.polars())
        found = one_per_row(called(self.function, rows, columns), rows.height)
        return series_from_pandas(found.rename("value"), declared)

    def judged(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        from umbel.types.pandas import raw_series, to_pandas

        def values(part: pl.DataFrame) -> pl.Series:
            given = to_pandas(part, {name: columns.get(name) or shown_as(part[name]) for name in part.columns})
            return raw_series(one_per_row(self.function(given), part.height))

        return judged_by_parts(values, rows, declared)


def inferred(computed: Computed, columns: Columns, owner: str) -> DType | None:
    """Return the type of what is computed; say for whom where an expression has none."""
    try:
        return computed.dtype(columns)
    except (ValueError, TypeError) as error:
        told = error.message if isinstance(error, UmbelError) else error
        hint = getattr(error, "hint", None) or "give the expression operands of types it takes"
        raise InvalidValue(f"{owner}: {told}", hint=hint) from error


def called(function: UserFunction, rows: pl.DataFrame, columns: Columns) -> Any:
    """Call a user's function with the rows as a pandas frame."""
    from umbel.types.pandas import to_pandas

    return function(to_pandas(rows, columns))


def one_per_row(values: Any, height: int) -> pd.Series[Any]:
    """Return what a user's function returned as a series without index: a value per row, or one that is that of all rows."""
    import numpy as np
    import pandas as pd

    if isinstance(values, (*SINGLE, np.generic)):
        return pd.Series([values] * height)
    if isinstance(values, pd.DataFrame) or not hasattr(values, "__len__"):
        raise InvalidType(
            f"expected a Series, found {type(values).__name__}", hint="return a Series with a value for each row"
        )
    series = values if isinstance(values, pd.Series) else pd.Series(values)
    if len(series) != height:
        raise InvalidType(
            f"expected a value for each of {height} rows, found {len(series)}",
            hint="return a Series with a value for each row",
        )
    ordered: pd.Series[Any] = in_order(series)
    return ordered


def in_order(made: Any) -> Any:
    """Return what a user's function made of a frame in the order of its rows, without index.

    A function may sort the rows; the index it leaves then tells which is which. Any other index says nothing.
    """
    import numpy as np

    index = made.index
    if index.nlevels == 1 and index.dtype.kind == "i" and not index.is_monotonic_increasing:
        order = index.to_numpy().argsort(kind="stable")
        if np.array_equal(index.to_numpy()[order], np.arange(len(index))):
            made = made.iloc[order]
    return made.reset_index(drop=True)


def judged_by_parts(values: Callable[[pl.DataFrame], pl.Series], rows: pl.DataFrame, declared: DType) -> Checked:
    """Compute values for all rows but those at fault: cut what raises into parts until these rows are found."""
    if rows.is_empty():
        return Checked(pl.Series("value", [], declared.polars()))
    try:
        checked = declared.ingest(values(rows))
    except Exception as error:  # noqa: BLE001  user code raises anything
        if rows.height == 1:
            return Checked(pl.Series("value", [None], declared.polars()), {0: f"{type(error).__name__}: {error}"})
        size = -(-rows.height // PARTS)
        return _together([judged_by_parts(values, part, declared) for part in rows.iter_slices(size)])
    return Checked(checked.values.alias("value"), checked.faults)


def _together(parts: list[Checked]) -> Checked:
    starts = accumulate((len(part.values) for part in parts), initial=0)
    faults = {start + row: why for start, part in zip(starts, parts, strict=False) for row, why in part.faults.items()}
    return Checked(pl.concat([part.values for part in parts]), faults)


def shown_as(column: pl.Series) -> DType:
    """Return the type as which a column that has none is shown to a user's function."""
    return _SHOWN.get(column.dtype, _AS_THEY_ARE)


@dataclass(frozen=True, slots=True)
class _AsTheyAre(DType):
    """Values of which nothing is known."""

    def polars(self) -> pl.DataType:
        return pl.Object()


_AS_THEY_ARE = _AsTheyAre()
_SHOWN: dict[pl.DataType, DType] = {each.polars(): each for each in (Int(), Float(), Str(), Bool(), Datetime(), Date())}
