"""Functions of amounts of money: `.money`."""

from __future__ import annotations

from umbel.expr.kinds import Number, Real
from umbel.expr.registry import method


@method()
def with_tax(amount: Number, percent: Number = 19) -> Real:  # type: ignore[assignment]
    """Add a tax to an amount."""
    return amount * (1 + percent / 100)
