"""Functions of structs: `.struct`."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl

from umbel.errors import did_you_mean
from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.kinds import Constant, Record, Site
from umbel.expr.registry import method
from umbel.types import dtypes
from umbel.types.dtypes import DType


def _field(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidExprException(
            f"struct.get takes the name of a field, not {name!r} ({type(name).__name__})", hint='.struct.get("field")'
        )
    return name


Field = Annotated[str, Constant("field", _field)]


def _type_of_field(site: Site) -> DType:
    struct, field = site.types[0].plain, site.constants["field"]
    members = dict(struct.members()) if isinstance(struct, dtypes.Record) else {}
    if field not in members:
        raise compile_error(f"struct {struct} has no field '{field}'{did_you_mean(field, members)}")
    return members[field]


@method(rule=_type_of_field)
def get(value: Record, field: Field) -> pl.Expr:
    """Return the value of a field.

    >>> values(col("p").struct.get("x"), p=[Point(1, 2)])
    [1]
    """
    return value.struct.field(field)
