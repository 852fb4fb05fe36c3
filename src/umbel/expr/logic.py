"""Three-valued logic, and functions of nulls."""

from __future__ import annotations

import polars as pl

from umbel.expr.errors import compile_error
from umbel.expr.kinds import Anything, Site, Truth
from umbel.expr.lattice import Null, join
from umbel.expr.registry import plain
from umbel.types.dtypes import Bool, DType


@plain("infix", "&", needs=lambda left, right: left.fill_null(True))
def and_(left: Truth, right: Truth) -> Truth:
    """Logical AND; False if one is False, else null if one is null.

    >>> values(col("a") & col("b"), a=[True, True, None], b=[True, False, False])
    [True, False, False]
    """
    return left & right


@plain("infix", "|", needs=lambda left, right: ~left.fill_null(False))
def or_(left: Truth, right: Truth) -> Truth:
    """Logical OR; True if one is True, else null if one is null.

    >>> values(col("a") | col("b"), a=[True, False, None], b=[False, False, True])
    [True, False, True]
    """
    return left | right


@plain("prefix", "~")
def invert(value: Truth) -> Truth:
    """Logical NOT; null stays null.

    >>> values(~col("a"), a=[True, False, None])
    [False, True, None]
    """
    return ~value


@plain("direct", lifts=False, rule=lambda site: Bool())
def isnull(value: Anything) -> Truth:
    """Test for null; the result is never null.

    >>> values(col("x").isnull(), x=[1, None])
    [False, True]
    """
    return value.is_null()


def _filled(site: Site) -> DType:
    dtype, default = site.types
    found = join(default if isinstance(dtype, Null) else dtype.base, default)
    if found is None:
        raise compile_error(f"fillnull cannot fill {dtype} with {default}")
    return found


@plain("direct", lifts=False, rule=_filled, needs=lambda value, default: value.is_null())
def fillnull(value: Anything, default: Anything, site: Site) -> Anything:
    """Replace null by a value; the result has the least common type.

    >>> values(col("x").fillnull(0), x=[1, None])
    [1, 0]
    """
    stored = site.result.polars()
    return pl.coalesce(value.cast(stored), default.cast(stored))
