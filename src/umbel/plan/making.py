"""How columns are made of incoming ones: references, constants, expressions, functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from umbel.operators.computed import Columns, Computed
from umbel.types.dtype import nulls, spread
from umbel.types.dtypes import Checked, DType
from umbel.types.jsonvalues import revive
from umbel.types.raw import column_of


class Made(ABC):
    """How a column is made while rows come in."""

    @abstractmethod
    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        """Return the column, raw or stored, and the rows for which it could not be made.

        Args:
            frame: raw rows.
            dtype: the type the column is to have.
            known: the types of incoming columns, of those that have one.
        """


@dataclass(frozen=True, slots=True)
class Reference(Made):
    """A copy of another incoming column, or of a part of it.

    Args:
        path: the column, and the names below it in nested data.
    """

    path: tuple[str, ...]

    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        name, *inside = self.path
        if name not in frame.columns:
            return _absent(name, frame.height, dtype)
        found = _below(frame[name], inside).to_frame(name)  # read without a type: texts may stand for bytes, infinities
        return Checked(revive(found, {name: dtype}).get_column(name))


@dataclass(frozen=True, slots=True)
class Constant(Made):
    """The same value in every row."""

    value: Any

    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        return Checked(dtype.ingest([self.value]).values.new_from_index(0, frame.height))


@dataclass(frozen=True)
class Evaluated(Made):
    """A value computed from the incoming rows.

    Args:
        computed: how.
        reads: the incoming columns it needs that must have a type, with these types.
    """

    computed: Computed
    reads: tuple[tuple[str, DType], ...] = ()

    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        typed = {name: _taken_in(frame, name, each) for name, each in self.reads}
        faults = {row: f"column '{name}': {why}" for name, each in typed.items() for row, why in each.faults.items()}
        types = dict(self.reads)
        for name, each in known.items():
            checked = each.ingest(frame[name]) if name in frame.columns and name not in types else None
            if checked is not None and not checked.faults:
                typed[name], types[name] = checked, each
        rows = frame.with_columns(each.values.alias(name) for name, each in typed.items())
        return self._judged(rows, types, dtype, faults) if faults else self.computed.judged(rows, types, dtype)

    def _judged(self, rows: pl.DataFrame, types: Columns, dtype: DType, faults: Mapping[int, str]) -> Checked:
        """Compute the values of the rows that are not at fault."""
        good = np.setdiff1d(np.arange(rows.height), np.fromiter(faults, np.int64))
        checked = self.computed.judged(rows[good], types, dtype)
        lifted = {int(good[row]): why for row, why in checked.faults.items()}
        return Checked(spread(checked.values, good, rows.height), {**lifted, **faults})


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
