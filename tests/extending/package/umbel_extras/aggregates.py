"""SumOfSquares: the sum of the squares of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.types.dtypes import DType, Float
from umbel.types.schema import Schema


@dataclass(frozen=True, kw_only=True)
class SumOfSquares(Aggregate):
    """The sum of the squares of `of`; 0.0 for an empty window."""

    of: str
    numeric: ClassVar[bool] = True

    def result_type(self, schema: Schema) -> DType:
        return Float()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        return {"squares": pl.Float64()}

    def lift(self, state: Columns) -> Partial:
        value = state.value.cast(pl.Float64)
        return {"squares": (value * value * WEIGHT).sum()}

    def merge(self, state: Columns) -> Partial:
        return {"squares": state["squares"].sum()}

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr:
        return state["squares"].fill_null(0.0)
