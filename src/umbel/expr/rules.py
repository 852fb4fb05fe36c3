"""Shared type rules, from a call context to a result type."""

from __future__ import annotations

from umbel.expr.kinds import Site
from umbel.expr.lattice import optional
from umbel.types.dtypes import DType, Float, Int, List


def number(site: Site) -> DType:
    """Return Int if all operands are ints, else Float."""
    return Int() if site.is_whole else Float()


def listed(site: Site) -> List:
    """Return the type of the first operand, a list."""
    plain = site.types[0].plain
    if not isinstance(plain, List):
        raise TypeError(f"{plain} is not a list")
    return plain


def perhaps_element(site: Site) -> DType:
    """Return the type of the list's elements as Optional, for an absent element."""
    return optional(listed(site).of)
