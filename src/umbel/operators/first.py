"""First: the row of each key with the smallest timestamp.

Class `First`; field `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.changes.upserts import with_key
from umbel.operators.choice import Choice, among_all, earliest
from umbel.operators.operator import Clock
from umbel.state.tables import State


@dataclass(frozen=True, eq=False, kw_only=True)
class First(Choice):
    """Key the rows by `keys` and choose the earliest row of each key.

    Of equal timestamps the first row to arrive wins.

    >>> show(lambda orders: orders.groupby("user").first(), Order)
    user  amount  coupon  at
    ann   10      1       09:00
    bob   7       None    09:30
    """

    is_internal: ClassVar[bool] = True

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        rows = with_key(changes[0], self.keys)
        retained = state.table("rows", self.parents[0].schema.changes())
        chosen = among_all(rows, retained, earliest(self.schema.timestamp), forget=self.parents[0].inserts_only)
        return chosen.select(list(self.schema.changes()))
