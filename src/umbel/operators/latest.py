"""Latest: every row becomes the current row of its key.

Class `Latest`; field `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from umbel.changes.upserts import with_key
from umbel.changes.versions import TIME
from umbel.operators.choice import Choice, latest
from umbel.operators.operator import Clock
from umbel.state.tables import State


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Choice):
    """Key the rows by `keys`; a later row ends the earlier one.

    Of equal timestamps the last row to arrive wins.

    >>> show(lambda orders: orders.groupby("user").latest(), Order)
    user  amount  coupon  at
    ann   10      1       09:00
    bob   7       None    09:30
    ann   5       None    10:15
    """

    is_internal: ClassVar[bool] = True

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        rows = with_key(changes[0], self.keys).with_columns(pl.col(self.schema.timestamp).alias(TIME))
        retained = state.timed("rows", self.parents[0].schema.changes())
        return latest(rows, retained).select(list(self.schema.changes()))
