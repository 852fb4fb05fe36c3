"""Conversion of JSON values to type inputs: texts to bytes, NaN and infinities."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import polars as pl

from umbel.errors import InvalidValue
from umbel.types import dtypes
from umbel.types.dtype import describe, is_nan
from umbel.types.raw import column_of

Turn = Callable[[Any], Any]
"""Converts one value, not null, to another form."""

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
UNTYPED_NAN = "\0NaN"
"""The text for a NaN whose type the sender does not know: null unless it is a float. "NaN" may be a text of a user."""
NUL = rb"\u0000"
"""The first character of `UNTYPED_NAN` as JSON has it."""


def revive(frame: pl.DataFrame, types: Mapping[str, dtypes.DType]) -> pl.DataFrame:
    """Convert the JSON values of columns of known types; invalid values stay unchanged."""
    turns = {name: reader(dtype) for name, dtype in types.items() if name in frame.columns}
    changed = {name: lenient(turn) for name, turn in turns.items() if turn and _may_change(turn, frame[name])}
    return frame.with_columns(column_of(name, each(turn, frame[name].to_list())) for name, turn in changed.items())


def _may_change(turn: Turn, column: pl.Series) -> bool:
    if column.dtype == pl.String and turn is _read_special:
        return bool(column.is_in(list(SPECIAL)).any())
    return column.dtype in (pl.String, pl.Object)


def each(turn: Turn | None, values: Sequence[Any]) -> list[Any]:
    """Return values converted to another form; null stays null."""
    if turn is None or (turn is _read_special and str not in set(map(type, values))):
        return list(values)
    return [None if value is None else turn(value) for value in values]


def lenient(turn: Turn | None) -> Turn | None:
    """Return a converter leaving values refused by `turn` unchanged."""

    def attempt(value: Any) -> Any:
        try:
            return turn(value) if turn else value
        except InvalidValue:
            return value

    return turn and attempt


def with_nan(value: Any, data: bytes) -> Any:
    """Return a JSON value with NaN for each `UNTYPED_NAN`.

    Lists and objects in it are changed.

    Args:
        value: the value.
        data: its JSON text, or one with this in it.
    """
    if NUL not in data:
        return value
    found = [value]
    waiting: list[Any] = [found]
    while waiting:  # parsers nest deeper than Python calls
        each = waiting.pop()
        for place, inner in each.items() if isinstance(each, dict) else enumerate(each):
            if isinstance(inner, list | dict):
                waiting.append(inner)
            elif inner == UNTYPED_NAN:
                each[place] = math.nan
    return found[0]


@singledispatch
def reader(dtype: dtypes.DType) -> Turn | None:
    """Return a converter from JSON values to a type's input, None if unneeded."""
    return None


@reader.register
def _(dtype: dtypes.Optional | dtypes.Restricted) -> Turn | None:
    return reader(dtype.of)


@reader.register
def _(dtype: dtypes.Float | dtypes.Decimal) -> Turn | None:
    return _read_special


def _read_special(value: Any) -> Any:
    return SPECIAL.get(value, value) if isinstance(value, str) else value


@reader.register
def _(dtype: dtypes.Bytes) -> Turn | None:
    return _read_bytes


def _read_bytes(value: Any) -> Any:
    if is_nan(value):
        return value
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise InvalidValue(f"expected bytes in base64, got {describe(value)}", hint='"AP8=" is two bytes')


@reader.register
def _(dtype: dtypes.List) -> Turn | None:
    turn = reader(dtype.of)
    return turn and (lambda values: each(turn, values) if isinstance(values, list) else values)


@reader.register
def _(dtype: dtypes.Embedding) -> Turn | None:
    return lambda values: each(_read_special, values) if isinstance(values, list) else values


@reader.register
def _(dtype: dtypes.Dict) -> Turn | None:
    turn = reader(dtype.of)
    return turn and (lambda record: _entries(record, turn) if _is_object(record) else record)


@reader.register
def _(dtype: dtypes.Record) -> Turn | None:
    turns = {name: turn for name, of in dtype.members() if (turn := reader(of))}
    return (lambda record: _fields(record, turns) if _is_object(record) else record) if turns else None


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _entries(record: Mapping[str, Any], turn: Turn) -> dict[str, Any]:
    return dict(zip(record, each(turn, list(record.values())), strict=True))


def _fields(record: Mapping[str, Any], turns: Mapping[str, Turn]) -> dict[str, Any]:
    found = dict(record)
    for name, turn in turns.items():
        if found.get(name) is not None:
            found[name] = turn(found[name])
    return found
