"""How columns are made of incoming ones: references, constants, expressions, functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import polars as pl

from umbel.plan.definitions import Constant, Evaluated, Reference
from umbel.types.dtype import nulls, spread
from umbel.types.dtypes import Checked, DType
from umbel.types.raw import column_of

Columns = Mapping[str, DType]


@singledispatch
def made(how: Any, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
    """Return a column made of a raw frame, and the rows for which it could not be.

    Args:
        how: a Reference, a Constant or an Evaluated.
        frame: raw rows.
        dtype: the type the column is to have.
        known: the types of incoming columns, of those that have one.
    """
    raise NotImplementedError(type(how).__name__)


@made.register
def _(how: Constant, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
    return Checked(dtype.ingest([how.value]).values.new_from_index(0, frame.height))


@made.register
def _(how: Reference, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
    column, *inside = how.path
    if column not in frame.columns:
        return _absent(column, frame.height, dtype)
    return Checked(_below(frame[column], inside))


@made.register
def evaluated(how: Evaluated, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
    """Return the values of an expression or function; see `made`."""
    typed = {name: _taken_in(frame, name, each) for name, each in how.reads}
    faults = {row: f"column '{name}': {why}" for name, each in typed.items() for row, why in each.faults.items()}
    types = dict(how.reads)
    for name, each in known.items():
        checked = each.ingest(frame[name]) if name in frame.columns and name not in types else None
        if checked is not None and not checked.faults:
            typed[name], types[name] = checked, each
    rows = frame.with_columns(each.values.alias(name) for name, each in typed.items())
    if not faults:
        return how.computed.judged(rows, types, dtype)
    good = np.setdiff1d(np.arange(frame.height), np.fromiter(faults, np.int64))
    checked = how.computed.judged(rows[good], types, dtype)
    lifted = {int(good[row]): why for row, why in checked.faults.items()}
    return Checked(spread(checked.values, good, frame.height), {**lifted, **faults})


def _taken_in(frame: pl.DataFrame, name: str, dtype: DType) -> Checked:
    return dtype.ingest(frame[name]) if name in frame.columns else _absent(name, frame.height, dtype)


def _absent(name: str, height: int, dtype: DType) -> Checked:
    return Checked(nulls(height, dtype.polars()), dict.fromkeys(range(height), f"column '{name}' is missing"))


def _below(column: pl.Series, names: Sequence[str]) -> pl.Series:
    """Return what lies at a path inside the values of a column; null where there is nothing."""
    for name in names:
        if isinstance(column.dtype, pl.Struct):
            has = name in column.struct.fields
            column = column.struct.field(name) if has else nulls(len(column), pl.Null())
        else:
            values = column.to_list()
            column = column_of("", [value.get(name) if isinstance(value, Mapping) else None for value in values])
    return column
