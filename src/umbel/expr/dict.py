"""Functions of dicts: `.dict`."""

from __future__ import annotations

import polars as pl

from umbel.expr.errors import compile_error
from umbel.expr.kinds import Anything, Mapped, Site, Text, Truth, Whole
from umbel.expr.lattice import Null, lifted, optional
from umbel.expr.registry import method
from umbel.types.dtypes import Dict, DType


def _found(site: Site) -> DType:
    mapped, _, default = site.types
    plain = mapped.plain
    value = plain.of if isinstance(plain, Dict) else Null()
    if isinstance(default, Null):
        return optional(value)
    if default.plain != value.plain:
        raise compile_error(f"dict.get from {mapped} cannot default to {default}")
    return value if default.base == value.base else lifted(value.plain, value.is_optional)


@method(rule=_found)
def get(value: Mapped, key: Text, default: Anything = None, *, site: Site) -> pl.Expr:  # type: ignore[assignment]
    """Return the value of a key; the default if the key is missing.

    >>> values(col("d").dict.get("a", 0), d=[{"a": 1}, {"b": 2}])
    [1, 0]
    """
    entries = value.list.to_map()
    found = entries.map.get(key)
    if isinstance(site.types[2], Null):
        return found
    known = value.is_not_null() & key.is_not_null()
    missing = pl.when(known & ~entries.map.contains_key(key))
    return missing.then(default.cast(site.result.polars())).otherwise(found)


@method()
def len_(value: Mapped) -> Whole:
    """Return the number of keys.

    >>> values(col("d").dict.len(), d=[{"a": 1, "b": 2}])
    [2]
    """
    return value.list.len()


@method()
def contains(value: Mapped, key: Text) -> Truth:
    """Test if the dict has a key.

    >>> values(col("d").dict.contains("a"), d=[{"a": 1}, {"b": 2}])
    [True, False]
    """
    return pl.when(key.is_not_null()).then(value.list.to_map().map.contains_key(key))
