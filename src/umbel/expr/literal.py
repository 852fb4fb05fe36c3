"""Constants in expressions."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.errors import InvalidType, InvalidValue
from umbel.expr.compiled import Compiled, Scope
from umbel.expr.errors import InvalidExprException
from umbel.expr.lattice import Null
from umbel.expr.text import constant_text
from umbel.expr.tree import Expr
from umbel.expr.type_records import type_from_record, type_to_record
from umbel.types.dtypes import Bool, DType, Float, Int, Str
from umbel.types.text import exact

_INFERRED: dict[type, DType] = {bool: Bool(), int: Int(), float: Float(), str: Str(), type(None): Null()}

# Keys that tag values without a JSON form; no struct has such a field.
_BASE64, _FLOAT = "$base64", "$float"
_REVIVE: dict[str, Callable[[str], Any]] = {_BASE64: base64.b64decode, _FLOAT: float}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Expr):
    """A constant.

    Args:
        value: in Polars' storage form.
        of: its type.
    """

    tag: ClassVar[str] = "lit"

    value: Any
    of: DType

    @property
    def is_bare(self) -> bool:
        """True if the type can be inferred from the Python constant alone."""
        return _INFERRED.get(type(self.value)) == self.of

    def __str__(self) -> str:
        written = constant_text(self.value if self.is_bare else _plain(self.value))
        return f"lit({written})" if self.is_bare else f"lit({written}, {self.of})"

    def as_argument(self) -> str:
        return constant_text(self.value) if self.is_bare else str(self)

    def compile(self, scope: Scope) -> Compiled:
        stored = self.of.polars()
        if stored.is_nested():
            return Compiled(pl.lit(pl.Series([self.value], dtype=stored)).first(), self.of)
        # Polars makes a literal with a dtype through a series, ten times as slow as a cast.
        return Compiled(pl.lit(self.value).cast(stored), self.of)

    def to_record(self) -> dict[str, Any]:
        return {"node": self.tag, "value": _plain(self.value), "type": type_to_record(self.of)}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Literal:
        return lit(_revived(record["value"]), type_from_record(record["type"]))


def lit(value: Any, type: Any = None) -> Literal:
    """Make a constant.

    Args:
        value: an int, float, str, bool or None; anything JSON-able with a type.
        type: its type; needed for lists, dicts, structs, datetimes and decimals.
    Errors: InvalidExprException "cannot infer type"; InvalidValue for a value outside the type.

    >>> values(col("amount") + lit(5), amount=[10, 7])
    [15, 12]
    >>> lit([1, 2], List[int]).typeof()
    typing.List[int]
    """
    if type is None:
        return _inferred(value)
    dtype = type if isinstance(type, DType) else _dtype(type)
    if isinstance(dtype, Null):
        return Literal(None, dtype)
    checked = dtype.ingest([value])
    if checked.errors:
        raise InvalidValue(
            f"lit: {value!r} is not a {dtype}: {checked.errors[0]}", hint="lit(value, type) takes values of that type"
        )
    return Literal(checked.values.to_list()[0], dtype)


def _dtype(annotation: Any) -> DType:
    from umbel.types.annotations import from_annotation

    return from_annotation(annotation)


def _inferred(value: Any) -> Literal:
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
    if isinstance(plain, str):
        return Literal(exact(plain), Str())
    for kind, dtype in _INFERRED.items():
        if isinstance(plain, kind):
            return _checked(kind(plain) if plain is not None else None, dtype)
    if callable(value):
        raise InvalidType(f"a function cannot be part of an expression: {value!r}", hint="use expressions throughout")
    raise InvalidExprException(
        f"cannot infer type of {value!r} ({value.__class__.__name__}) in an expression", hint="use lit(value, type)"
    )


def _checked(value: Any, dtype: DType) -> Literal:
    if isinstance(dtype, Int) and not -(2**63) <= value < 2**63:
        raise InvalidValue(f"lit: {value} does not fit in 64 bits", hint="use a float or a text")
    return Literal(value, dtype)


def _plain(value: Any) -> Any:
    """Return a stored value in JSON-serialisable form."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return {_BASE64: base64.b64encode(value).decode()}
    if isinstance(value, dt.date | decimal.Decimal):
        return value.isoformat() if isinstance(value, dt.date) else str(value)
    return {_FLOAT: str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _revived(value: Any) -> Any:
    """Return a value written by `_plain` in a form accepted by types."""
    if isinstance(value, Mapping):
        [first, *_] = value
        if first in _REVIVE:
            return _REVIVE[first](value[first])
        return {name: _revived(each) for name, each in value.items()}
    return [_revived(each) for each in value] if isinstance(value, list) else value
