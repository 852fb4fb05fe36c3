"""Latest: every row becomes the row of its key from its timestamp on.

Class `Latest`; field `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from umbel.operators.choice import Choice
from umbel.operators.choice_kernel import latest
from umbel.operators.operator import Clock
from umbel.operators.tables import State
from umbel.operators.timeline import TIME
from umbel.operators.upsert_kernel import with_key


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Choice):
    """Key the rows by `keys`; a later row ends the earlier one. Of equal timestamps the row seen last wins."""

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        rows = with_key(changes[0], self.keys).with_columns(pl.col(self.schema.timestamp).alias(TIME))
        kept = state.table("rows", self.parents[0].schema.changes())
        return latest(rows, kept).select(list(self.schema.changes()))
