"""Rename: new names for columns."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidValue
from umbel.operators.columns import check_known, quoted
from umbel.operators.operator import Partition, RowWise
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Rename(RowWise):
    """Rename keys, values or the timestamp.

    Args:
        names: pairs of the old and the new name.

    >>> show(lambda orders: orders.rename({"amount": "euros"}), Order)
    user  euros  coupon  at
    ann   10     1       09:00
    bob   7      None    09:30
    ann   5      None    10:15
    ann   5      None    10:15
    """

    names: tuple[tuple[str, str], ...]

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        if not self.names:
            raise InvalidValue(f"{self.title}: no columns given", hint='rename({"old": "new"})')
        new = dict(self.names)
        check_known(new, rows.names, self.title)
        repeated = [name for name in new.values() if list(new.values()).count(name) > 1]
        if repeated:
            raise InvalidValue(
                f"{self.title}: more than one column would be named '{repeated[0]}'", hint="choose another name for one"
            )
        taken = [name for name in new.values() if name in rows.names]
        if taken:
            raise InvalidValue(
                f"{self.title}: column {quoted(dict.fromkeys(taken))} exists already",
                hint="choose another name, or drop that column first",
            )
        return Schema(
            tuple((new.get(name, name), dtype) for name, dtype in rows.keys),
            tuple((new.get(name, name), dtype) for name, dtype in rows.values),
            new.get(rows.timestamp, rows.timestamp),
            tuple(new.get(name, name) for name in rows.order),
        )

    def partition(self, inputs: tuple[Partition, ...]) -> Partition:
        (found,), new = inputs, dict(self.names)
        return None if found is None else tuple(new.get(name, name) for name in found)

    def source_of(self, column: str) -> str:
        return {new: old for old, new in self.names}.get(column, column)

    def columns_read(self, needed: AbstractSet[str]) -> AbstractSet[str]:
        return frozenset(self.source_of(column) for column in needed)

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.rename(dict(self.names), strict=False)  # not all columns may be there
