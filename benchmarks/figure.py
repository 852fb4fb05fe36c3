"""A figure: what was measured, and the bar it has to reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Args:
        name: what it is.
        value: the number.
        unit: its unit: `rows/s`, `ms`, `GiB`, `×`.
        at_least: the bar, where more is better.
        at_most: the bar, where less is better.
        note: how it came about, in a few words.
    """

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def bar(self) -> str:
        """The bar as text, empty where there is none."""
        if self.at_least is not None:
            return f"≥ {readable(self.at_least)} {self.unit}"
        return f"≤ {readable(self.at_most)} {self.unit}" if self.at_most is not None else ""

    @property
    def is_reached(self) -> bool | None:
        """Whether the bar is reached; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None

    @property
    def verdict(self) -> str:
        """`reached`, `missed by` how much, or nothing."""
        if self.is_reached is None:
            return ""
        bar = self.at_least if self.at_least is not None else self.at_most or 0.0
        return "reached" if self.is_reached else f"missed by {abs(self.value - bar) / (bar or 1.0):.0%}"


def readable(number: float) -> str:
    """Write a number with as many digits as one reads."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
