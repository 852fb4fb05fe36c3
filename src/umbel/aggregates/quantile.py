"""Quantiles: exact over a small number of distinct values, within 1 % beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.bag import ROW, Bag
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.point_states import Array, Fold, Ints, PointStates, Spans, counted
from umbel.errors import InvalidValue
from umbel.types.dtypes import DType, Float, Optional
from umbel.types.schema import Schema

EXACT = 256
"""The number of distinct values up to which a state is exact."""
ERROR = 0.0099
WIDTH = math.log((1 + ERROR) / (1 - ERROR))

VALUES = Bag(("values",), "counts")


@dataclass(frozen=True, kw_only=True)
class Quantile(Aggregate):
    """The `p`-quantile of the values of `of`.

    It is the value at position floor(p·n) of n sorted values. Nulls are skipped.

    Args:
        p: between 0 and 1.
        default: the value of an empty window.
        approx: must be True.

    Result: Optional[float]; float when `default` is set. Up to 256 distinct values the result is exact. Beyond, values are
    rounded to buckets whose bounds grow by 2 % (DDSketch: Masson, Rim and Lee 2019): an error of at most 1 %, for any data.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         median=Quantile(of="amount", p=0.5, approx=True, window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  median  at
    ann   10      09:00
    bob   7       09:30
    ann   5       10:15
    """

    of: str
    p: float
    default: float | None = None
    approx: bool = False
    numeric: ClassVar[bool] = True

    @property
    def algebra(self) -> Aggregate:
        return Quantile(of=self.of, p=0.5, approx=True)

    def check(self, schema: Schema) -> None:
        Aggregate.check(self, schema)
        if not self.approx:
            raise InvalidValue(f"{self.title}: exact quantiles are not supported", hint="Quantile(…, approx=True)")
        if not 0 <= self.p <= 1:
            raise InvalidValue(f"{self.title}: p must be between 0 and 1, found {self.p}", hint="p=0.5 is the median")

    def result_type(self, schema: Schema) -> DType:
        return Optional(Float()) if self.default is None else Float()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        return {**VALUES.state(pl.Float64()), "is_rounded": pl.Boolean()}

    def lift(self, state: Columns) -> Partial:
        value = state.value.cast(pl.Float64)
        return {
            **VALUES.lift({"values": value, "counts": WEIGHT}, value.is_not_null()),
            "is_rounded": pl.lit(value=False),
        }

    def merge(self, state: Columns) -> Partial:
        return {**VALUES.merge(state), "is_rounded": state["is_rounded"].any()}

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        rounded = states[state.name("is_rounded")].fill_null(value=False)
        rows = VALUES.summed(_in_buckets(VALUES.rows(states, state), rounded))
        many = ~rounded & (VALUES.spread(rows.group_by(ROW).len(), states.height).fill_null(0) > EXACT)
        if many.any():
            rows, rounded = VALUES.summed(_in_buckets(rows, many)), rounded | many
        return VALUES.put(states, state, rows).with_columns(rounded.alias(state.name("is_rounded")))

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        rows = VALUES.rows(states, state).filter(pl.col("counts") > 0)
        total = pl.col("counts").sum().over(ROW)
        index = pl.min_horizontal((self.p * total).floor().cast(pl.Int64), total - 1)
        reached = rows.filter(pl.col("counts").cum_sum().over(ROW) > index)
        found = VALUES.spread(
            reached.unique(ROW, keep="first", maintain_order=True).select(ROW, "values"), states.height
        )
        return found if self.default is None else found.fill_null(float(self.default))

    def folding(self, state: Columns) -> Fold:
        default = None if self.default is None else float(self.default)

        def fold(states: PointStates, _: Ints) -> list[Any]:
            values, counts, items = _sorted(states, state)
            spans = Spans(items[counts > 0], states.size)
            values, running = values[counts > 0], counts[counts > 0].cumsum()
            total = spans.summed(counts[counts > 0])
            index = np.minimum(np.floor(self.p * total).astype(np.int64), total - 1)
            before = np.concatenate(([0], running))[spans.bounds[:-1]]
            positions = running.searchsorted(before + index, "right").tolist()
            return [
                values.item(position) if n else default for position, n in zip(positions, total.tolist(), strict=True)
            ]

        return fold


def _sorted(states: PointStates, state: Columns) -> tuple[Array, Array, Ints]:
    """Return the distinct values of each point in order, their counts and their points."""
    items = states.items(*map(state.name, VALUES.parts))
    values, counts = items.values[0].stored, items.values[1].stored
    firsts, sums = counted((items.owners, _codes(values)), counts)
    owners = items.owners[firsts[sums != 0]]
    rounded = states.summed(states[state.name("is_rounded")].astype(np.int64)) > 0
    rounded |= Spans(owners, states.size).summed(np.ones(len(owners), np.int64)) > EXACT
    if rounded.any():
        buckets = pl.select(_bucket(pl.lit(pl.Series(np.ascontiguousarray(values))))).to_series().to_numpy()
        values = np.where(rounded[items.owners], buckets, values)
        firsts, sums = counted((items.owners, _codes(values)), counts)
    return values[firsts], sums, items.owners[firsts]


def _in_buckets(rows: pl.DataFrame, rounded: pl.Series) -> pl.DataFrame:
    """Return items with the values of some states rounded to buckets."""
    if not rounded.any():
        return rows
    chosen = rounded.gather(rows[ROW])
    return rows.with_columns(
        pl.when(chosen).then(_bucket(pl.col("values"))).otherwise(pl.col("values")).alias("values")
    )


def _codes(values: Array) -> Ints:
    """Return integers with the same order as the values, NaN last."""
    codes: Ints = np.unique(values, return_inverse=True)[1].reshape(-1)
    return codes


def _bucket(value: pl.Expr) -> pl.Expr:
    """Return the representative value of a value's bucket.

    It is the same for all values of the bucket, the representative included.
    """
    size = value.abs()
    number = (size.log() / WIDTH).ceil()
    middle = (number * WIDTH).exp() * (1 - ERROR)
    return pl.when((size == 0) | size.is_infinite() | size.is_nan()).then(value).otherwise(value.sign() * middle)
