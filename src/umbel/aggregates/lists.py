"""LastK and FirstK: the newest or the oldest values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.bag import ROW, Bag
from umbel.aggregates.columns import FIRST, WEIGHT, Columns
from umbel.aggregates.point_states import Fold, Ints, PointStates, Spans, counted
from umbel.errors import InvalidType, InvalidValue, UmbelError
from umbel.types.dtypes import DType, List
from umbel.types.numeric import INT_MAX
from umbel.types.schema import Schema

ITEMS = Bag(("times", "seqs", "values"), "counts")


@dataclass(frozen=True, kw_only=True)
class Recent(Aggregate):
    """Base class of LastK and FirstK: the values at one end of time.

    Args:
        limit: the maximum number of values.
        dedup: include each value once.
        dropnull: skip nulls.
    """

    of: str
    limit: int
    dedup: bool
    dropnull: bool = False
    newest: ClassVar[bool]
    dropnull_error: ClassVar[type[UmbelError]] = InvalidValue
    is_exact_retracted: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        self.input(schema)
        if not 1 <= self.limit <= INT_MAX:
            raise InvalidValue(f"{self.title}: limit must be from 1 to {INT_MAX}, found {self.limit}", hint="limit=10")
        self.check_dropnull(schema, self.dropnull_error)

    def result_type(self, schema: Schema) -> DType:
        dtype = self.input(schema)
        assert dtype is not None
        return List(dtype.base if self.dropnull else dtype)

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        return ITEMS.state(pl.Int64(), pl.Int64(), state.polars)

    def lift(self, state: Columns) -> Partial:
        parts = {"times": FIRST, "seqs": pl.col("_seq"), "values": state.value, "counts": WEIGHT}
        return ITEMS.lift(parts, state.value.is_not_null() if self.dropnull else None)

    def merge(self, state: Columns) -> Partial:
        return ITEMS.merge(state)

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        rows = ITEMS.summed(ITEMS.rows(states, state))
        return ITEMS.put(states, state, rows if state.is_retractable else self._chosen(rows))

    def settle(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        return ITEMS.put(states, state, self._chosen(ITEMS.rows(states, state))) if state.is_retractable else states

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        rows = self._chosen(ITEMS.rows(states, state))
        each = rows.select(ROW, pl.col("values").repeat_by("counts")).explode("values")
        lists = each.group_by(ROW, maintain_order=True).agg("values")
        found = ITEMS.spread(lists, states.height)
        return found.list.reverse() if self.newest else found

    def folding(self, state: Columns) -> Fold | None:
        if state.polars.is_nested():
            return None

        def fold(states: PointStates, _: Ints) -> list[Any]:
            items = states.items(*map(state.name, ITEMS.parts))
            times, seqs, values, counts = items.values
            different, codes = values.ranked()
            firsts, sums = counted((items.owners, times.stored, seqs.stored, codes), counts.stored)
            is_there = sums > 0
            firsts, times_each = firsts[is_there], np.minimum(sums[is_there], self.limit)
            if self.dedup:
                firsts = firsts[self._once(items.owners[firsts], codes[firsts])]
                times_each = np.ones_like(firsts)
            owners, found = np.repeat(items.owners[firsts], times_each), np.repeat(codes[firsts], times_each)
            parts = Spans(owners, states.size).parts(found)
            ends = (part[: -self.limit - 1 : -1] if self.newest else part[: self.limit] for part in parts)
            return [[different[code] for code in end.tolist()] for end in ends]

        return fold

    def _once(self, owners: Ints, codes: Ints) -> Ints:
        """Return the positions of the last, or first, occurrence of each value per point.

        The items are in order of time.
        """
        positions = np.arange(len(codes))
        chosen, _ = counted((owners, codes, -positions if self.newest else positions), positions)
        begins = np.ones(len(chosen), np.bool_)
        begins[1:] = (np.diff(owners[chosen]) != 0) | (np.diff(codes[chosen]) != 0)
        return np.sort(chosen[begins])

    def _chosen(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the items of the result, of items in order of time, in that order."""
        rows = rows.filter(pl.col("counts") > 0)
        if self.dedup:
            rows = rows.unique([ROW, "values"], keep="last" if self.newest else "first", maintain_order=True)
            rows = rows.with_columns(pl.lit(1, pl.Int64).alias("counts"))
        before = pl.col("counts").cum_sum(reverse=self.newest).over(ROW) - pl.col("counts")
        left = (self.limit - before).clip(lower_bound=0)
        return rows.with_columns(pl.min_horizontal("counts", left)).filter(pl.col("counts") > 0)


@dataclass(frozen=True, kw_only=True)
class LastK(Recent):
    """The last values of `of`, newest first.

    Nulls are included unless `dropnull`.

    Args:
        limit: the maximum number of values.
        dedup: include each value once, at its last occurrence.
        dropnull: skip nulls.

    Result: List of the type of `of`. Empty window: [].

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         last=LastK(of="amount", limit=2, dedup=False, window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  last    at
    ann   [10]    09:00
    bob   [7]     09:30
    ann   [5, 5]  10:15
    """

    newest: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class FirstK(Recent):
    """The first values of `of`, oldest first.

    Nulls are included unless `dropnull`.

    Args:
        limit: the maximum number of values.
        dedup: include each value once, at its first occurrence.
        dropnull: skip nulls.

    Result: List of the type of `of`. Empty window: [].

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         first=FirstK(of="amount", limit=1, dedup=False, dropnull=False, window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  first  at
    ann   [10]   09:00
    bob   [7]    09:30
    ann   [10]   10:15
    """

    dropnull: bool = field()
    newest: ClassVar[bool] = False
    dropnull_error: ClassVar[type[UmbelError]] = InvalidType
