"""Changelog: the changes of a keyed input as keyless rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.changes.upserts import with_key
from umbel.changes.versions import KEY, MICROSECOND, TIME, consolidate, difference, spans
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.operator import Clock, Keyed
from umbel.state.tables import State, TimedTable
from umbel.types.dtypes import Bool
from umbel.types.schema import AT, CHANGE_COLUMNS, WEIGHT, Schema
from umbel.windowing.tiling import micros


@dataclass(frozen=True, eq=False, kw_only=True)
class Changelog(Keyed):
    """Emit a row for every insert and for every delete of a keyed input.

    A row has the instant at which the insert or the delete takes effect.

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

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(self.parents[0].schema.key_names),)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        """Return the changes of the events.

        A change at its row's timestamp is an insert, or retracts it. A later one alone does not tell: the end of a row and its
        late begin are retracted by each other's likes. So the later ones are stored, summed up, until they are final.
        """
        is_later = pl.col(AT) > pl.col(self.schema.timestamp)
        retained = state.timed("later", self.parents[0].schema.changes())
        later = self._later(with_key(changes[0].filter(is_later), self.exchange()[0]), retained)
        if clock.watermark is not None:
            final = retained.until(micros(clock.watermark) - 1)
            retained.replace(final, final.clear())
        inserts = changes[0].filter(~is_later).with_columns(pl.lit(not self.marks_deletes).alias(self.marker))
        return pl.concat([each.select(*self.schema.names, *CHANGE_COLUMNS) for each in (inserts, later)])

    def _later(self, rows: pl.DataFrame, retained: TimedTable) -> pl.DataFrame:
        rows = rows.with_columns(pl.col(AT).alias(TIME))
        entries = rows.select(KEY, TIME).unique()
        stored = retained.scan(spans(rows, pl.col(TIME), pl.col(TIME) + MICROSECOND))
        before = stored.join(entries, on=[KEY, TIME], how="semi")
        after = consolidate(pl.concat([before, rows.select(before.columns)]))
        retained.replace(entries, after)
        return difference(self._events(before), self._events(after))

    def _events(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return net changes as inserts and deletes."""
        is_end = pl.col(WEIGHT) < 0
        return rows.with_columns(
            (is_end if self.marks_deletes else ~is_end).alias(self.marker),
            pl.col(AT).alias(self.schema.timestamp),
            pl.col(WEIGHT).abs(),
        )
