"""Functions of lists: `.list`."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl

from umbel.expr.arithmetic import checked
from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.kinds import (
    Anything,
    Body,
    Constant,
    Count,
    Items,
    Kind,
    Lambda,
    Numbers,
    Real,
    Site,
    Truth,
    Truths,
    Whole,
)
from umbel.expr.lattice import Null, lifted, optional
from umbel.expr.registry import Built, method
from umbel.expr.rules import listed, perhaps_element
from umbel.types.dtypes import Bool, DType, Float, Int, List


def _variable(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidExprException(f"a variable is named by a str, not {name!r}", hint='.list.map("x", var("x") + 1)')
    return name


Name = Annotated[str, Constant("variable", _variable)]
Mapping = Annotated[Body, Lambda()]
Predicate = Annotated[Body, Lambda("predicate", Kind("bool that is not Optional", (Bool,), optional=False))]


def _has_null(items: pl.Expr) -> pl.Expr:
    return items.list.eval(pl.element().is_null()).list.any()


def _unless_null(items: pl.Expr, value: pl.Expr) -> pl.Expr:
    return pl.when(~_has_null(items)).then(value)


def _whole(items: pl.Expr) -> pl.Expr:
    """Return lists with zeros in place of null elements.

    Polars adds floats up in another order where any list of a batch has a null; other rows must not change the last bit.
    """
    return items.list.eval(pl.element().fill_null(0))  # elementwise, where drop_nulls makes a group of each list


@method()
def len_(items: Items) -> Whole:
    """Return the number of elements, nulls counted.

    >>> values(col("l").list.len(), l=[[1, None], []])
    [2, 0]
    """
    return items.list.len()


def _total(site: Site) -> DType:
    element = listed(site).of
    return lifted(Int() if isinstance(element.plain, Int) else Float(), element.is_optional)


@method(rule=_total)
def sum_(items: Numbers, site: Site) -> Built:
    """Return the sum; 0 for an empty list, null if an element is null.

    >>> values(col("l").list.sum(), l=[[1, 2], []])
    [3, 0]
    """
    total = _unless_null(items, _whole(items).list.sum())
    if isinstance(site.result.plain, Float):
        return pl.when(items.list.len() == 0).then(0.0).otherwise(total)  # Polars adds to -0.0
    return checked(total, items.cast(pl.List(pl.Float64)).list.sum(), is_whole=True)


@method(rule=perhaps_element)
def min_(items: Numbers) -> pl.Expr:
    """Return the smallest element; null for an empty list or a null element.

    >>> values(col("l").list.min(), l=[[3, 1], []])
    [1, None]
    """
    return _unless_null(items, items.list.min())


@method(rule=perhaps_element)
def max_(items: Numbers) -> pl.Expr:
    """Return the largest element; null for an empty list or a null element.

    >>> values(col("l").list.max(), l=[[3, 1], []])
    [3, None]
    """
    return _unless_null(items, items.list.max())


@method(rule=lambda site: optional(Float()))
def mean(items: Numbers) -> Real:
    """Return the mean; null for an empty list or a null element.

    >>> values(col("l").list.mean(), l=[[3, 1], []])
    [2.0, None]
    """
    return _unless_null(items, _whole(items).list.mean())


def _truth(site: Site) -> DType:
    return lifted(Bool(), listed(site).of.is_optional)


@method(rule=_truth)
def all_(items: Truths) -> Truth:
    """Test if all elements are true; True for an empty list, null with null elements.

    >>> values(col("l").list.all(), l=[[True, False], []])
    [False, True]
    """
    return _unless_null(items, items.list.all())


@method(rule=_truth)
def any_(items: Truths) -> Truth:
    """Test if any element is true; False for an empty list.

    Null if no element is true and one is null.

    >>> values(col("l").list.any(), l=[[True, False], []])
    [True, False]
    """
    return pl.when(items.list.any()).then(pl.lit(True)).otherwise(_unless_null(items, items.list.any()))


def _contained(site: Site) -> DType:
    element, item = listed(site).of, site.types[1]
    fits = element.is_optional if isinstance(item, Null) else item.plain == element.plain
    if not fits:
        raise compile_error(f"list.contains cannot look for {item} in {site.types[0]}")
    return lifted(Bool(), element.is_optional)


@method(rule=_contained)
def contains(items: Items, item: Anything, site: Site) -> Truth:
    """Test if a list contains an item.

    If it does not: null if the item or an element is null and the list is not empty, else False.

    >>> values(col("l").list.contains(2), l=[[1, 2], [3]])
    [True, False]
    """
    requested = item.cast(listed(site).of.polars())
    found = items.list.contains(requested, nulls_equal=False)
    unknown = _has_null(items) | requested.is_null()
    return pl.when(items.list.len() == 0).then(pl.lit(False)).when(found | ~unknown).then(found)


@method(rule=perhaps_element)
def at(items: Items, index: Count) -> pl.Expr:
    """Return the element at an index, negative from the end; null if out of range.

    >>> values(col("l").list.at(-1), l=[[1, 2], []])
    [2, None]
    """
    known = pl.when(index > -(2**63)).then(index)  # Polars negates the index
    return items.list.get(known, null_on_oob=True)


@method()
def hasnull(items: Items) -> Truth:
    """Test if any element is null.

    >>> values(col("l").list.hasnull(), l=[[1, None], [1]])
    [True, False]
    """
    return _has_null(items)


@method(lifts=False, rule=lambda site: lifted(List(site.types[1]), site.types[0].is_optional))
def map_(items: Items, var: Name, expr: Mapping) -> pl.Expr:
    """Apply an expression to each element, bound to the variable; return the list of results.

    >>> values(col("l").list.map("x", var("x") * 2), l=[[1, 2], []])
    [[2, 4], []]
    """
    return items.list.eval(expr.value)


@method(rule=listed)
def filter_(items: Items, var: Name, expr: Predicate) -> pl.Expr:
    """Return the elements satisfying a condition; the variable is bound to the element.

    >>> values(col("l").list.filter("x", var("x") > 1), l=[[1, 2], [0]])
    [[2], []]
    """
    return items.list.eval(expr.element.filter(expr.value))
