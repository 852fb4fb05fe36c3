"""Select and Drop: projections to some columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.errors import InvalidValue
from umbel.operators.columns import check_known, check_values, quoted
from umbel.operators.operator import RowWise
from umbel.types.schema import CHANGE_COLUMNS, Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class _Projection(RowWise):
    """Project rows to the columns of the output schema."""

    columns: tuple[str, ...]

    keeps_values: ClassVar[bool] = True

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*self.schema.names, *CHANGE_COLUMNS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(_Projection):
    """Project rows to `columns`; every key must be among them, and the timestamp always stays.

    >>> show(lambda orders: orders.select("amount"), Order)
    amount  at
    10      09:00
    7       09:30
    5       10:15
    5       10:15
    """

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        if not self.columns:
            raise InvalidValue(f"{self.title}: no columns given", hint=f"columns: {', '.join(rows.names)}")
        check_known(self.columns, rows.names, self.title)
        missing = [name for name in rows.key_names if name not in self.columns]
        if missing:
            raise InvalidValue(
                f"{self.title}: key {quoted(missing)} must be selected", hint="select all keys, or groupby others"
            )
        return rows.with_values((name, dtype) for name, dtype in rows.values if name in self.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Drop(_Projection):
    """Remove the value columns `columns`.

    >>> show(lambda orders: orders.drop("coupon"), Order)
    user  amount  at
    ann   10      09:00
    bob   7       09:30
    ann   5       10:15
    ann   5       10:15
    """

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_values(self.columns, rows, self.title)
        return rows.with_values((name, dtype) for name, dtype in rows.values if name not in self.columns)
