"""Distinct: the distinct values of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.bag import ROW, Bag
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.point_states import Fold, Ints, PointStates, Spans, counted
from umbel.errors import InvalidType, InvalidValue
from umbel.types.dtypes import DType, List
from umbel.types.schema import Schema

VALUES = Bag(("values",), "counts")


@dataclass(frozen=True, kw_only=True)
class Distinct(Aggregate):
    """The distinct values of `of`, in no particular order.

    Null is a value unless `dropnull`.

    Args:
        unordered: must be True.
        dropnull: skip nulls.

    Result: List of the type of `of`. Empty window: [].

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         amounts=Distinct(of="amount", unordered=True, window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  amounts  at
    ann   [10]     09:00
    bob   [7]      09:30
    ann   [5, 10]  10:15
    """

    of: str
    unordered: bool
    dropnull: bool = False
    is_exact_retracted: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        dtype = self.input(schema)
        assert dtype is not None
        if not self.unordered:
            raise InvalidValue(f"{self.title}: ordered distinct values are not supported", hint="unordered=True")
        if not dtype.is_hashable:
            raise InvalidType(
                f"{self.title}: field '{self.of}' has type {dtype}, which is not hashable",
                hint="assign a text or number of it first",
            )
        self.check_dropnull(schema)

    def result_type(self, schema: Schema) -> DType:
        dtype = self.input(schema)
        assert dtype is not None
        return List(dtype.base if self.dropnull else dtype)

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        return VALUES.state(state.polars) if state.is_retractable else {"values": pl.List(state.polars)}

    def lift(self, state: Columns) -> Partial:
        retained = state.value.is_not_null() if self.dropnull else None
        if state.is_retractable:
            return VALUES.lift({"values": state.value, "counts": WEIGHT}, retained)
        return {"values": (state.value if retained is None else state.value.filter(retained)).unique().sort()}

    def merge(self, state: Columns) -> Partial:
        if state.is_retractable:
            return VALUES.merge(state)
        return {"values": state["values"].explode(keep_nulls=False).unique().sort()}

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        return VALUES.tidy(states, state) if state.is_retractable else states

    def settle(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        if not state.is_retractable:
            return states
        present = VALUES.rows(states, state).filter(pl.col("counts") > 0)
        return VALUES.put(states, state, present.with_columns(pl.lit(1, pl.Int64).alias("counts")))

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        if not state.is_retractable:
            return state["values"].fill_null([])
        present = VALUES.rows(states, state).filter(pl.col("counts") > 0)
        return VALUES.spread(present.group_by(ROW, maintain_order=True).agg("values"), states.height)

    def folding(self, state: Columns) -> Fold | None:
        if state.polars.is_nested():
            return None

        def fold(states: PointStates, _: Ints) -> list[Any]:
            different, codes, items = (
                VALUES.present(states, state) if state.is_retractable else _inserted(states, state)
            )
            return [[different[code] for code in part.tolist()] for part in items.parts(codes)]

        return fold


def _inserted(states: PointStates, state: Columns) -> tuple[list[Any], Ints, Spans]:
    """Return the result of `Bag.present` for states without counts."""
    items = states.items(state.name("values"))
    different, codes = items.values[0].ranked()
    firsts, _ = counted((items.owners, codes), codes)
    return different, codes[firsts], Spans(items.owners[firsts], items.size)
