"""Clip: a column within a limit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import polars as pl

from umbel.operators.columns import check_known
from umbel.operators.operator import RowWise
from umbel.types.schema import Schema


class Side(Enum):
    """The side on which values are cut off."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True)
class Limit:
    """A limit of values.

    Args:
        value: the limit.
        side: the values that it replaces.
    """

    value: float
    side: Side = Side.ABOVE


@dataclass(frozen=True, eq=False, kw_only=True)
class Clip(RowWise):
    """Replace the values of a column beyond a limit by the limit."""

    column: str
    limit: Limit

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_known((self.column,), rows.value_names, self.title)
        return rows

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        is_above = self.limit.side is Side.ABOVE
        bounds = {"upper_bound" if is_above else "lower_bound": self.limit.value}
        return rows.with_columns(pl.col(self.column).clip(**bounds))
