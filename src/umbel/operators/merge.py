"""Merge: the changes of several pipelines of one dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.operators.operator import RowWise
from umbel.types.schema import CHANGE_COLUMNS, Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Merge(RowWise):
    """The changes of all parents, each of which produces rows of the same dataset."""

    is_internal: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        return inputs[0]

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*self.schema.names, *CHANGE_COLUMNS)
