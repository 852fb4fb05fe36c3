"""Dedup: the last of rows with equal columns, per instant or per window.

Class `Dedup`; fields `by` (columns; all values when empty), `window`; property `columns` resolves `by`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

import polars as pl

from umbel.changes.upserts import with_key
from umbel.changes.versions import TIME
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.choice import among_all, last_of_instant, last_of_session, nearby, newest
from umbel.operators.columns import check_keyless, check_known
from umbel.operators.operator import Clock, Keyed
from umbel.state.tables import State
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

BUCKET = "_time_bucket"


@dataclass(frozen=True, eq=False, kw_only=True)
class Dedup(Keyed):
    """Remove duplicates: only the last of equal rows remains.

    Args:
        by: the columns compared; all value columns when empty.
        window: None: rows of one instant; Tumbling: of one bucket; Session: less than its gap apart.

    >>> show(lambda orders: orders.dedup("user", "amount"), Order)
    user  amount  coupon  at
    ann   10      1       09:00
    bob   7       None    09:30
    ann   5       None    10:15
    """

    by: tuple[str, ...] = ()
    window: Tumbling | Session | Hopping | Continuous | None = None

    keeps_values: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns compared; all value columns when `by` is empty."""
        return self.by or tuple(self.parents[0].schema.value_names)

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        self._check_window()
        check_keyless(rows, self.title, InvalidValue)
        if rows.timestamp in self.by:
            raise InvalidValue(f"{self.title}: '{rows.timestamp}' is the timestamp", hint="see `window`")
        check_known(self.by, rows.value_names, self.title)
        return rows

    def _check_window(self) -> None:
        if self.window is not None and not isinstance(self.window, Tumbling | Session):
            found = type(self.window).__name__
            raise InvalidType(
                f"{self.title}: window must be Tumbling or Session, found {found}",
                hint='dedup(by="uid", window=Tumbling("1h"))',
            )
        if isinstance(self.window, Tumbling) and self.window.lookback_us:
            raise InvalidValue(
                f"{self.title}: window with lookback '{self.window.lookback}' is not supported",
                hint="leave the lookback out",
            )

    @property
    def delay(self) -> int:
        if self.window is None:
            return 0
        return self.window.gap_us if isinstance(self.window, Session) else self.window.duration_us or 0

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.columns,)

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        is_bucketed = isinstance(self.window, Tumbling)
        apply = self._in_bucket if is_bucketed else self._nearby
        chosen = apply(
            changes[0], state, None if clock.watermark is None else clock.watermark - timedelta(microseconds=1)
        )
        return chosen.select(list(self.schema.changes()))

    def _in_bucket(self, rows: pl.DataFrame, state: State, final: datetime | None) -> pl.DataFrame:
        assert isinstance(self.window, Tumbling)
        stored = state.table("rows", self.schema.changes(), expires=(self.schema.timestamp, self.delay))
        if final is not None:
            stored.expire(final)
        bucket = pl.col(self.schema.timestamp).dt.epoch("us") // self.window.duration_us
        keyed = with_key(rows.with_columns(bucket.alias(BUCKET)), [*self.columns, BUCKET]).drop(BUCKET)
        return among_all(keyed, stored, newest(self.schema.timestamp), forget=self.parents[0].inserts_only)

    def _nearby(self, rows: pl.DataFrame, state: State, final: datetime | None) -> pl.DataFrame:
        stored = state.timed("rows", self.schema.changes(), expires=(TIME, self.delay))
        if final is not None:
            stored.expire(final)
        keyed = with_key(rows, self.columns).with_columns(pl.col(self.schema.timestamp).alias(TIME))
        gap = self.window.gap_us if isinstance(self.window, Session) else None
        return nearby(keyed, stored, last_of_instant if gap is None else last_of_session(timedelta(microseconds=gap)))
