"""DropNull: drop rows with nulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.errors import InvalidValue
from umbel.operators.columns import check_known, quoted
from umbel.operators.operator import RowWise
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class DropNull(RowWise):
    """Drop rows with a null in any of `columns`.

    These columns are no longer optional in the output. Empty `columns` stands for all optional ones.

    >>> show(lambda orders: orders.dropnull("coupon"), Order)
    user  amount  coupon  at
    ann   10      1       09:00
    """

    columns: tuple[str, ...] = ()

    keeps_values: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        optional = [name for name, dtype in rows.values if dtype.is_optional]
        if not optional and not self.columns:
            raise InvalidValue(f"{self.title}: there is no optional column in the input", hint="leave dropnull out")
        self._check(rows, optional)
        return rows.with_values((n, t.base if n in (self.columns or optional) else t) for n, t in rows.values)

    def _check(self, rows: Schema, optional: list[str]) -> None:
        check_known(self.columns, rows.names, self.title)
        wrong = [name for name in self.columns if name not in optional]
        if wrong:
            types = ", ".join(f"'{name}' is {rows.dtypes[name]}" for name in wrong)
            raise InvalidValue(
                f"{self.title}: column {quoted(wrong)} is not optional: {types}",
                hint=f"optional columns: {', '.join(optional)}",
            )

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        before = self.parents[0].schema
        return rows.drop_nulls(self.columns or [name for name, dtype in before.values if dtype.is_optional])
