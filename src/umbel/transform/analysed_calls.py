"""Functions and methods in the analysis of `custom_code`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import polars as pl

from umbel.transform.leaves import Leaves
from umbel.transform.native import ColumnKind, Native, NotNative, is_ascii, truth
from umbel.transform.steps.casts import CastStep
from umbel.transform.steps.text import WHITESPACE

Method = Callable[..., Native]


def _case(operate: Callable[[pl.Expr], pl.Expr]) -> Method:
    return lambda text: text.then(operate(text.expr), None, is_ascii(text.expr))


def _with_text(operate: Callable[[pl.Expr, str], pl.Expr], kind: ColumnKind) -> Method:
    def method(text: Native, argument: Any) -> Native:
        if type(argument) is not str:
            raise NotNative("an argument that is no text")
        return text.then(operate(text.expr, argument), kind)

    return method


def _replaced(text: Native, old: Any, new: Any) -> Native:
    if type(old) is not str or type(new) is not str or not old:
        raise NotNative("replace with other than texts")
    return text.then(text.expr.str.replace_all(old, new, literal=True))


METHODS: dict[str, tuple[int, Method]] = {
    "lower": (0, _case(lambda text: text.str.to_lowercase())),
    "upper": (0, _case(lambda text: text.str.to_uppercase())),
    "strip": (0, _case(lambda text: text.str.strip_chars(WHITESPACE))),
    "lstrip": (0, _case(lambda text: text.str.strip_chars_start(WHITESPACE))),
    "rstrip": (0, _case(lambda text: text.str.strip_chars_end(WHITESPACE))),
    "startswith": (1, _with_text(lambda text, other: text.str.starts_with(other), ColumnKind.BOOL)),
    "endswith": (1, _with_text(lambda text, other: text.str.ends_with(other), ColumnKind.BOOL)),
    "removeprefix": (1, _with_text(lambda text, other: text.str.strip_prefix(other), ColumnKind.TEXT)),
    "removesuffix": (1, _with_text(lambda text, other: text.str.strip_suffix(other), ColumnKind.TEXT)),
    "replace": (2, _replaced),
}
"""Methods of texts: the number of their constant arguments, and what they do."""


def _text(value: Native) -> Native:
    if value.kind is ColumnKind.TEXT:
        return _present(value)
    if value.kind is ColumnKind.INT:
        return _present(value).then(value.expr.cast(pl.String), ColumnKind.TEXT)
    if value.kind is ColumnKind.BOOL:
        word = pl.when(value.expr).then(pl.lit("True")).when(~value.expr).then(pl.lit("False"))
        return _present(value).then(word, ColumnKind.TEXT)
    raise NotNative(f"str of {value.kind.value}")


def _number(name: str) -> Callable[[Native], Native]:
    return lambda value: CastStep(type=name).native(
        _present(value.of_kind(ColumnKind.TEXT, ColumnKind.INT, ColumnKind.FLOAT, ColumnKind.BOOL))
    )


def _length(value: Native) -> Native:
    text = _present(value.of_kind(ColumnKind.TEXT))
    return text.then(text.expr.str.len_chars().cast(pl.Int64), ColumnKind.INT)


def _absolute(value: Native) -> Native:
    number = _present(value.of_kind(ColumnKind.INT, ColumnKind.FLOAT))
    return number.then(number.expr.abs(), None, number.expr > -(2**62))


def _present(value: Native) -> Native:
    return value.guarded(value.expr.is_not_null())


FUNCTIONS: dict[str, Callable[[Native], Native]] = {
    "str": _text,
    "int": _number("int"),
    "float": _number("float"),
    "bool": truth,
    "len": _length,
    "abs": _absolute,
}
"""Functions of one argument."""


def now_of(node: ast.Call, leaves: Leaves) -> Native | None:
    """Return the text of the current time, None if a call is another one.

    It is computed once per batch.
    """
    match node.func, node.args:
        case (
            ast.Attribute(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=kind), attr=now), args=[], keywords=[]),
                attr="strftime",
            ),
            [ast.Constant(value=str(layout))],
        ) if (kind, now) in _CLOCKS:
            clock = _CLOCKS[kind, now]
            return leaves.constant(lambda: clock().strftime(layout), ColumnKind.TEXT)
    return None


_CLOCKS: dict[tuple[str, str], Callable[[], date]] = {
    ("datetime", "now"): lambda: datetime.now(),  # noqa: DTZ005, PLW0108  looked up late; as the code says
    ("datetime", "utcnow"): lambda: datetime.utcnow(),  # noqa: DTZ003, PLW0108  as the code says
    ("date", "today"): lambda: date.today(),  # noqa: DTZ011, PLW0108  as the code says
}
