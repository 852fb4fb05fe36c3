"""Compatibility module: the names imported from `expr.expr` by code written for the reference."""

from __future__ import annotations

from umbel.expr.conditional import when
from umbel.expr.construct import from_epoch, make_struct, repeat
from umbel.expr.errors import InvalidExprException
from umbel.expr.leaves import col
from umbel.expr.literal import lit
from umbel.expr.tree import Expr
from umbel.expr.typed import TypedExpr
from umbel.expr.units import TimeUnit

__all__ = [
    "Expr",
    "InvalidExprException",
    "TimeUnit",
    "TypedExpr",
    "col",
    "from_epoch",
    "lit",
    "make_struct",
    "repeat",
    "when",
]
