"""Stddev: the population standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates import nonfinite
from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.columns import WEIGHT, Columns, quotient
from umbel.aggregates.point_states import Fold, Ints, PointStates
from umbel.types.dtypes import DType, Float, Optional
from umbel.types.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Stddev(Aggregate):
    """The population standard deviation of `of`.

    Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: float; Optional[float] when `default` is None. One value: 0.0. With NaN or an infinity among the values: NaN. Decimals
    are counted in whole units of their scale, so that results exact in these units come out exact.

    The state stores, about a centre c of its own, the count n and the sums s of (v − c) and q of (v − c)². States are
    merged about their common mean (Chan, Golub and LeVeque 1979), which loses no digits to a large mean. They can also be
    subtracted; where they are, NaN and infinities are counted beside them. Retracting values much larger than the remaining
    ones costs digits: the variance is correct to 1e-9 of the squares of all values inserted.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         spread=Stddev(of="amount", window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  spread   at
    ann   0        09:00
    bob   0        09:30
    ann   2.35702  10:15
    """

    of: str
    default: float | None = -1.0
    numeric: ClassVar[bool] = True
    is_exact_retracted: ClassVar[bool] = True
    is_additive: ClassVar[bool] = True

    def result_type(self, schema: Schema) -> DType:
        return Optional(Float()) if self.default is None else Float()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        numbers = {"center": pl.Float64(), "sum": pl.Float64(), "squares": pl.Float64()}
        return {"count": pl.Int64(), **numbers, **nonfinite.parts(state)}

    def lift(self, state: Columns) -> Partial:
        value = nonfinite.summable(state)
        value = value.cast(pl.Float64) if _unit(state) == 1 else value.to_physical().cast(pl.Float64)
        center = value.mean()
        away = value - center
        return {
            "count": WEIGHT.filter(value.is_not_null()).sum(),
            "center": center.fill_null(0.0),
            "sum": (away * WEIGHT).sum(),
            "squares": (away * away * WEIGHT).sum(),
            **nonfinite.lift(state),
        }

    def merge(self, state: Columns) -> Partial:
        count, center = state["count"], state["center"]
        total = count.sum()
        common = (center * count + state["sum"]).sum() / total
        anywhere = center.filter(count != 0).first().fill_null(0.0)
        middle = pl.when(total > 0).then(common).otherwise(anywhere)
        shift = center - middle
        return {
            "count": total,
            "center": middle,
            "sum": (state["sum"] + count * shift).sum(),
            "squares": (state["squares"] + 2 * shift * state["sum"] + count * shift * shift).sum(),
            **nonfinite.merge(state),
        }

    def addends(self, states: pl.DataFrame, state: Columns, owners: Ints) -> pl.DataFrame:
        """Return states about the center of the first one that has values.

        Rounding errors are those of the squares about that center. It is the mean of some of the rows, so these squares exceed
        the ones about the common mean at most by the ratio of all rows to those of the first state. A state of as many rows
        retracted as inserted has a count of 0, and sums that are not: it is moved with the others.
        """
        names = [state.name(part) for part in ("count", "center", "sum", "squares")]
        count, center, away, squares = (states[name].to_numpy() for name in names)
        (rows,) = ((count != 0) | (away != 0) | (squares != 0)).nonzero()
        found = {name: np.zeros(len(states)) for name in names[1:]}
        if len(rows):
            count, center, away, squares = (each[rows] for each in (count, center, away, squares))
            mine = owners[rows]
            order = np.lexsort((count == 0, mine))
            (firsts,) = np.diff(mine, prepend=mine[0] - 1).nonzero()
            bases = order[firsts]
            shift = center - center[bases][np.searchsorted(mine[firsts], mine)]
            found[names[1]][rows[firsts]] = center[bases]
            found[names[2]][rows] = away + count * shift
            found[names[3]][rows] = squares + 2 * shift * away + count * shift * shift
        return states.with_columns(pl.Series(name, values) for name, values in found.items())

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        count = state["count"]
        variance = quotient(state["squares"] - quotient(state["sum"] * state["sum"], count), count)
        alone = state["center"] - state["center"]  # 0.0, and NaN if it is no finite number
        deviation = quotient(variance.clip(lower_bound=0.0).sqrt(), count * 0.0 + float(_unit(state)))
        spread = pl.when(count > 1).then(deviation).otherwise(alone)
        found = pl.when(count > 0).then(spread).otherwise(pl.lit(self.default, pl.Float64))
        return nonfinite.spoiled(found, state)

    def folding(self, state: Columns) -> Fold:
        default = None if self.default is None else float(self.default)

        def fold(states: PointStates, _: Ints) -> list[Any]:
            count, center, away, squares = (states[state.name(part)] for part in ("count", "center", "sum", "squares"))
            total = states.summed(count)
            middle = states.summed(center * count + away) / total
            shift = center - states.spread(middle)
            sums = states.summed(away + count * shift)
            squared = states.summed(squares + 2 * shift * away + count * shift * shift)
            spread = np.sqrt(np.maximum((squared - sums * sums / total) / total, 0.0)) / _unit(state)
            spread = np.where(total == 1, middle - middle, spread)  # 0.0, and NaN if it is no finite number
            odd = nonfinite.restored_points(np.zeros_like(spread), states, state)
            found = zip(spread.tolist(), total.tolist(), odd.tolist(), strict=True)
            return [nan if is_odd else value if n > 0 else default for value, n, is_odd in found]

        return fold


def _unit(state: Columns) -> int:
    """Return the number of scale units in 1 for a Decimal; 1 for other numbers."""
    return int(10 ** getattr(state.polars, "scale", 0))
