"""Logic of three values, and nulls."""

from __future__ import annotations

import polars as pl

from umbel.expr.errors import compile_error
from umbel.expr.kinds import Anything, Site, Truth
from umbel.expr.lattice import Null, join
from umbel.expr.registry import plain
from umbel.types.dtypes import Bool, DType


@plain("infix", "&", needs=lambda left, right: left.fill_null(True))
def and_(left: Truth, right: Truth) -> Truth:
    """Whether both hold; False when one is False, else null when one is null."""
    return left & right


@plain("infix", "|", needs=lambda left, right: ~left.fill_null(False))
def or_(left: Truth, right: Truth) -> Truth:
    """Whether one holds; True when one is True, else null when one is null."""
    return left | right


@plain("prefix", "~")
def invert(value: Truth) -> Truth:
    """Whether it does not hold; null stays null."""
    return ~value


@plain("direct", lifts=False, rule=lambda site: Bool())
def isnull(value: Anything) -> Truth:
    """Whether the value is null; never null itself."""
    return value.is_null()


def _filled(site: Site) -> DType:
    dtype, default = site.types
    found = join(default if isinstance(dtype, Null) else dtype.base, default)
    if found is None:
        raise compile_error(f"fillnull cannot fill {dtype} with {default}")
    return found


@plain("direct", lifts=False, rule=_filled, needs=lambda value, default: value.is_null())
def fillnull(value: Anything, default: Anything, site: Site) -> Anything:
    """Replace null by a value; the type is what both have in common."""
    stored = site.result.polars()
    return pl.coalesce(value.cast(stored), default.cast(stored))
