"""Comparing values the way semantics.md does: exactly, but for sums of floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any


def same(found: Any, expected: Any, magnitude: float = 1.0) -> bool:
    """Return whether two values are equal; floats to 1e-9 relative to `magnitude`."""
    if isinstance(found, float) and isinstance(expected, int | float | Decimal):
        other = float(expected)
        if math.isnan(found) or math.isnan(other) or math.isinf(other):
            return (math.isnan(found) and math.isnan(other)) or found == other
        return abs(found - other) <= 1e-9 * max(magnitude, abs(other))
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected) and (found is None) == (expected is None)


def assert_rows(found: Sequence[Any], expected: Sequence[Any], magnitude: float = 1.0, what: object = "") -> None:
    """Assert that two rows of values are the same, showing the first that is not."""
    assert len(found) == len(expected), what
    for place, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert same(a, b, magnitude), f"{what} column {place}: found {a!r}, expected {b!r}"
