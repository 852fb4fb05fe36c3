"""ExpDecaySum: exponentially decayed sums with a half-life."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates import nonfinite
from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.columns import FIRST, WEIGHT, Columns
from umbel.aggregates.point_states import SAFE, Array, Fold, Ints, PointStates
from umbel.errors import InvalidType, InvalidValue
from umbel.types.dtypes import DType, Float
from umbel.types.durations import parse_duration
from umbel.types.schema import Schema
from umbel.types.windows import SECOND

NOTHING = math.exp(-25)
"""A decayed sum below this threshold counts as 0."""
LEAST = 5e-324
"""The smallest share of a value that is left, for an infinite one: 0 of it would be NaN. Of others it is nothing."""


@dataclass(frozen=True, kw_only=True)
class ExpDecaySum(Aggregate):
    """The exponentially decayed sum of `of` at the queried instant.

    The sum of v·2^(−(T − t) / half_life), T being the queried instant and t that of the row, both in whole seconds. Nulls are
    skipped.

    Args:
        half_life: a duration like "1h".

    Result: float. Empty window: 0.0. The state stores the sums of the positive and of the negative values as of its newest
    second.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         recent=ExpDecaySum(of="amount", half_life="1h", window=Continuous("forever"))
    ...     ),
    ...     Order,
    ...     at="11:15",
    ... )
    user  recent   at
    ann   7.10224  10:15
    bob   2.08111  09:30
    """

    of: str
    half_life: str
    numeric: ClassVar[bool] = True
    needs_instant: ClassVar[bool] = True
    is_exact_retracted: ClassVar[bool] = True
    is_additive: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        Aggregate.check(self, schema)
        if self._half_life() <= 0:
            raise InvalidValue(
                f"{self.title}: half_life must be more than zero, found '{self.half_life}'", hint='half_life="1h"'
            )

    def result_type(self, schema: Schema) -> DType:
        return Float()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        counted = {"count": pl.Int64(), **nonfinite.parts(state)} if state.is_retractable else {}
        return {"second": pl.Int64(), "gain": pl.Float64(), "loss": pl.Float64(), **counted}

    def lift(self, state: Columns) -> Partial:
        second = FIRST // SECOND
        value = nonfinite.summable(state).cast(pl.Float64) * WEIGHT * self._share(second.max() - second)
        is_gain = state.value >= 0
        count = WEIGHT.filter(state.value.is_not_null()).sum()
        counted = {"count": count, **nonfinite.lift(state)} if state.is_retractable else {}
        return {
            "second": second.max(),
            "gain": value.filter(is_gain).sum(),
            "loss": -value.filter(~is_gain).sum(),
            **counted,
        }

    def merge(self, state: Columns) -> Partial:
        newest = state["second"].max()
        share = self._share(newest - state["second"])
        counted = {"count": state["count"].sum(), **nonfinite.merge(state)} if state.is_retractable else {}
        return {"second": newest, **{part: (state[part] * share).sum() for part in ("gain", "loss")}, **counted}

    def addends(self, states: pl.DataFrame, state: Columns, owners: Ints) -> pl.DataFrame:
        share = self._share(pl.lit(_newest(states, state, owners)) - state["second"])
        return states.with_columns(state[part] * share for part in ("gain", "loss"))

    def decay(self, states: pl.DataFrame, state: Columns, owners: Ints) -> Array | None:
        newest = pl.DataFrame({"owner": owners, "second": _newest(states, state, owners)})
        since = pl.col("second") - pl.col("second").shift(1).over("owner")
        return newest.select(self._share(since).fill_null(1.0)).to_series().to_numpy()

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        age = pl.col("_time").dt.epoch("us") // SECOND - state["second"]
        share = self._share(age)
        gain, loss = (state[part] * share for part in ("gain", "loss"))
        value = sum(pl.when(part < NOTHING).then(0.0).otherwise(part) * sign for part, sign in ((gain, 1), (loss, -1)))
        assert isinstance(value, pl.Expr)
        present = (state["count"] != 0) if state.is_retractable else pl.lit(value=True)
        return pl.when(present).then(nonfinite.restored(value, state)).otherwise(0.0).fill_null(0.0)

    def folding(self, state: Columns) -> Fold:
        def fold(states: PointStates, at: Ints) -> list[Any]:
            second = states[state.name("second")]
            newest = states.largest(second, -SAFE)
            within = np.maximum(np.exp((states.spread(newest) - second) * self._rate), LEAST)
            since = np.maximum(np.exp((at // SECOND - newest) * self._rate), LEAST)
            gain, loss = (states.summed(states[state.name(part)] * within) * since for part in ("gain", "loss"))
            value = np.where(gain < NOTHING, 0.0, gain) - np.where(loss < NOTHING, 0.0, loss)
            value = nonfinite.restored_points(value, states, state)
            if state.is_retractable:
                value[states.sums(state.name("count")) == 0] = 0.0
            found: list[Any] = value.tolist()
            return found

        return fold

    def _share(self, age: pl.Expr) -> pl.Expr:
        return (age * self._rate).exp().clip(lower_bound=LEAST)

    @property
    def _rate(self) -> float:
        return -math.log(2) * SECOND / self._half_life()

    def _half_life(self) -> int:
        try:
            return parse_duration(self.half_life)
        except (InvalidType, InvalidValue) as error:
            raise InvalidValue(f"{self.title}: failed to parse half_life: {error.message}", hint=error.hint) from error


def _newest(states: pl.DataFrame, state: Columns, owners: Ints) -> pl.Series:
    """Return the newest second of each state and those of its owner before it."""
    found = pl.DataFrame({"owner": owners, "second": states[state.name("second")]})
    return found.select(pl.col("second").cum_max().forward_fill().over("owner")).to_series()
