"""Comparison of numbers in tests."""

from __future__ import annotations


def almost_equal(a: float, b: float, epsilon: float = 1e-6) -> bool:
    """Return True if two numbers differ by less than `epsilon`.

    >>> almost_equal(0.1 + 0.2, 0.3)
    True
    """
    return abs(a - b) < epsilon
