"""Constructors of values: instants, lists and structs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

import polars as pl

from umbel.errors import InvalidType
from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.kinds import Anything, Constant, Count, Guarded, Items, Site, Whole
from umbel.expr.lambdas import zip_lists
from umbel.expr.lattice import matches
from umbel.expr.registry import Built, plain
from umbel.expr.tree import Expr, apply, at
from umbel.expr.units import MICROSECONDS, EpochUnit, Zone
from umbel.types.dtypes import Datetime, DType, List, Record, Restricted
from umbel.types.epochs import FIRST, LAST, YEARS
from umbel.types.nesting import apart

COPIES = 100_000
"""The largest count of `repeat`: a count in a row of input must not take all memory."""


def _part(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(
            f"datetime takes int constants, not {value!r} ({type(value).__name__})", hint="datetime(2024, 1, 31)"
        )
    return value


def _record(annotation: Any) -> DType:
    from umbel.expr.boundary import type_of

    dtype = type_of(annotation)
    if not isinstance(dtype, Record):
        raise InvalidExprException(f"expected a struct class, found {dtype}", hint="decorate a class with @struct")
    return dtype


Part = Annotated[int, Constant("int", _part)]
Names = Annotated[list[str], Constant("names", list)]
StructType = Annotated[DType, Constant("struct", _record)]


def _instant(site: Site) -> DType:
    try:
        _made(dict(site.constants))
    except (ValueError, OverflowError) as error:
        raise compile_error(f"datetime: {error}") from None
    return Datetime()


def _made(parts: dict[str, Any]) -> dt.datetime:
    zone = ZoneInfo(parts.pop("timezone"))
    return dt.datetime(**parts, tzinfo=zone).astimezone(dt.UTC)


@plain("function", rule=_instant)
def datetime_(
    year: Part,
    month: Part,
    day: Part,
    hour: Part = 0,
    minute: Part = 0,
    second: Part = 0,
    microsecond: Part = 0,
    timezone: Zone = "UTC",
    *,
    site: Site,
) -> pl.Expr:
    """Make a constant instant."""
    return at(_made(dict(site.constants)))


def datetime(
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    microsecond: int = 0,
    timezone: str = "UTC",
) -> Expr:
    """Make a constant instant, in a named time zone.

    >>> values(instant(2026, 3, 1, timezone="Europe/Rome"), x=[1])
    ['2026-02-28 23:00:00+00:00']
    """
    return apply("datetime", year, month, day, hour, minute, second, microsecond, timezone)


@plain("function", rule=lambda site: Datetime())
def from_epoch_(value: Whole, unit: EpochUnit) -> Built:
    """Make an instant from a number of units since 1970-01-01 UTC."""
    factor = MICROSECONDS[unit]
    outside = (value > LAST // factor) | (value < FIRST // factor)
    instant = (pl.when(~outside).then(value) * factor).cast(Datetime().polars())
    return Guarded(instant, outside, f"{YEARS}, in this unit ({unit})")


def from_epoch(value: Any, unit: str) -> Expr:
    """Make an instant from an int expression: seconds, milliseconds or microseconds since 1970-01-01 UTC.

    An instant before the year 1 or after the year 9999 is an error.

    >>> values(from_epoch(col("s"), "second"), s=[0, 86400])
    ['1970-01-01 00:00:00+00:00', '1970-01-02 00:00:00+00:00']
    """
    return apply("from_epoch", value, unit)


@plain("function", lifts=False, rule=lambda site: List(site.types[0]))
def repeat_(value: Anything, by: Count) -> Built:
    """Make a list of copies of a value."""
    outside = ~by.is_between(0, COPIES)
    copies = value.repeat_by(pl.when(outside).then(0).otherwise(by))
    return Guarded(copies, outside, f"repeat takes a count of 0 to {COPIES:,}")


def repeat(value: Any, by: Any) -> Expr:
    """Make a list of `by` copies of a value, 0 to 100,000.

    Another count is an error.

    >>> values(repeat(col("x"), 2), x=[1, 2])
    [[1, 1], [2, 2]]
    """
    return apply("repeat", value, by)


def _members(site: Site, types: tuple[DType, ...]) -> DType:
    struct, names = site.constants["struct"], site.constants["names"]
    members = dict(struct.members())
    if set(names) != set(members):
        raise compile_error(f"struct {struct} takes the fields {', '.join(members)}; found {', '.join(names)}")
    for name, found in zip(names, types, strict=True):
        if not matches(found, members[name]):
            raise compile_error(f"field '{name}' of struct {struct} takes {members[name]}, not {found}")
    return struct  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Restrictions:
    """The fields of structs whose values may be outside their restricted types.

    Args:
        fields: their types.
    """

    fields: Mapping[str, Restricted]

    @classmethod
    def among(cls, struct: Record, provided: Mapping[str, DType]) -> Self:
        """Return those of a struct, for fields of the provided types."""
        declared = {name: dtype.base for name, dtype in struct.members() if provided[name].base != dtype.base}
        return cls({name: base for name, base in declared.items() if isinstance(base, Restricted)})

    def guarded(self, value: pl.Expr, outside: Callable[[pl.Series], pl.Series]) -> Built:
        """Return the value; rows for which `outside` is true are in error."""
        if not self.fields:
            return value
        types = ", ".join(f"'{name}' {dtype}" for name, dtype in self.fields.items())
        failure = value.map_batches(outside, return_dtype=pl.Boolean(), is_elementwise=True)
        return Guarded(value, failure, f"a field of the struct is outside its type ({types})")

    def outside(self, structs: pl.Series) -> pl.Series:
        """Return a mask of the structs with a refused value."""
        columns = {name: structs.struct.field(name) for name in self.fields}
        masks = [dtype.outside(columns[name]).fill_null(value=False) for name, dtype in self.fields.items()]
        return reduce(or_, masks).alias(structs.name)

    def outside_lists(self, lists: pl.Series) -> pl.Series:
        """Return a mask of the lists with such a struct."""
        parts = apart(lists)
        assert isinstance(parts.inner, pl.Series)
        return parts.together(self.outside(parts.inner)).list.any().fill_null(value=False).alias(lists.name)


@plain("fields", lifts=False, rule=lambda site: _members(site, site.types))
def make_struct_(*values: Anything, names: Names, struct: StructType, site: Site) -> Built:
    """Make a struct from the values of its fields."""
    assert isinstance(struct, Record)
    provided = dict(zip(names, values, strict=True))
    made = pl.struct([provided[name].cast(dtype.polars()).alias(name) for name, dtype in struct.members()])
    restrictions = _Restrictions.among(struct, dict(zip(names, site.types, strict=True)))
    return restrictions.guarded(made, restrictions.outside)


def make_struct(fields: Mapping[str, Any], struct: Any) -> Expr:
    """Make a struct of a class from one expression per field.

    >>> values(make_struct({"x": col("a"), "y": lit(0)}, Point), a=[1])
    [Point(x=1, y=0)]
    """
    return apply("make_struct", *fields.values(), names=list(fields), struct=struct)


def _zipped(site: Site) -> DType:
    for name, dtype in zip(site.constants["names"], site.types, strict=True):
        if dtype.is_optional:
            raise compile_error(f"field '{name}' of zip takes a list that is not Optional, not {dtype}")
    return List(_members(site, _items(site)))


def _items(site: Site) -> tuple[DType, ...]:
    return tuple(dtype.plain.of for dtype in site.types if isinstance(dtype.plain, List))


@plain("fields", lifts=False, rule=_zipped)
def zip_struct_(*lists: Items, names: Names, struct: StructType, site: Site) -> Built:
    """Make a list of structs from one list per field, cut to the shortest."""
    assert isinstance(struct, Record)
    members, provided = dict(struct.members()), dict(zip(names, lists, strict=True))
    zipped = zip_lists({name: provided[name].cast(List(dtype).polars()) for name, dtype in members.items()}, members)
    restrictions = _Restrictions.among(struct, dict(zip(names, _items(site), strict=True)))
    return restrictions.guarded(zipped, restrictions.outside_lists)


def zip_struct(fields: Mapping[str, Any], struct: Any) -> Expr:
    """Make a list of structs from one list expression per field, cut to the shortest.

    `struct` is the class of the structs.

    >>> values(zip_struct({"x": col("a"), "y": col("b")}, Point), a=[[1, 2]], b=[[3]])
    [[Point(x=1, y=3)]]
    """
    return apply("zip_struct", *fields.values(), names=list(fields), struct=struct)
