"""Assign: new or replaced value columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidType, InvalidValue, all_faults
from umbel.operators.computed import Columns, Computed, blamed, inferred
from umbel.operators.operator import RowWise
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

_TYPES = "mend the type or the expression; fill nulls with .fillnull(...)"


@dataclass(frozen=True, slots=True)
class Assigned:
    """One column: its name, its declared type and how it is computed."""

    name: str
    dtype: DType
    computed: Computed


@dataclass(frozen=True, eq=False, kw_only=True)
class Assign(RowWise):
    """Compute value columns, all of them from the input's columns."""

    columns: tuple[Assigned, ...]

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        for column in self.columns:
            self._check_place(column.name, rows)
        error = all_faults(
            self._faults(rows.dtypes), InvalidType, f"{self.title}: found types that do not match", hint=_TYPES
        )
        if error:
            raise error
        return rows.with_values({**dict(rows.values), **{column.name: column.dtype for column in self.columns}})

    def _check_place(self, name: str, rows: Schema) -> None:
        role = "the timestamp" if name == rows.timestamp else "a key" if name in rows.key_names else ""
        if role:
            raise InvalidValue(
                f"{self.title}: column '{name}' is {role} and cannot be assigned",
                hint="choose another name; rename changes keys and the timestamp",
            )

    def _faults(self, columns: Columns) -> Iterator[str]:
        for column in self.columns:
            found = inferred(column.computed, columns, f"{self.title}: column '{column.name}'")
            if found is not None and not column.computed.fits(found, column.dtype):
                yield f"column '{column.name}': expected {column.dtype}, found {found} for {column.computed.title}"

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        before = self.parents[0].schema.dtypes
        return rows.with_columns(self._values(column, rows, before) for column in self.columns)

    def _values(self, column: Assigned, rows: pl.DataFrame, columns: Columns) -> pl.Series:
        with blamed(f"assign node for column {column.name} for pipeline {self.pipeline}"):
            return column.computed.values(rows, columns, column.dtype).alias(column.name)
