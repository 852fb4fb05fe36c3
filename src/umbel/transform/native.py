"""Native values: columns of a Polars plan, with guards for rows unequal to Python.

A value of JSON has one of many types; a column has one. So a plan is made for the types that were seen, and every operation
adds a guard: the rows in which Polars and Python agree. All other rows are processed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import polars as pl


class NotNative(Exception):
    """An operation that has no proven form in Polars.

    Args:
        reason: for `umbel transform explain`.
    """


class ColumnKind(Enum):
    """The type of the values of a native column, null aside."""

    TEXT = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    INSTANT = "datetime"
    DAY = "date"
    NULL = "null"

    @property
    def polars(self) -> pl.DataType:
        """The type of the column."""
        return _POLARS[self]


_POLARS: dict[ColumnKind, pl.DataType] = {
    ColumnKind.TEXT: pl.String(),
    ColumnKind.INT: pl.Int64(),
    ColumnKind.FLOAT: pl.Float64(),
    ColumnKind.BOOL: pl.Boolean(),
    ColumnKind.INSTANT: pl.Datetime("us"),
    ColumnKind.DAY: pl.Date(),
    ColumnKind.NULL: pl.Null(),
}
JSON_KINDS = (ColumnKind.TEXT, ColumnKind.INT, ColumnKind.FLOAT, ColumnKind.BOOL)
"""Kinds that a value of JSON can have."""


def _unshared(expr: pl.Expr) -> pl.Expr:
    return expr


@dataclass(frozen=True)
class Native:
    """A column of a plan.

    Args:
        expr: its values.
        kind: their type.
        fits: the conditions under which a row's value is proven; a null condition holds.
        share: returns a column of the plan that has the values of an expression, which are then computed once.
    """

    expr: pl.Expr
    kind: ColumnKind
    fits: tuple[pl.Expr, ...] = ()
    share: Callable[[pl.Expr], pl.Expr] = _unshared

    def then(self, expr: pl.Expr, kind: ColumnKind | None = None, *guards: pl.Expr) -> Native:
        """Return the result of an operation on it, proven where `guards` hold; null stays null."""
        return replace(self, expr=expr, kind=kind or self.kind, fits=(*self.fits, *guards))

    def shared(self) -> Native:
        """Return the same, as a column that later operations read without computing it again."""
        return replace(self, expr=self.share(self.expr))

    def of_kind(self, *kinds: ColumnKind) -> Native:
        """Return the same, if its values are of one of the kinds.

        Raises:
            NotNative: they are of another.
        """
        if self.kind not in kinds:
            raise NotNative(f"for values of type {self.kind.value}")
        return self

    def guarded(self, *guards: pl.Expr) -> Native:
        """Return the same, with further conditions."""
        return replace(self, fits=(*self.fits, *guards))

    @property
    def fit(self) -> pl.Expr:
        """The condition under which a row's value is proven, never null."""
        return holds(*self.fits)


def holds(*guards: pl.Expr) -> pl.Expr:
    """Return the condition that all guards hold; a null guard holds."""
    return pl.all_horizontal(guards).fill_null(value=True) if guards else pl.lit(value=True)


def is_ascii(text: pl.Expr) -> pl.Expr:
    """Return the condition that texts are of ASCII characters.

    Only there do the case and the white space of Polars and of every Python agree.
    """
    return text.str.len_bytes() == text.str.len_chars()


def is_finite(number: pl.Expr) -> pl.Expr:
    """Return the condition that a float is neither NaN nor infinite."""
    return number.is_finite()


def truth(value: Native) -> Native:
    """Return the truth of values, as of Python's `bool`; that of null is False."""
    if value.kind is ColumnKind.TEXT:
        found = value.expr.str.len_bytes() > 0
    elif value.kind in (ColumnKind.INT, ColumnKind.FLOAT):
        found = value.expr != 0
    elif value.kind is ColumnKind.BOOL:
        found = value.expr
    else:
        raise NotNative(f"the truth of values of type {value.kind.value}")
    return value.then(found.fill_null(value=False), ColumnKind.BOOL)


def instant_texts(instants: pl.Expr) -> pl.Expr:
    """Return naive instants in RFC 3339, with a fraction of seconds where there is one."""
    whole = instants.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = instants.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    return pl.when(instants.dt.microsecond() == 0).then(whole).otherwise(parts)
