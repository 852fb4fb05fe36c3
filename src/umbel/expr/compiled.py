"""What an expression compiles to: a Polars expression, its type, and the rows on which it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from umbel.types.dtypes import DType


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean where an expression is compiled.

    Args:
        columns: the columns an expression may refer to, with their types.
        now: the value of `now()`.
        variables: the elements bound by `list.map` and `list.filter`.
        read: how a column is read; `pl.col` outside of lists.
        is_certain: whether every value is needed; not so in the branches of a choice.
    """

    columns: Mapping[str, DType]
    now: pl.Expr
    variables: Mapping[str, Compiled] = field(default_factory=dict)
    read: Mapping[str, pl.Expr] = field(default_factory=dict)
    is_certain: bool = True

    def uncertain(self) -> Scope:
        """Return the scope of a part whose value is needed on some rows only."""
        return replace(self, is_certain=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """Rows on which an expression has no value (null counts as no fault), why, and which part of it."""

    condition: pl.Expr
    reason: str
    part: object

    def __str__(self) -> str:
        return f"{self.reason}, in `{self.part}`"

    def only(self, needed: pl.Expr) -> Fault:
        """Return the fault on the rows where the value is needed."""
        return replace(self, condition=self.condition & needed)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Polars expression over storage types, its type and its faults."""

    value: pl.Expr
    dtype: DType
    faults: tuple[Fault, ...] = ()

    def only(self, needed: pl.Expr) -> tuple[Fault, ...]:
        """Return the faults that count when the value is needed on some rows only."""
        return tuple(fault.only(needed) for fault in self.faults)

    def guarded(self) -> pl.Expr:
        """Return a Polars expression that raises by itself on a fault.

        Polars has no expression that raises; a strict cast of the reason to a number does, and shows the reason.
        """
        if not self.faults:
            return self.value
        reason = pl.lit(None, dtype=pl.String)
        for fault in reversed(self.faults):
            reason = pl.when(fault.condition).then(pl.lit(str(fault))).otherwise(reason)
        return pl.when(reason.cast(pl.Int8, strict=True).is_null()).then(self.value)
