"""Shares of rows."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_share(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
