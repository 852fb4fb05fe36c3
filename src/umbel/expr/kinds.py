"""Parameter kinds of expression functions: operands, constants, and lambdas over list elements.

The names at the end are annotations for builders: `def lower(text: Text) -> Text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import polars as pl

from umbel.expr.lattice import Null
from umbel.types.dtypes import Bool, Datetime, Dict, DType, Float, Int, List, Optional, Str, Struct, Window


@dataclass(frozen=True, slots=True)
class Kind:
    """The types accepted for an operand.

    Args:
        name: for errors and docs.
        plain: the types it may have, Optional and restrictions aside; any when empty.
        elements: for lists, the types their elements may have; any when empty.
        optional: whether it may be Optional.
    """

    name: str
    plain: tuple[type[DType], ...] = ()
    elements: tuple[type[DType], ...] = ()
    optional: bool = True

    def accepts(self, dtype: DType) -> bool:
        """Return True if an operand may have this type."""
        if dtype.is_optional and not self.optional:
            return False
        if isinstance(dtype, Null) or not self.plain:
            return True
        plain = dtype.plain
        return isinstance(plain, self.plain) and (not self.elements or _has_elements(plain, self.elements))

    def settle(self, dtype: DType) -> DType:
        """Return an operand's type; a null literal takes the kind's default type, if any."""
        if not isinstance(dtype, Null) or not self.plain:
            return dtype
        definite = self.result
        return dtype if definite is None else Optional(definite)

    @property
    def result(self) -> DType | None:
        """The default type of this kind, without parameters; Int for numbers."""
        first = self.plain[0] if self.plain else None
        return first() if first in (Int, Float, Bool, Str, Datetime) else None


def _has_elements(dtype: DType, allowed: tuple[type[DType], ...]) -> bool:
    return isinstance(dtype, List) and isinstance(dtype.of.plain, allowed)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant parameter, not an expression.

    Args:
        name: for docs.
        parse: checks and normalises the value when the expression is made.
        check: refuses the value when the expression is typed.
    """

    name: str
    parse: Callable[[Any], Any] = lambda value: value
    check: Callable[[Any], object] = lambda value: None


@dataclass(frozen=True, slots=True)
class Lambda:
    """A lambda parameter: an expression over the elements of the first operand.

    The element is bound to the variable named by the constant before it.
    """

    name: str = "expression"
    of: Kind = Kind("any")


Role = Kind | Constant | Lambda


@dataclass(frozen=True, slots=True)
class Body:
    """A lambda as passed to its builder.

    Its Polars expressions are evaluated inside of `list.eval` over the first operand.
    """

    element: pl.Expr
    value: pl.Expr


@dataclass(frozen=True, slots=True)
class Guarded:
    """A value with its error condition over rows."""

    value: pl.Expr
    failure: pl.Expr
    reason: str


@dataclass(frozen=True, slots=True)
class Site:
    """The call context available to a type rule and a builder, beyond operand values.

    Args:
        types: the types of the operands (of a lambda: the type of its result).
        constants: the constants by name.
        zone: the time zone of the first operand.
        is_certain: whether every value is needed; if so, a builder may raise during evaluation.
        result: the type of the result; known to the builder.
    """

    types: tuple[DType, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    zone: str = "UTC"
    is_certain: bool = True
    result: DType = field(default_factory=Null)

    @property
    def is_whole(self) -> bool:
        """True if all operands are ints."""
        return all(isinstance(dtype.plain, Int) for dtype in self.types)


_NUMBERS = (Int, Float)

Number = Annotated[pl.Expr, Kind("int or float", _NUMBERS)]
Whole = Annotated[pl.Expr, Kind("int", (Int,))]
Count = Annotated[pl.Expr, Kind("int that is not Optional", (Int,), optional=False)]
Real = Annotated[pl.Expr, Kind("float", (Float,))]
Truth = Annotated[pl.Expr, Kind("bool", (Bool,))]
Text = Annotated[pl.Expr, Kind("str", (Str,))]
Instant = Annotated[pl.Expr, Kind("datetime", (Datetime,))]
Items = Annotated[pl.Expr, Kind("list", (List,))]
Numbers = Annotated[pl.Expr, Kind("list of int or float", (List,), _NUMBERS)]
Truths = Annotated[pl.Expr, Kind("list of bool", (List,), (Bool,))]
Record = Annotated[pl.Expr, Kind("struct", (Struct, Window))]
Mapped = Annotated[pl.Expr, Kind("dict", (Dict,))]
Anything = Annotated[pl.Expr, Kind("any")]
