"""Union: the rows of several inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidValue, raise_all
from umbel.operators.columns import check_keyless
from umbel.operators.operator import RowWise
from umbel.types.schema import CHANGE_COLUMNS, Schema

_ALIKE = "rename, assign or drop columns until both have the same"


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(RowWise):
    """The rows of all parents, duplicates included.

    The schemas must be equal.

    >>> show(lambda orders: orders.filter(col("amount") > 7) + orders.filter(col("amount") == 7), Order)
    user  amount  coupon  at
    ann   10      1       09:00
    bob   7       None    09:30
    """

    def output(self, *inputs: Schema) -> Schema:
        for rows in inputs:
            check_keyless(rows, self.title)
        first, *others = inputs
        errors = [error for index, other in enumerate(others, 1) for error in _mismatches(first, other, index)]
        raise_all(errors, InvalidValue, f"{self.title}: the schemas of the inputs differ", hint=_ALIKE)
        return first

    def source_of(self, column: str) -> str | None:
        return column

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*self.schema.names, *CHANGE_COLUMNS)


def _mismatches(first: Schema, other: Schema, index: int) -> Iterator[str]:
    if first.timestamp != other.timestamp:
        yield f"timestamp '{first.timestamp}' in input 0, '{other.timestamp}' in input {index}"
    one, two = dict(first.values), dict(other.values)
    for name in (*one, *(name for name in two if name not in one)):
        found, expected = two.get(name, "missing"), one.get(name, "missing")
        if found != expected:
            yield f"column '{name}' is {expected} in input 0, {found} in input {index}"
