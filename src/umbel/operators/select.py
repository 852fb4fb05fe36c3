"""Select and Drop: keep some columns."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidValue
from umbel.operators.columns import check_known, check_values, quoted
from umbel.operators.operator import RowWise
from umbel.types.schema import CHANGE_COLUMNS, Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class _Projection(RowWise):
    """Keep the columns of the output schema."""

    columns: tuple[str, ...]

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*self.schema.names, *CHANGE_COLUMNS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(_Projection):
    """Keep `columns`; every key must be among them, and the timestamp always stays."""

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
    """Remove the value columns `columns`."""

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_values(self.columns, rows, self.title)
        return rows.with_values((name, dtype) for name, dtype in rows.values if name not in self.columns)
