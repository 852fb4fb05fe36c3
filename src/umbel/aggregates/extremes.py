"""The smallest and the largest value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal as PythonDecimal
from typing import Any, ClassVar

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate, Partial
from umbel.aggregates.bag import ROW, Bag
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.held import Fold, Held, Ints, Spans
from umbel.errors import InvalidType
from umbel.state.records import Values
from umbel.types import dtypes
from umbel.types.dtypes import DType, Optional
from umbel.types.schema import Schema

_DEFAULTS: dict[type[DType], tuple[tuple[type, ...], tuple[type, ...]]] = {
    dtypes.Int: ((int,), (bool,)),
    dtypes.Float: ((int, float), (bool,)),
    dtypes.Decimal: ((PythonDecimal,), ()),
    dtypes.Date: ((date,), (datetime,)),
    dtypes.Datetime: ((datetime,), ()),
}
"""For each type that has an order: the Python types a default may have, and those of their subclasses it may not."""

VALUES = Bag(("values",), "counts")
NEVER = 2**62


@dataclass(frozen=True, kw_only=True)
class Extreme(Aggregate):
    """What Min and Max share: the value at one end of the order. Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: the type of `of`, Optional when `default` is None. Where rows may be taken back, the state keeps every value with its
    count until that is over.
    """

    of: str
    default: Any = None
    smallest: ClassVar[bool]

    def check(self, schema: Schema) -> None:
        dtype = self.input(schema)
        assert dtype is not None
        taken = _DEFAULTS.get(type(dtype.plain))
        if taken is None:
            raise self.type_error(dtype, "int, float, Decimal, date and datetime")
        allowed, refused = taken
        if self.default is not None and (not isinstance(self.default, allowed) or isinstance(self.default, refused)):
            found = f"{self.default!r} ({type(self.default).__name__})"
            raise InvalidType(
                f"{self.title}: default {found} is not of type {dtype.plain} of field '{self.of}'",
                hint="give a default of the column's type, or none",
            )

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
            return lambda held, _: [
                default if value is None else value for value in held.ends(name, smallest=self.smallest)
            ]
        none = NEVER if self.smallest else -1

        def fold(held: Held, _: Ints) -> list[Any]:
            different, codes, items = VALUES.present(held, state) if state.is_retractable else _extremes(held, state)
            if self.smallest:
                ends = items.least(codes, none)
            else:
                is_nan = state.polars.is_float() and different[-1] != different[-1]
                different[0] = different[-1]  # NaN is the largest value only where there is nothing else
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
    """

    smallest: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Max(Extreme):
    """The largest value of `of`. Nulls are skipped.

    Args:
        default: the value of an empty window.

    Result: the type of `of`; Optional when `default` is None.
    """

    smallest: ClassVar[bool] = False


def _extremes(held: Held, state: Columns) -> tuple[list[Any], Ints, Spans]:
    """Return the different extremes in order, null first, and which of them each state with one has."""
    name = state.name("extreme")
    present = held.present(name)
    values = held.numbers(name)[present]
    different, codes = Values(values, np.zeros(len(values), np.bool_), state.polars).ranked()
    return different, codes, Spans(held.owners[present], held.size)
