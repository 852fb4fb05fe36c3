"""Steps that replace values by others."""

from __future__ import annotations

from functools import cached_property
from math import isfinite
from typing import Any

import polars as pl

from umbel.transform.native import ColumnKind, Native, NotNative
from umbel.transform.parameters import parameter
from umbel.transform.registry import TransformStep, step
from umbel.transform.values import copied, dump

_KINDS: dict[type, ColumnKind] = {
    str: ColumnKind.TEXT,
    int: ColumnKind.INT,
    float: ColumnKind.FLOAT,
    bool: ColumnKind.BOOL,
}


def _constant(value: Any, kind: ColumnKind) -> pl.Expr:
    if _KINDS.get(type(value)) is not kind or not _is_plain(value):
        raise NotNative("a constant of another type than the values")
    return pl.lit(value, dtype=kind.polars)


def _is_plain(value: Any) -> bool:
    """Return True unless a value is a number that columns or JSON cannot have."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value) is not float or isfinite(value)


@step
class DefaultStep(TransformStep):
    """Replace null, and with it a missing field, by a value."""

    name = "default"
    takes_null = True
    value: Any = parameter("The value in place of null.")

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return copied(self.value) if value is None else value

    def native(self, value: Native) -> Native:
        kind = _KINDS.get(type(self.value), ColumnKind.NULL) if value.kind is ColumnKind.NULL else value.kind
        return value.then(value.expr.cast(kind.polars).fill_null(_constant(self.value, kind)), kind)


@step
class MapValuesStep(TransformStep):
    """Replace the values that `values` names by theirs.

    All others, and null, are replaced by `default`.
    """

    name = "map_values"
    takes_null = True
    values: dict[str, Any] = parameter("The new value of each old one.")
    default: Any = parameter("The new value of all others.", default=None)

    @cached_property
    def _by_text(self) -> dict[bytes, Any]:
        return {dump(old): new for old, new in self.values.items()}

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return copied(self.default if value is None else self._by_text.get(dump(value), self.default))

    def native(self, value: Native) -> Native:
        text = value.of_kind(ColumnKind.TEXT)
        olds = [old for old in self.values if type(old) is str]
        news = [self.values[old] for old in olds]
        kinds = {
            _KINDS.get(type(each), ColumnKind.NULL)
            for each in [*news, *([] if self.default is None else [self.default])]
        }
        if len(kinds) != 1 or kinds == {ColumnKind.NULL} or not all(map(_is_plain, news)):
            raise NotNative("new values of several types")
        kind = kinds.pop()
        default = None if self.default is None else _constant(self.default, kind)
        found = text.expr.replace_strict(
            olds, pl.Series(news, dtype=kind.polars), default=default, return_dtype=kind.polars
        )
        return text.then(found if default is None else found.fill_null(default), kind)
