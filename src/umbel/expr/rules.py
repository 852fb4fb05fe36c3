"""Type rules that several functions share: from where a function is applied to the type of its result."""

from __future__ import annotations

from umbel.expr.kinds import Site
from umbel.expr.lattice import optional
from umbel.types.dtypes import DType, Float, Int, List


def number(site: Site) -> DType:
    """Return int when all operands are ints, else float."""
    return Int() if site.is_whole else Float()


def listed(site: Site) -> List:
    """Return the type of the first operand, a list."""
    plain = site.types[0].plain
    if not isinstance(plain, List):
        raise TypeError(f"{plain} is not a list")
    return plain


def perhaps_element(site: Site) -> DType:
    """Return the type of the list's elements, Optional because there may be none."""
    return optional(listed(site).of)
