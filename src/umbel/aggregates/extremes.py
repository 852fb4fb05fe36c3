"""Min and Max: the smallest and the largest value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal as PythonDecimal
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.bag import ROW, Bag
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.point_states import Fold, Ints, PointStates, Spans
from umbel.errors import InvalidType
from umbel.state.values import Values
from umbel.types import dtypes
from umbel.types.dtype import Refused
from umbel.types.dtypes import DType, Optional
from umbel.types.schema import Schema

_NUMBERS = (int, float, np.integer, PythonDecimal)
_DEFAULTS: dict[type[DType], tuple[tuple[type, ...], tuple[type, ...]]] = {
    dtypes.Int: ((int, float, np.integer), (bool,)),
    dtypes.Float: (_NUMBERS, (bool,)),
    dtypes.Decimal: (_NUMBERS, (bool,)),
    dtypes.Date: ((date,), (datetime,)),
    dtypes.Datetime: ((datetime,), ()),
}
"""For each ordered type: the Python types allowed for a default, and the subclasses of these that are rejected."""

VALUES = Bag(("values",), "counts")
NEVER = 2**62


def _is_default(value: Any, plain: DType) -> bool:
    allowed, refused = _DEFAULTS.get(type(plain), ((), ()))
    if not isinstance(value, allowed) or isinstance(value, refused):
        return False
    try:
        _fitted(value, plain)
    except Refused:
        return False
    return True


def _fitted(value: Any, plain: DType) -> Any:
    """Return a default cast to the column's type."""
    if isinstance(plain, dtypes.Decimal):
        return plain.rounded(value)
    if not isinstance(plain, dtypes.Int | dtypes.Float):
        return value
    accepted = plain.accept(value)
    return value if isinstance(plain, dtypes.Float) and isinstance(value, int) else accepted


@dataclass(frozen=True, kw_only=True)
class Extreme(Aggregate):
    """Base class of Min and Max: the value at one end of the order.

    Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: the type of `of`, Optional when `default` is None. Where rows may be retracted, the state stores every value with its
    count until no retraction can come any more.
    """

    of: str
    default: Any = None
    smallest: ClassVar[bool]
    is_exact_retracted: ClassVar[bool] = True
    is_associative: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        dtype = self.input(schema)
        assert dtype is not None
        if type(dtype.plain) not in _DEFAULTS:
            raise self.type_error(dtype, "int, float, Decimal, date and datetime")
        if self.default is not None and not _is_default(self.default, dtype.plain):
            found = f"{self.default!r} ({type(self.default).__name__})"
            raise InvalidType(
                f"{self.title}: default {found} is not of type {dtype.plain} of field '{self.of}'",
                hint="give a default of the column's type, or none",
            )

    def fitted(self, schema: Schema) -> Self:
        base = schema.dtypes[self.of].base if self.of in schema.dtypes else None
        if self.default is None or base is None or not _is_default(self.default, base.plain):
            return self
        fitted = _fitted(self.default, base.plain)
        if base.ingest([fitted]).errors:  # not in `check`, which also reads what was committed before
            raise InvalidType(
                f"{self.title}: default {self.default!r} is outside the type {base} of field '{self.of}', which is the result's",
                hint=f"give a default of that type, or none, or assign the field as {base.plain} first",
            )
        return replace(self, default=fitted)

    def result_type(self, schema: Schema) -> DType:
        dtype = self.input(schema)
        assert dtype is not None
        return Optional(dtype.base) if self.default is None else dtype.base

    def state(self, state: Columns) -> dict[str, pl.DataType]:
        return VALUES.state(state.polars) if state.is_retractable else {"extreme": state.polars}

    def lift(self, state: Columns) -> Partial:
        if not state.is_retractable:
            return {"extreme": self._end(state.value)}
        return VALUES.lift({"values": state.value, "counts": WEIGHT}, state.value.is_not_null())

    def merge(self, state: Columns) -> Partial:
        return VALUES.merge(state) if state.is_retractable else {"extreme": self._end(state["extreme"])}

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        return VALUES.tidy(states, state) if state.is_retractable else states

    def settle(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        if not state.is_retractable:
            return states
        present = VALUES.rows(states, state).filter(pl.col("counts") > 0)
        ends = present.group_by(ROW, maintain_order=True).agg(self._end(pl.col("values")))
        return VALUES.put(states, state, ends.with_columns(pl.lit(1, pl.Int64).alias("counts")))

    def result(self, states: pl.DataFrame, state: Columns) -> pl.Expr | pl.Series:
        default = pl.lit(self.default, state.polars)
        if not state.is_retractable:
            return state["extreme"].fill_null(default)
        present = VALUES.rows(states, state).filter(pl.col("counts") > 0)
        ends = present.group_by(ROW).agg(self._end(pl.col("values")).alias("value"))
        found = VALUES.spread(ends, states.height)
        return found if self.default is None else found.fill_null(pl.select(default).item()).cast(state.polars)

    def folding(self, state: Columns) -> Fold:
        default = pl.Series([self.default], dtype=state.polars).item()
        if not state.is_retractable and state.polars in (pl.Int64, pl.Float64):
            name = state.name("extreme")
            return lambda states, _: [
                default if value is None else value for value in states.ends(name, smallest=self.smallest)
            ]
        none = NEVER if self.smallest else -1

        def fold(states: PointStates, _: Ints) -> list[Any]:
            different, codes, items = (
                VALUES.present(states, state) if state.is_retractable else _extremes(states, state)
            )
            if self.smallest:
                ends = items.least(codes, none)
            else:
                is_nan = state.polars.is_float() and different[-1] != different[-1]
                different[0] = different[-1]  # NaN is the largest value only if there is no other
                ends = items.largest(np.where(codes == len(different) - 1, 0, codes) if is_nan else codes, none)
            return [default if code == none else different[code] for code in ends.tolist()]

        return fold

    def _end(self, values: pl.Expr) -> pl.Expr:
        return values.min() if self.smallest else values.max()


@dataclass(frozen=True, kw_only=True)
class Min(Extreme):
    """The smallest value of `of`. Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: the type of `of`; Optional when `default` is None.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         least=Min(of="amount", default=0, window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  least  at
    ann   10     09:00
    bob   7      09:30
    ann   5      10:15
    """

    smallest: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Max(Extreme):
    """The largest value of `of`. Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: the type of `of`; Optional when `default` is None.

    >>> show(
    ...     lambda orders: orders.groupby("user").aggregate(
    ...         most=Max(of="amount", default=0, window=Continuous("forever"))
    ...     ),
    ...     Order,
    ... )
    user  most  at
    ann   10    09:00
    bob   7     09:30
    ann   10    10:15
    """

    smallest: ClassVar[bool] = False


def _extremes(states: PointStates, state: Columns) -> tuple[list[Any], Ints, Spans]:
    """Return the distinct extremes, and the code of each state with one.

    Returns:
        The distinct extremes in order, null first; the codes (positions in them) of the states that have one; the points these
        states belong to.
    """
    name = state.name("extreme")
    present = states.present(name)
    values = states.numbers(name)[present]
    different, codes = Values(values, np.zeros(len(values), np.bool_), state.polars).ranked()
    return different, codes, Spans(states.owners[present], states.size)
