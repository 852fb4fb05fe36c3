"""LeafValues in the analysis of `custom_code`: columns, constants, and references to parts of the record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import copysign, isfinite
from typing import Any

import polars as pl

from umbel.transform.leaves import Leaves
from umbel.transform.native import ColumnKind, Native, NotNative
from umbel.transform.paths import FieldPath

_KINDS: dict[type, ColumnKind] = {
    str: ColumnKind.TEXT,
    int: ColumnKind.INT,
    float: ColumnKind.FLOAT,
    bool: ColumnKind.BOOL,
    type(None): ColumnKind.NULL,
}


@dataclass(frozen=True)
class Reference:
    """A part of the record that is not read yet: an object, or a value.

    Args:
        path: its location.
        fits: the conditions under which Python gets there.
        is_else_object: True if it is an empty object where it is absent.
    """

    path: FieldPath
    fits: tuple[pl.Expr, ...] = ()
    is_else_object: bool = False

    def member(self, name: str, leaves: Leaves) -> Reference:
        """Return a member; Python gets there if this is an object."""
        return Reference(FieldPath((*self.path.parts, name)), (*self.fits, *leaves.is_object(self.path)))

    def column(self, leaves: Leaves) -> Native:
        """Return the value as a column."""
        found = leaves.column(self.path).guarded(*self.fits)
        return found.guarded(found.expr.is_not_null()) if self.is_else_object else found

    def guarded(self, *guards: pl.Expr) -> Reference:
        """Return the same, with further conditions."""
        return replace(self, fits=(*self.fits, *guards))


AnyValue = Native | Reference


def as_column(value: AnyValue, leaves: Leaves) -> Native:
    """Return a value as a column.

    Raises:
        NotNative: it has no type.
    """
    return value.column(leaves) if isinstance(value, Reference) else value


def constant(value: Any) -> Native:
    """Return a constant as a column.

    Raises:
        NotNative: its type has no column.
    """
    kind = _KINDS.get(type(value))
    is_large = kind is ColumnKind.INT and not -(2**62) < value < 2**62
    # Polars takes one zero for the other in `when`
    is_odd = kind is ColumnKind.FLOAT and (not isfinite(value) or (value == 0 and copysign(1, value) < 0))
    if (
        kind is None
        or is_large
        or is_odd
        or (kind is ColumnKind.TEXT and any("\ud800" <= each <= "\udfff" for each in value))
    ):
        raise NotNative(f"the constant {value!r:.40}")
    return Native(pl.lit(value, dtype=kind.polars), kind)


def unified(first: Native, second: Native) -> ColumnKind:
    """Return the type of values of which some are of one column, some of another.

    Raises:
        NotNative: their types differ.
    """
    kinds = {first.kind, second.kind} - {ColumnKind.NULL}
    if len(kinds) > 1:
        raise NotNative(f"a value that is {first.kind.value} or {second.kind.value}")
    return kinds.pop() if kinds else ColumnKind.NULL
