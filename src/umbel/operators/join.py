"""Joins with a keyed dataset.

`AsOfJoin`: keyless left side, the right row as of the left row's time. `TableJoin`: keyed left side, the overlaps of lifetimes.
Fields of both: `parents` (left, right Leaf), `on` (pairs of left and right key column), `inner`, `fields` (right
columns in the output, None for all values), `back` and `ahead` (microseconds; `back` None for any age). `right_columns` has the
right columns of the output, `left_on`/`right_on` the key columns of each side in the right side's key order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import polars as pl

from umbel.changes.upserts import with_key
from umbel.changes.versions import TIME, version_columns
from umbel.errors import InvalidType, InvalidValue, raise_all
from umbel.operators import asof_kernel, interval_kernel
from umbel.operators.asof_kernel import MatchBounds
from umbel.operators.columns import check_known, quoted
from umbel.operators.operator import Clock, Keyed, Operator
from umbel.state.tables import State, TimedTable
from umbel.types.dtypes import DType, Optional
from umbel.types.schema import WEIGHT, Schema

_KEYS = "give the columns joined on the same types, none of them Optional on the left"


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Keyed):
    """Add the columns of the right row with the left row's key.

    Args:
        on: pairs of a left column and the right key it must equal.
        inner: True if left rows without a match are dropped.
        fields: right columns in the output; all value columns when None.
        back: how old the right row may be, in microseconds; None for any age.
        ahead: how far after the left row the right row may start, in microseconds.
    """

    keeps_values: ClassVar[bool] = True
    is_internal: ClassVar[bool] = True

    on: tuple[tuple[str, str], ...]
    inner: bool
    fields: tuple[str, ...] | None = None
    back: int | None = None
    ahead: int = 0

    @property
    def verb(self) -> str:
        return "join"

    @property
    def left(self) -> Operator:
        """The left input, whose rows get the added columns."""
        return self.parents[0]

    @property
    def right(self) -> Operator:
        """The right input: the keyed dataset looked up."""
        return self.parents[1]

    @property
    def right_on(self) -> tuple[str, ...]:
        """The right side's key columns, in the order of its schema."""
        return tuple(self.right.schema.key_names)

    @property
    def left_on(self) -> tuple[str, ...]:
        """The left columns joined to the right side's keys, in the same order."""
        requested = {right: left for left, right in self.on}
        return tuple(requested[name] for name in self.right_on)

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The right columns of the output."""
        return tuple(self.right.schema.value_names) if self.fields is None else self.fields

    @property
    def looked_up(self) -> tuple[int, ...]:
        return (1,)

    def complete_since(self, inputs: tuple[float, ...]) -> float:
        return max(inputs)

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.left_on, self.right_on)

    def output(self, *inputs: Schema) -> Schema:
        left, right = inputs
        self._check_keys(left, right)
        check_known(
            self.right_columns, [*right.value_names, right.timestamp], f"{self.title}: {self.right.subject}", "field"
        )
        clashes = [name for name in self.right_columns if name in left.names]
        if clashes:
            sides = f"{self.left.subject} and {self.right.subject}"
            raise InvalidValue(f"{self.title}: column {quoted(clashes)} exists in both {sides}", hint="rename it first")
        added = ((name, self._added(right.dtypes[name])) for name in self.right_columns)
        return left.with_values((*left.values, *added))

    def _keyed(self, changes: tuple[pl.DataFrame, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
        left = with_key(changes[0], self.left_on).with_columns(pl.col(self.left.schema.timestamp).alias(TIME))
        return left, with_key(changes[1], self.right_on)

    @property
    def _stored_columns(self) -> dict[str, pl.DataType]:
        """The columns of a stored change of the left side."""
        return {name: dtype for name, dtype in self.left.schema.changes().items() if name != WEIGHT}

    def _versions_table(self, state: State) -> TimedTable:
        return state.of(self.right.id).timed("versions", version_columns(self.right.schema))

    def _added(self, dtype: DType) -> DType:
        return dtype if self.inner or dtype.is_optional else Optional(dtype)

    def _check_keys(self, left: Schema, right: Schema) -> None:
        if not right.is_keyed:
            raise InvalidValue(
                f"{self.title}: {self.right.subject} has no key fields; the right side must be keyed",
                hint="mark its keys: field(key=True)",
            )
        if sorted(name for _, name in self.on) != sorted(right.key_names):
            provided = quoted(name for _, name in self.on)
            keys = quoted(right.key_names)
            raise InvalidValue(
                f"{self.title}: join on {provided}, but the key fields of {self.right.subject} are {keys}",
                hint="join on all its keys: on=..., or left_on= and right_on=",
            )
        check_known((name for name, _ in self.on), left.names, f"{self.title}: {self.left.subject}")
        raise_all(self._type_errors(left, right), InvalidType, f"{self.title}: keys differ", hint=_KEYS)

    def _type_errors(self, left: Schema, right: Schema) -> Iterator[str]:
        for one, two in self.on:
            found, expected = left.dtypes[one], right.dtypes[two]
            if found.is_optional:
                yield f"key '{one}' is optional ({found}) on the left, {expected} on the right; drop the nulls first"
            elif found != expected:
                yield f"key '{one}' is {found} on the left, '{two}' is {expected} on the right"


@dataclass(frozen=True, eq=False, kw_only=True)
class AsOfJoin(Join):
    """A stream-table join: the right row current at the left row's time.

    >>> show(lambda orders, members: orders.join(members, how="left", on=["user"]), Order, Member)
    user  amount  coupon  city  at
    ann   10      1       Rome  09:00
    bob   7       None    Oslo  09:30
    ann   5       None    Bern  10:15
    ann   5       None    Bern  10:15
    """

    @property
    def bounds(self) -> MatchBounds:
        """The bounds of a match."""
        back = None if self.back is None else timedelta(microseconds=self.back)
        fields = {name: name for name in self.right_columns}
        return MatchBounds(back, timedelta(microseconds=self.ahead), self.right.schema.timestamp, fields, self.inner)

    @property
    def delay(self) -> int:
        return self.ahead

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        left, right = self._keyed(changes)
        waiting = state.collected("waiting", self._stored_columns)
        watermark = clock.parents[1] if clock.parents else None
        joined = asof_kernel.step(left, right, waiting, self._versions_table(state), self.bounds, watermark)
        return joined.select(list(self.schema.changes()))


@dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Join):
    """A table-table join: one row per overlap of a left and a right lifetime.

    >>> show(
    ...     lambda orders, members: orders.groupby("user").latest().join(members, how="inner", on=["user"]),
    ...     Order,
    ...     Member,
    ... )
    user  amount  coupon  city  at
    ann   10      1       Rome  09:00
    bob   7       None    Oslo  09:30
    ann   10      1       Bern  10:00
    ann   5       None    Bern  10:15
    """

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        left, right = self._keyed(changes)
        lifetimes = state.collected("lifetimes", self._stored_columns)
        joined = interval_kernel.step(
            left,
            right,
            lifetimes,
            self._versions_table(state),
            self.right_columns,
            inner=self.inner,
            timestamp=self.schema.timestamp,
        )
        return joined.select(list(self.schema.changes()))
