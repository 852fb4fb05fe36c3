"""Computed columns: a value per row, from an expression or from the user's function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import InvalidType, RuntimeFault, Terminal
from umbel.expr import Expr, evaluate, matches
from umbel.operators.userfunction import UserFunction
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, DType]


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Report whatever goes wrong inside as an error in `what`."""
    try:
        yield
    except RuntimeFault:
        raise
    except Exception as error:
        raise Terminal(f"Error in {what}, {type(error).__name__}: {error}") from error


class Computed:
    """How the values of a column are computed from the other columns of a row."""

    @property
    def title(self) -> str:
        """What it is, for messages."""
        raise NotImplementedError(type(self).__name__)

    def dtype(self, columns: Columns) -> DType | None:
        """Return the type of the values, None when only the values themselves will tell."""
        raise NotImplementedError(type(self).__name__)

    def fits(self, found: DType, declared: DType) -> bool:
        """Whether values of the type found may be declared as another."""
        return found == declared

    def values(self, rows: pl.DataFrame, columns: Columns, declared: DType) -> pl.Series:
        """Return one value of the declared type per row."""
        raise NotImplementedError(type(self).__name__)


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
        from umbel.types.pandas import from_pandas

        if rows.is_empty():
            return pl.Series("value", [], declared.polars())
        found = one_per_row(called(self.function, rows, columns), rows.height)
        return from_pandas(found.to_frame("value"), {"value": declared})["value"]


def called(function: UserFunction, rows: pl.DataFrame, columns: Columns) -> Any:
    """Call a user's function with the rows as a pandas frame."""
    from umbel.types.pandas import to_pandas

    return function(to_pandas(rows.select(list(columns)), columns))


def one_per_row(values: Any, height: int) -> pd.Series[Any]:
    """Return what a user's function returned as a series without index, if it has one value per row."""
    import pandas as pd

    if isinstance(values, pd.DataFrame) or not hasattr(values, "__len__") or isinstance(values, str):
        raise InvalidType(f"expected a Series, found {type(values).__name__}")
    series = values if isinstance(values, pd.Series) else pd.Series(values)
    if len(series) != height:
        raise InvalidType(f"expected a value for each of {height} rows, found {len(series)}")
    return series.reset_index(drop=True)
