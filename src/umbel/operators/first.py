"""First: the row of each key with the smallest timestamp.

Class `First`; field `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from umbel.operators.choice import Choice
from umbel.operators.choice_kernel import among_all, earliest
from umbel.operators.operator import Clock
from umbel.operators.tables import State
from umbel.operators.upsert_kernel import with_key


@dataclass(frozen=True, eq=False, kw_only=True)
class First(Choice):
    """Key the rows by `keys` and keep the earliest of each. Of equal timestamps the row seen first wins."""

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        rows = with_key(changes[0], self.keys)
        kept = state.table("rows", self.parents[0].schema.changes())
        chosen = among_all(rows, kept, earliest(self.schema.timestamp), forget=self.parents[0].inserts_only)
        return chosen.select(list(self.schema.changes()))
