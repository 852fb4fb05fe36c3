"""Column builders of preproc: references, constants, expressions, functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from umbel.functions.computed import Columns, Computed
from umbel.types.dtype import nulls, scatter_rows
from umbel.types.dtypes import Checked, DType
from umbel.types.json_values import revive
from umbel.types.raw import Raw, column_of
from umbel.types.validate import MISSING

if TYPE_CHECKING:
    from umbel.definitions.records import DatasetDefinition, SourceDefinition


class Made(ABC):
    """The builder of a column from incoming rows."""

    @abstractmethod
    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        """Return the column, raw or stored, with the errors of failed rows.

        Args:
            frame: raw rows.
            dtype: the column's type.
            known: the types of the incoming columns with a type.
        """


class IncomingRows(ABC):
    """A maker of a source's rows from those that come in, before preproc."""

    @abstractmethod
    def made(self, raw: Raw, columns: Columns, keys: Sequence[str] = ()) -> tuple[Raw, pl.Series]:
        """Return the new rows, and the number of the incoming row of each.

        Args:
            raw: incoming rows, with the rejected ones.
            columns: the types of the columns of the new rows that have one.
            keys: the columns that a deletion must have; none where it has those of the whole row.
        """


@dataclass(frozen=True, slots=True)
class ReferenceColumn(Made):
    """A copy of another incoming column, or of a part of it.

    Args:
        path: the column, and the names below it in nested data.
    """

    path: tuple[str, ...]

    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        name, *inside = self.path
        if name not in frame.columns:
            return _absent(frame.height, dtype, f"column '{name}': {MISSING}")
        found = _below(frame[name], inside).to_frame(name)  # untyped: texts may encode bytes or infinities
        return Checked(revive(found, {name: dtype}).get_column(name))


@dataclass(frozen=True, slots=True)
class ConstantColumn(Made):
    """The same value in every row."""

    value: Any

    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        return Checked(dtype.ingest([self.value]).values.new_from_index(0, frame.height))


@dataclass(frozen=True)
class Evaluated(Made):
    """A value computed from the incoming rows.

    Args:
        computed: the expression or function.
        reads: the required incoming columns and their types.
    """

    computed: Computed
    reads: tuple[tuple[str, DType], ...] = ()

    def column(self, frame: pl.DataFrame, dtype: DType, known: Columns) -> Checked:
        typed = {name: _taken_in(frame, name, each) for name, each in self.reads}
        errors = {row: f"column '{name}': {why}" for name, each in typed.items() for row, why in each.errors.items()}
        types = dict(self.reads)
        for name, each in known.items():
            checked = each.ingest(frame[name]) if name in frame.columns and name not in types else None
            if checked is not None and not checked.errors:
                typed[name], types[name] = checked, each
        rows = frame.with_columns(each.values.alias(name) for name, each in typed.items())
        return self._judged(rows, types, dtype, errors) if errors else self.computed.judged(rows, types, dtype)

    def _judged(self, rows: pl.DataFrame, types: Columns, dtype: DType, errors: Mapping[int, str]) -> Checked:
        """Compute the values of the rows without errors."""
        good = np.setdiff1d(np.arange(rows.height), np.fromiter(errors, np.int64))
        checked = self.computed.judged(rows[good], types, dtype)
        lifted = {int(good[row]): why for row, why in checked.errors.items()}
        return Checked(scatter_rows(checked.values, good, rows.height), {**lifted, **errors})


def _taken_in(frame: pl.DataFrame, name: str, dtype: DType) -> Checked:
    return dtype.ingest(frame[name]) if name in frame.columns else _absent(frame.height, dtype, MISSING)


def _absent(height: int, dtype: DType, reason: str) -> Checked:
    return Checked(nulls(height, dtype.polars()), dict.fromkeys(range(height), reason))


def _below(column: pl.Series, names: Sequence[str]) -> pl.Series:
    """Return the values at a path inside nested data, null if absent."""
    for name in names:
        if isinstance(column.dtype, pl.Struct):
            has = name in column.struct.fields
            column = column.struct.field(name) if has else nulls(len(column), pl.Null())
        else:
            values = column.to_list()
            column = column_of("", [value.get(name) if isinstance(value, Mapping) else None for value in values])
    return column


class DeclaredColumns(Protocol):
    """The columns of a source as declared: preproc, where and sample."""

    def checked(self, source: SourceDefinition, dataset: DatasetDefinition) -> SourceDefinition:
        """Return the source with its columns, checked against its dataset.

        Raises:
            UmbelError: preproc, where or sample do not fit the dataset; the message names it and the field.
        """
