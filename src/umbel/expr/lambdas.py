"""Lambdas over list elements, with variable and outer columns resolved inside of `list.eval`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.expr.compiled import Compiled, Scope
from umbel.expr.errors import compile_error
from umbel.expr.steps import size, steps_of
from umbel.types.dtypes import DType, List
from umbel.types.nesting import apart

if TYPE_CHECKING:
    from umbel.expr.tree import Expr, Reference

ELEMENT = "element"
LARGEST_REPEATED = 400
"""Operators, columns and constants of a lambda that uses parts several times: for elements each use is computed."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A lambda ready for evaluation: its source lists, element expression and result expression."""

    source: pl.Expr
    element: pl.Expr
    body: Compiled


def check_body(body: Expr) -> None:
    """Refuse a lambda that would compute repeated parts too often.

    Raises:
        InvalidValue: it has repeated parts, and more than `LARGEST_REPEATED` operators, columns and constants.
    """
    if size(body) > LARGEST_REPEATED and steps_of([body]) is not None:
        raise compile_error(
            f"the expression over the elements of a list has {size(body):,} operators, columns and constants, with those of "
            f"a part each time that it is used; {LARGEST_REPEATED} are possible",
            "compute it in steps: a .list.map for each part",
        )


def bind(variable: str, items: Compiled, body: Expr, scope: Scope) -> Bound:
    """Compile the body of a lambda over `items`.

    Polars evaluates the elements of a list without the rest of the row, so the columns read by the body are first
    repeated for each element.
    """
    listed = items.dtype.plain
    assert isinstance(listed, List)
    references = sorted(body.references() - {("var", variable)})
    outer = {each: _outer(each, scope) for each in references if _is_outer(each, scope)}
    if not outer:
        element = pl.element()
        inner = Scope({}, scope.now, {variable: Compiled(element, listed.of)}, is_certain=scope.is_certain)
        return Bound(items.value, element, body.compile(inner))
    lists = {ELEMENT: items.value}
    lists |= {_field(each): found.value.repeat_by(items.value.list.len()) for each, found in outer.items()}
    types = {ELEMENT: listed.of, **{_field(each): found.dtype for each, found in outer.items()}}
    element = pl.element().struct.field(ELEMENT)
    beside = {each: Compiled(pl.element().struct.field(_field(each)), found.dtype) for each, found in outer.items()}
    inner = _inner_scope(scope, {**beside, ("var", variable): Compiled(element, listed.of)})
    return Bound(zip_lists(lists, types), element, body.compile(inner))


def _field(reference: Reference) -> str:
    return ":".join(reference)


def _is_outer(reference: Reference, scope: Scope) -> bool:
    return reference[0] != "now" or bool(scope.now.meta.root_names())


def _outer(reference: Reference, scope: Scope) -> Compiled:
    from umbel.expr.leaves import leaf

    return leaf(reference).compile(scope)


def _inner_scope(scope: Scope, names: Mapping[Reference, Compiled]) -> Scope:
    columns = {name: found for (kind, name), found in names.items() if kind == "col"}
    now = names.get(("now", ""))
    return Scope(
        {name: found.dtype for name, found in columns.items()},
        scope.now if now is None else now.value,
        {name: found for (kind, name), found in names.items() if kind == "var"},
        {name: found.value for name, found in columns.items()},
        scope.is_certain,
    )


def zip_lists(lists: Mapping[str, pl.Expr], types: Mapping[str, DType]) -> pl.Expr:
    """Zip lists to structs, cut to the shortest; null if any list is null."""
    row = pl.Struct({name: dtype.polars() for name, dtype in types.items()})
    packed = pl.struct([each.alias(name) for name, each in lists.items()])
    return packed.map_batches(lambda rows: _zip(rows, row), return_dtype=pl.List(row), is_elementwise=True)


def _zip(rows: pl.Series, row: pl.Struct) -> pl.Series:
    columns = rows.struct.unnest()
    lists = [apart(each) for each in columns]
    lengths = lists[0].lengths
    if not all(each.valid.all() and np.array_equal(each.lengths, lengths) for each in lists):
        lists = [apart(each) for each in _cut(columns)]
    flat = pl.DataFrame(dict(zip(columns.columns, (each.inner for each in lists), strict=True)))
    return lists[0].together(flat.to_struct().cast(row)).alias(rows.name)


def _cut(columns: pl.DataFrame) -> pl.DataFrame:
    """Cut the lists of a row to its shortest one."""
    valid = columns.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
    shortest = columns.select(pl.min_horizontal(pl.all().list.len())).to_series()
    return columns.select(pl.when(valid).then(pl.all().list.head(pl.lit(shortest))))
