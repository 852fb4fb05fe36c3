"""Expressions with a declared type; the declaration is outermost, not an expression itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umbel.expr.tree import Expr
from umbel.types.dtypes import DType


@dataclass(frozen=True, slots=True)
class TypedExpr:
    """An expression with its declared type.

    Args:
        expr: the expression.
        annotation: the Python annotation passed to `astype`.
    """

    expr: Expr
    annotation: Any

    @property
    def dtype(self) -> DType:
        """The declared type."""
        from umbel.expr.boundary import type_of

        return type_of(self.annotation)

    def __str__(self) -> str:
        return f"{self.expr.as_receiver()}.astype({self.dtype})"
