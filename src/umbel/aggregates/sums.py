"""Sum and Average: sums and means."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal as PythonDecimal
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates import nonfinite
from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.columns import WEIGHT, Columns, quotient
from umbel.aggregates.point_states import Array, Fold, Ints, PointStates
from umbel.errors import Terminal
from umbel.types.dtypes import DType, Float, Optional
from umbel.types.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Sum(Aggregate):
    """The sum of `of`.

    Nulls are skipped. Sums of integers and decimals are exact: they are stored with 38 digits. A result that does not fit the
    type of the column raises an error when it is queried, and is null in an emitted row; it is never a wrong number.

    Result: the type of `of`, never Optional. Empty window: 0.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         total=Sum(of="amount", window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  total  at
    ann   10     09:00
    bob   7      09:30
    ann   20     10:15
    """

    of: str
    numeric: ClassVar[bool] = True
    is_exact_retracted: ClassVar[bool] = True
    is_additive: ClassVar[bool] = True

    def result_type(self, schema: Schema) -> DType:
        dtype = self.input(schema)
        assert dtype is not None
        return dtype.plain

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        if not _is_float(state):
            return {"sum": _exact(state)}
        counted = {"count": pl.Int64(), **nonfinite.parts(state)} if state.is_retractable else {}
        return {"sum": pl.Float64(), **counted}

    def lift(self, state: Columns) -> Partial:
        total = _total(state)
        return {"sum": total, "count": _count(state), **nonfinite.lift(state)} if _counts(state) else {"sum": total}

    def merge(self, state: Columns) -> Partial:
        return {part: state[part].sum() for part in self.state(state)}

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        if _is_float(state):
            total = nonfinite.restored(state["sum"], state)
            return (pl.when(state["count"] == 0).then(0.0).otherwise(total) if _counts(state) else total).fill_null(0.0)
        return _fitted(states[state.name("sum")].fill_null(0), state, self)

    def emitted(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        if _is_float(state):
            return self.result(states, state)
        return states[state.name("sum")].fill_null(0).cast(state.polars, strict=False)

    def folding(self, state: Columns) -> Fold:
        total, count = state.name("sum"), state.name("count")
        if not _is_float(state):
            return lambda states, _: self._exactly(states.sums(total), state)
        if not _counts(state):
            return lambda states, _: states.sums(total).tolist()

        def fold(states: PointStates, _: Ints) -> list[Any]:
            sums = nonfinite.restored_points(states.sums(total), states, state)
            found: list[Any] = np.where(states.sums(count) == 0, 0.0, sums).tolist()
            return found

        return fold

    def _exactly(self, totals: Array, state: Columns) -> list[Any]:
        """Return sums, in units of their last digit, as values of the column's type."""
        if state.polars == pl.Int64 and totals.dtype == np.int64:
            found: list[Any] = totals.tolist()
            return found
        scale = getattr(state.polars, "scale", 0)
        exact = [PythonDecimal(f"{total}e-{scale}") for total in totals.tolist()]
        return _fitted(pl.Series(exact, dtype=_exact(state)), state, self).to_list()


@dataclass(frozen=True, kw_only=True)
class Average(Aggregate):
    """The mean of `of`.

    Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: float; Optional[float] when `default` is None.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         mean=Average(of="amount", window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  mean     at
    ann   10       09:00
    bob   7        09:30
    ann   6.66667  10:15
    """

    of: str
    default: float | None = 0.0
    numeric: ClassVar[bool] = True
    is_exact_retracted: ClassVar[bool] = True
    is_additive: ClassVar[bool] = True

    def result_type(self, schema: Schema) -> DType:
        return Optional(Float()) if self.default is None else Float()

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        total = pl.Float64() if _is_float(state) else _exact(state)
        return {"sum": total, "count": pl.Int64(), **nonfinite.parts(state)}

    def lift(self, state: Columns) -> Partial:
        return {"sum": _total(state), "count": _count(state), **nonfinite.lift(state)}

    def merge(self, state: Columns) -> Partial:
        return {part: state[part].sum() for part in self.state(state)}

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        mean = quotient(nonfinite.restored(state["sum"].cast(pl.Float64), state), state["count"])
        return pl.when(state["count"] > 0).then(mean).otherwise(pl.lit(self.default, pl.Float64))

    def folding(self, state: Columns) -> Fold:
        default = None if self.default is None else float(self.default)
        unit = 1 if _is_float(state) else 10 ** getattr(state.polars, "scale", 0)

        def fold(states: PointStates, _: Ints) -> list[Any]:
            counts = states.sums(state.name("count")).tolist()
            sums = nonfinite.restored_points(states.sums(state.name("sum")), states, state).tolist()
            return [total / unit / n if n > 0 else default for total, n in zip(sums, counts, strict=True)]

        return fold


def _is_float(state: Columns) -> bool:
    return state.polars.is_float()


def _counts(state: Columns) -> bool:
    """Return True if values are counted.

    Retractable float sums need the count, to be 0 again once all values are retracted.
    """
    return _is_float(state) and state.is_retractable


def _exact(state: Columns) -> pl.Decimal:
    return pl.Decimal(38, getattr(state.polars, "scale", 0))


def _total(state: Columns) -> pl.Expr:
    if _is_float(state):
        return (nonfinite.summable(state) * WEIGHT).sum()
    return (state.value.cast(_exact(state)) * WEIGHT).sum()


def _count(state: Columns) -> pl.Expr:
    return WEIGHT.filter(state.value.is_not_null()).sum()


def _fitted(sums: pl.Series, state: Columns, aggregate: Sum) -> pl.Series:
    """Return exact sums cast to the type of the column.

    Raises:
        Terminal: a sum does not fit the type.
    """
    fitted = sums.cast(state.polars, strict=False)
    if fitted.null_count() > sums.null_count():
        raise Terminal(
            f"{aggregate.title}: the sum of '{aggregate.of}' does not fit {state.dtype and state.dtype.plain}",
            hint="make the column a float, or sum over a shorter window",
        )
    return fitted
