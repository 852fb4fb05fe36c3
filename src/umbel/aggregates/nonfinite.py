"""NaN and infinities in float sums from which rows may be retracted.

A sum that has absorbed one of them cannot be subtracted from any more. So they are left out of such sums and counted: `high` has
the NaN and +inf among the values, `low` the NaN and −inf. Both together make NaN, as +inf − inf does.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Partial
from umbel.aggregates.columns import WEIGHT, Columns
from umbel.aggregates.point_states import Array, PointStates

INFINITY = float("inf")


def are_counted(state: Columns) -> bool:
    """Return True if the values may be non-finite and may be retracted."""
    return state.is_retractable and state.polars.is_float()


def parts(state: Columns) -> dict[str, pl.DataType]:
    """Return the columns of the counts."""
    return {"high": pl.Int64(), "low": pl.Int64()} if are_counted(state) else {}


def summable(state: Columns) -> pl.Expr:
    """Return the values of rows as numbers; null where they are counted instead."""
    return pl.when(state.value.is_finite()).then(state.value) if are_counted(state) else state.value


def lift(state: Columns) -> Partial:
    """Return the counts of a group of rows."""
    if not are_counted(state):
        return {}
    value = state.value
    return {
        "high": pl.when(value.is_nan() | (value == INFINITY)).then(WEIGHT).sum(),
        "low": pl.when(value.is_nan() | (value == -INFINITY)).then(WEIGHT).sum(),
    }


def merge(state: Columns) -> Partial:
    """Return the counts of a group of states."""
    return {part: state[part].sum() for part in parts(state)}


def restored(value: pl.Expr, state: Columns) -> pl.Expr:
    """Return a sum of summable values as that of all values."""
    if not are_counted(state):
        return value
    high, low = state["high"] > 0, state["low"] > 0
    odd = pl.when(high & low).then(float("nan")).when(high).then(INFINITY).otherwise(-INFINITY)
    return pl.when(high | low).then(odd).otherwise(value)


def spoiled(value: pl.Expr, state: Columns) -> pl.Expr:
    """Return a value of summable values, or NaN where others are counted."""
    if not are_counted(state):
        return value
    return pl.when((state["high"] > 0) | (state["low"] > 0)).then(float("nan")).otherwise(value)


def restored_points(values: Array, states: PointStates, state: Columns) -> Array:
    """Return the sums of summable values of points as those of all values."""
    if not are_counted(state):
        return values
    high, low = (states.sums(state.name(part)) > 0 for part in parts(state))
    if not (np.count_nonzero(high) or np.count_nonzero(low)):
        return values
    odd = np.where(high & low, np.nan, np.where(high, INFINITY, -INFINITY))
    found: Array = np.where(high | low, odd, values)
    return found
