"""Names of the columns of one aggregate's partial state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from umbel.types.dtypes import DType

WEIGHT = pl.col("_weight")
FIRST = pl.col("_time_first")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of an aggregate's input and state columns.

    Args:
        of: the input column; empty when there is none.
        dtype: the type of the input column.
        prefix: distinguishes its state columns from those of other aggregates.
        is_retractable: True if rows may be retracted.
    """

    of: str = ""
    dtype: DType | None = None
    prefix: str = "_state0."
    is_retractable: bool = False

    def name(self, part: str) -> str:
        """Return the full name of a part of the state."""
        return self.prefix + part

    def __getitem__(self, part: str) -> pl.Expr:
        return pl.col(self.prefix + part)

    @property
    def value(self) -> pl.Expr:
        """The input column, in rows; -0.0 is 0.0.

        Values are told apart by equality, so which of the two was stored would depend on the order of rows.
        """
        found = pl.col(self.of)
        if self.dtype is None or not self.polars.is_float():
            return found
        return pl.when(found == 0.0).then(0.0).otherwise(found)  # Polars leaves out the addition of 0.0

    @property
    def polars(self) -> pl.DataType:
        """The Polars type of the input column."""
        assert self.dtype is not None
        return self.dtype.polars()

    def full(self, parts: Mapping[str, pl.Expr]) -> list[pl.Expr]:
        """Return the expressions aliased to the full names of their parts."""
        return [expression.alias(self.prefix + part) for part, expression in parts.items()]

    def schema(self, parts: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the types of parts by their full names."""
        return {self.prefix + part: dtype for part, dtype in parts.items()}


def quotient(dividend: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """Return a quotient of columns that does not depend on other rows.

    A retraction must equal the insertion. Polars multiplies with the rounded inverse of a column that it knows to have one value
    only, as one joined from frames of one row. The fields of a struct are both columns.
    """
    pairs = pl.struct(dividend.alias("dividend"), divisor.alias("divisor"))
    return pairs.struct.field("dividend") / pairs.struct.field("divisor")
