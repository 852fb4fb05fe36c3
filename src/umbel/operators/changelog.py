"""Changelog: the changes of a keyed input as rows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidType, InvalidValue
from umbel.operators.operator import RowWise
from umbel.types.dtypes import Bool
from umbel.types.schema import AT, CHANGE_COLUMNS, WEIGHT, Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Changelog(RowWise):
    """Make a row of every insert, at its timestamp, and of every delete, at the instant of the delete.

    Args:
        marker: the name of the bool column that tells them apart.
        marks_deletes: whether it is true for deletes (else: for inserts).
    """

    marker: str
    marks_deletes: bool

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        if not rows.is_keyed:
            raise InvalidType(
                f"{self.title}: input must be keyed", hint="a dataset without keys has inserts only: use it as it is"
            )
        if self.marker in rows.names:
            raise InvalidValue(f"{self.title}: column '{self.marker}' exists already", hint="choose another name")
        return Schema((), (*rows.keys, *rows.values, (self.marker, Bool())), rows.timestamp)

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the events.

        A change later than its row's timestamp ends the row: an end is a delete event, and a revoked end revokes it.
        """
        is_end = pl.col(AT) > pl.col(self.schema.timestamp)
        events = rows.with_columns(
            (is_end if self.marks_deletes else ~is_end).alias(self.marker),
            pl.col(AT).alias(self.schema.timestamp),
            pl.when(is_end).then(-pl.col(WEIGHT)).otherwise(pl.col(WEIGHT)).alias(WEIGHT),
        )
        return events.select(*self.schema.names, *CHANGE_COLUMNS)
