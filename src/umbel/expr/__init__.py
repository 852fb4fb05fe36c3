"""Expressions over columns: typed, immutable, evaluated by Polars."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from umbel.expr.conditional import when
from umbel.expr.construct import datetime, from_epoch, make_struct, repeat, zip_struct
from umbel.expr.errors import InvalidExprException
from umbel.expr.evaluate import evaluate, judge
from umbel.expr.lattice import matches
from umbel.expr.leaves import col, now, var
from umbel.expr.literal import lit
from umbel.expr.tree import Expr
from umbel.expr.typed import TypedExpr
from umbel.expr.units import TimeUnit

for _module in pkgutil.iter_modules(__path__):  # each registers its functions
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Expr",
    "InvalidExprException",
    "TimeUnit",
    "TypedExpr",
    "col",
    "datetime",
    "evaluate",
    "from_epoch",
    "judge",
    "lit",
    "make_struct",
    "matches",
    "now",
    "repeat",
    "var",
    "when",
    "zip_struct",
]
