"""Standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.held import Fold, Held, Ints
from umbel.types.dtypes import DType, Float, Optional
from umbel.types.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Stddev(Aggregate):
    """The population standard deviation of `of`. Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: float; Optional[float] when `default` is None. One value: 0.0.

    The state holds, about a centre c of its own, the count n and the sums s of (v − c) and q of (v − c)². States are
    merged about their common mean (Chan, Golub and LeVeque 1979), which loses no digits to a large mean; they can be
    subtracted, too. Taking back values much larger than what stays costs digits: the variance is right to 1e-9 of the
    squares that were there.
    """

    of: str
    default: float | None = -1.0
    numeric: ClassVar[bool] = True
    origins: ClassVar[tuple[str, ...]] = ("center",)

    def result_type(self, schema: Schema) -> DType:
        return Optional(Float()) if self.default is None else Float()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        return {"count": pl.Int64(), "center": pl.Float64(), "sum": pl.Float64(), "squares": pl.Float64()}

    def lift(self, state: Columns) -> Partial:
        value = state.value.cast(pl.Float64)
        center = value.mean()
        away = value - center
        return {
            "count": WEIGHT.filter(value.is_not_null()).sum(),
            "center": center.fill_null(0.0),
            "sum": (away * WEIGHT).sum(),
            "squares": (away * away * WEIGHT).sum(),
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
        }

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        count = state["count"]
        variance = (state["squares"] - state["sum"] * state["sum"] / count) / count
        spread = pl.when(count > 1).then(variance.clip(lower_bound=0.0).sqrt()).otherwise(0.0)
        return pl.when(count > 0).then(spread).otherwise(pl.lit(self.default, pl.Float64))

    def folding(self, state: Columns) -> Fold:
        default = None if self.default is None else float(self.default)

        def fold(held: Held, _: Ints) -> list[Any]:
            count, center, away, squares = (held[state.name(part)] for part in ("count", "center", "sum", "squares"))
            total = held.summed(count)
            shift = center - held.spread(held.summed(center * count + away) / total)
            sums = held.summed(away + count * shift)
            squared = held.summed(squares + 2 * shift * away + count * shift * shift)
            spread = np.sqrt(np.maximum((squared - sums * sums / total) / total, 0.0))
            spread[total == 1] = 0.0
            found = zip(spread.tolist(), total.tolist(), strict=True)
            return [value if n > 0 else default for value, n in found]

        return fold
