"""Reorder: the columns of a pipeline in the order of its dataset's declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.errors import InvalidType
from umbel.operators.columns import quoted
from umbel.operators.operator import RowWise
from umbel.types.schema import CHANGE_COLUMNS, Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Reorder(RowWise):
    """Reorder the columns of rows as in the schema of their dataset.

    Args:
        columns: the schema of the dataset; it has the same columns.
    """

    columns: Schema

    keeps_values: ClassVar[bool] = True

    is_internal: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        made, declared = (dict(sorted(each.dtypes.items())) for each in (rows, self.columns))
        if made != declared or sorted(rows.key_names) != sorted(self.columns.key_names):
            raise InvalidType(
                f"{self.title}: the columns are {quoted(made)}, not those of the dataset, {quoted(declared)}",
                hint="select, rename and assign columns at the end of the pipeline",
            )
        return self.columns

    @property
    def missing(self) -> Mapping[str, Any]:
        return self.parents[0].missing

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*self.schema.names, *CHANGE_COLUMNS)
