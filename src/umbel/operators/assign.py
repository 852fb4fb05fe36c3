"""Assign: new or replaced value columns."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidType, InvalidValue, raise_all
from umbel.functions.computed import Columns, Computed, blamed, inferred
from umbel.functions.user_function import UserFunction
from umbel.operators.operator import Partition, RowWise
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

_TYPES = "mend the type or the expression; fill nulls with .fillnull(...)"


@dataclass(frozen=True, slots=True)
class Assigned:
    """One assigned column: its name, declared type and computation."""

    name: str
    dtype: DType
    computed: Computed


@dataclass(frozen=True, eq=False, kw_only=True)
class Assign(RowWise):
    """Compute value columns, all of them from the input's columns.

    >>> show(lambda orders: orders.assign(double=(col("amount") * 2).astype(int)), Order)
    user  amount  coupon  double  at
    ann   10      1       20      09:00
    bob   7       None    14      09:30
    ann   5       None    10      10:15
    ann   5       None    10      10:15
    """

    columns: tuple[Assigned, ...]

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        for column in self.columns:
            self._check_position(column.name, rows)
        raise_all(self._errors(rows.dtypes), InvalidType, f"{self.title}: found types that do not match", hint=_TYPES)
        return rows.with_values({**dict(rows.values), **{column.name: column.dtype for column in self.columns}})

    def _check_position(self, name: str, rows: Schema) -> None:
        role = "the timestamp" if name == rows.timestamp else "a key" if name in rows.key_names else ""
        if role:
            raise InvalidValue(
                f"{self.title}: column '{name}' is {role} and cannot be assigned",
                hint="choose another name; rename changes keys and the timestamp",
            )

    def _errors(self, columns: Columns) -> Iterator[str]:
        for column in self.columns:
            found = inferred(column.computed, columns, f"{self.title}: column '{column.name}'")
            if found is not None and not column.computed.fits(found, column.dtype):
                yield f"column '{column.name}': expected {column.dtype}, found {found} for {column.computed.title}"

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return tuple(function for column in self.columns for function in column.computed.functions)

    def partition(self, inputs: tuple[Partition, ...]) -> Partition:
        (found,) = inputs
        return None if found is None or {column.name for column in self.columns} & {*found} else found

    def source_of(self, column: str) -> str | None:
        return None if any(each.name == column for each in self.columns) else column

    def columns_read(self, needed: AbstractSet[str]) -> AbstractSet[str] | None:
        found = set(needed) - {column.name for column in self.columns}
        for column in self.columns:
            if column.computed.reads is None:
                return None
            found |= column.computed.reads
        return found

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        before = self.parents[0].schema.dtypes
        return rows.with_columns(self._values(column, rows, before) for column in self.columns)

    def _values(self, column: Assigned, rows: pl.DataFrame, columns: Columns) -> pl.Series:
        with blamed(f"assign node for column {column.name} for pipeline {self.pipeline}"):
            return column.computed.values(rows, columns, column.dtype, of_kind=True).alias(column.name)
