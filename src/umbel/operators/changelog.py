"""Changelog: the changes of a keyed input as keyless rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.errors import InvalidType, InvalidValue
from umbel.operators.operator import RowWise
from umbel.types.dtypes import Bool
from umbel.types.schema import AT, CHANGE_COLUMNS, WEIGHT, Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Changelog(RowWise):
    """Emit a row for every insert and for every delete of a keyed input.

    A row of an insert has its timestamp, a row of a delete the instant of the delete.

    Args:
        marker: the name of the bool column that distinguishes them.
        marks_deletes: True if it is true for deletes, False if it is true for inserts.

    >>> show(lambda members: members.changelog(delete="ended"), Member)
    user  city  ended  at
    ann   Rome  False  08:00
    bob   Oslo  False  08:00
    ann   Rome  True   10:00
    ann   Bern  False  10:00
    """

    marker: str
    marks_deletes: bool

    keeps_values: ClassVar[bool] = True

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

        A change later than its row's timestamp ends the row: an end is a delete event, and a retracted end retracts that event.
        """
        is_end = pl.col(AT) > pl.col(self.schema.timestamp)
        events = rows.with_columns(
            (is_end if self.marks_deletes else ~is_end).alias(self.marker),
            pl.col(AT).alias(self.schema.timestamp),
            pl.when(is_end).then(-pl.col(WEIGHT)).otherwise(pl.col(WEIGHT)).alias(WEIGHT),
        )
        return events.select(*self.schema.names, *CHANGE_COLUMNS)
