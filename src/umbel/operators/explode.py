"""Explode: one row for every element of a list."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidValue, Terminal
from umbel.operators.columns import check_keyless, check_values
from umbel.operators.operator import RowWise
from umbel.types.dtypes import DType, List, Optional
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(RowWise):
    """Emit one row for every element of the lists in `columns`.

    The lists of one row are exploded in parallel and must be of equal length. A null or an empty list makes one row with
    null, also beside lists of one element. Rows made of one row arrive at once: where order counts, as for
    `LastK`, `first` and `latest`, they are ordered by their values, not by their places in the list.

    >>> show(lambda baskets: baskets.explode("items"), Basket)
    user  items  at
    ann   ink    09:00
    ann   pen    09:00
    bob   None   09:30
    """

    columns: tuple[str, ...]

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_keyless(rows, self.title)
        check_values(self.columns, rows, self.title)
        return rows.with_values((n, self._element(n, t) if n in self.columns else t) for n, t in rows.values)

    def _element(self, name: str, dtype: DType) -> DType:
        if not isinstance(dtype.base, List):
            raise InvalidValue(
                f"{self.title}: column '{name}' must be a list, found {dtype}", hint="explode columns of type List[...]"
            )
        return dtype.base.of if dtype.base.of.is_optional else Optional(dtype.base.of)

    def source_of(self, column: str) -> str | None:
        return None if column in self.columns else column

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        lengths = [pl.col(name).list.len().fill_null(0).clip(1) for name in self.columns]
        unequal = rows.filter(pl.any_horizontal(length != lengths[0] for length in lengths))
        if not unequal.is_empty():
            found = unequal.select(pl.col(name).list.len() for name in self.columns).row(0, named=True)
            raise Terminal(
                f"Error in {self.title}: lists of unequal lengths in one row: {found}",
                hint="give the columns lists of one length in every row",
            )
        # Polars does not take an empty list beside one of one element, though both make one row.
        return rows.with_columns(map(_filled, self.columns)).explode(self.columns)


def _filled(name: str) -> pl.Expr:
    lists = pl.col(name)
    return pl.when(lists.list.len() > 0).then(lists).otherwise(pl.lit([None]))
