"""Count: the number of rows, or of distinct values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.aggregates import hyperloglog
from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.hashing import hash64
from umbel.aggregates.point_states import Fold
from umbel.errors import InvalidType, InvalidValue
from umbel.types.dtypes import DType, Int
from umbel.types.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Count(Aggregate):
    """The number of rows, or of distinct values of `of`.

    Args:
        of: the counted column; required for `unique` and `dropnull`.
        unique: count distinct values: exactly up to 2048 of them, by a HyperLogLog sketch (standard error 0.8 %) beyond. Null is
            a value.
        approx: must be True when `unique` is.
        dropnull: skip nulls.

    Result: int. Empty window: 0.

    >>> show(lambda orders: orders.groupby("user").aggregate(orders=Count(window=Continuous("forever"))), Order)
    user  orders  at
    ann   1       09:00
    bob   1       09:30
    ann   3       10:15
    """

    of: str | None = None
    unique: bool = False
    approx: bool = False
    dropnull: bool = False
    is_exact_retracted: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        if self.unique and not self.approx:
            hint = "Count(of=…, unique=True, approx=True)"
            raise InvalidValue(f"{self.title}: exact unique not supported", hint=hint)
        if self.unique and self.of is None:
            raise InvalidValue(
                f"{self.title}: unique counts need `of`", hint='Count(of="column", unique=True, approx=True)'
            )
        dtype = self.input(schema)
        if self.unique and dtype is not None and not dtype.is_hashable:
            raise InvalidType(
                f"{self.title}: field '{self.of}' has type {dtype}, which is not hashable",
                hint="assign a text or number of it first",
            )
        self.check_dropnull(schema)

    def result_type(self, schema: Schema) -> DType:
        return Int()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        if self.unique:
            return hyperloglog.state(state)
        return {"count": pl.Int64()} if self.dropnull else {}

    def lift(self, state: Columns) -> Partial:
        if self.unique:
            hashes = state.value.map_batches(hash64, return_dtype=pl.UInt64, is_elementwise=True)
            return hyperloglog.lift(hashes, state.value.is_not_null() if self.dropnull else None, state)
        return {"count": WEIGHT.filter(state.value.is_not_null()).sum()} if self.dropnull else {}

    def merge(self, state: Columns) -> Partial:
        if self.unique:
            return hyperloglog.merge(state)
        return {"count": state["count"].sum()} if self.dropnull else {}

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        return hyperloglog.tidy(states, state) if self.unique else states

    def settle(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        return hyperloglog.settle(states, state) if self.unique else states

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        if self.unique:
            return hyperloglog.estimate(states, state)
        return state["count"].fill_null(0) if self.dropnull else WEIGHT

    def folding(self, state: Columns) -> Fold:
        if self.unique:
            return hyperloglog.folding(state)
        name = state.name("count") if self.dropnull else "_weight"
        return lambda states, _: states.sums(name).tolist()
