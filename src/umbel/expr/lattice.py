"""Type relations of expressions: Optional, least common type, assignability to a declared type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from umbel.types.dtypes import Decimal, DType, Float, Int, Optional

if TYPE_CHECKING:
    from umbel.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Null(DType):
    """The type of `lit(None)`: null is its only value."""

    def polars(self) -> pl.DataType:
        return pl.Null()

    @property
    def is_optional(self) -> bool:
        return True

    def __str__(self) -> str:
        return "None"


def optional(dtype: DType) -> DType:
    """Return the Optional type of `dtype`."""
    return dtype if dtype.is_optional else Optional(dtype)


def lifted(dtype: DType, is_optional: bool) -> DType:
    """Return `dtype`, wrapped in Optional if `is_optional`."""
    return optional(dtype) if is_optional else dtype


def join(left: DType, right: DType) -> DType | None:
    """Return the least common type of both, None if there is none."""
    if left == right:
        return left
    if isinstance(left, Null) or isinstance(right, Null):
        return optional(right if isinstance(left, Null) else left)
    found = _join_bases(left.base, right.base)
    return None if found is None else lifted(found, left.is_optional or right.is_optional)


def _join_bases(left: DType, right: DType) -> DType | None:
    if left == right:
        return left
    if left.plain == right.plain:
        return left.plain
    return Float() if {type(left.plain), type(right.plain)} == {Int, Float} else None


_PROMOTES: dict[type[DType], tuple[type[DType], ...]] = {Int: (Float, Decimal), Float: (Decimal,)}


def matches(inferred: DType, declared: DType, expr: Expr | None = None) -> bool:
    """Return True if an expression of the inferred type may be declared as another.

    A value of the base type is accepted for a restricted type (`oneof`, `between`, `regex`): it is checked when the
    expression is evaluated. `expr` is the expression itself, when known.
    """
    if inferred.is_optional and not declared.is_optional:
        return False
    if isinstance(inferred, Null) or inferred.base == declared.base:
        return True
    have, expected = inferred.plain, declared.plain
    return have == expected or type(expected) in _PROMOTES.get(type(have), ())
