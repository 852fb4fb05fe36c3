"""The expressions that make values of a struct class, as methods of that class."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def of_fields(cls: type, /, **fields: Any) -> Any:
    """Return the expression that makes a struct of expressions, one for each field."""
    return _expressions().make_struct(fields, cls)


def of_lists(cls: type, /, **fields: Any) -> Any:
    """Return the expression that makes a list of structs of expressions of lists, cut to the shortest."""
    return _expressions().zip_struct(fields, cls)


def _expressions() -> Any:
    # Expressions are built on types: here is the one place that looks up.
    return import_module("umbel.expr")
