"""Filter: the rows that fulfil a condition."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.errors import InvalidType
from umbel.functions.computed import Computed, blamed, inferred
from umbel.functions.user_function import UserFunction
from umbel.operators.operator import RowWise
from umbel.types.dtypes import Bool, Optional
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(RowWise):
    """Drop the changes of rows with a false or null `condition`.

    >>> show(lambda orders: orders.filter(col("amount") > 5), Order)
    user  amount  coupon  at
    ann   10      1       09:00
    bob   7       None    09:30
    """

    condition: Computed

    keeps_values: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        found = inferred(self.condition, rows.dtypes, self.title)
        if found not in (None, Bool()):
            raise InvalidType(
                f"{self.title}: {self.condition.title} must be bool, found {found}",
                hint='compare: col("a") > 1; fill nulls with .fillnull(False)',
            )
        return rows

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return self.condition.functions

    def columns_read(self, needed: AbstractSet[str]) -> AbstractSet[str] | None:
        reads = self.condition.reads
        return None if reads is None else needed | reads

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        with blamed(f"filter {self.condition.title} for pipeline {self.pipeline}"):
            return rows.filter(self.condition.values(rows, self.schema.dtypes, Optional(Bool())))
