"""The declaration of an expression's type: the outermost part, and no expression itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umbel.expr.tree import Expr
from umbel.types.dtypes import DType


@dataclass(frozen=True, slots=True)
class TypedExpr:
    """An expression with the type its values are to have.

    Args:
        expr: the expression.
        annotation: the Python annotation given to `astype`.
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
