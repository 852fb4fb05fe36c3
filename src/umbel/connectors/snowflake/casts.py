"""Writing values to Snowflake: their text, and expressions that cast it exactly.

All values of a row are sent as text, or null. A column whose type has no exact form of a field's values is refused: a cast of
Snowflake rounds what has too many digits.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from umbel.connectors.snowflake.columns import type_name
from umbel.connectors.sql.columns import JSON, Column
from umbel.errors import InvalidValue
from umbel.types import dtypes
from umbel.types.epochs import EPOCH

MICROSECOND = timedelta(microseconds=1)
_PLACES = 6
"""The digits of the fraction of a second that an instant has."""
_FLOATS = {"Infinity": "inf", "-Infinity": "-inf"}


@dataclass(frozen=True, slots=True)
class Cast:
    """The way from a value of a field to one of a column.

    Args:
        name: of the field.
        column: the column's quoted name.
        text: returns the text of a value as JSON, which is not null.
        expression: casts `{}`, an expression of text.
        is_json: whether values are compared by their JSON.
    """

    name: str
    column: str
    text: Callable[[Any], str]
    expression: str
    is_json: bool

    def same(self, own: str, other: str, *, or_null: bool) -> str:
        """Return the condition that two expressions of the column's type are equal.

        Args:
            own: one expression.
            other: the other one.
            or_null: whether null equals null.
        """
        one, two = (f"TO_JSON({each}::VARIANT)" if self.is_json else each for each in (own, other))
        return f"EQUAL_NULL({one}, {two})" if or_null else f"{one} = {two}"


def cast_of(name: str, dtype: dtypes.DType, column: Column, quoted: str) -> Cast:
    """Return the cast of a field to a column.

    Args:
        name: of the field.
        dtype: of the field.
        column: as the table describes it.
        quoted: the column's name in statements.

    Raises:
        InvalidValue: the column cannot hold each value of the type as it is.
    """
    base = type_name(column.type)
    if base == "VARCHAR" and not isinstance(dtype.plain, dtypes.Bytes):
        return Cast(name, quoted, _plain, "{}", False)
    _, text, forms = _form(dtype)
    if base in forms and _is_exact(dtype.plain, column):
        return Cast(name, quoted, text, forms[base].replace("NUMBER", column.type), column.kind == JSON)
    raise InvalidValue(
        f"column {quoted} of type {column.type} cannot hold each value of field '{name}' of type {dtype}",
        hint=f"let the column be of type {_proposed(dtype)}",
    )


def _is_exact(dtype: dtypes.DType, column: Column) -> bool:
    """Return whether a column has room for all digits of a fraction."""
    found = [int(each) for each in re.findall(r"\d+", column.type)]
    if isinstance(dtype, dtypes.Decimal) and type_name(column.type) == "NUMBER":
        return (column.scale or 0) >= dtype.scale
    return not isinstance(dtype, dtypes.Datetime) or not found or found[0] >= _PLACES


def _form(dtype: dtypes.DType) -> tuple[Any, Callable[[Any], str], dict[str, str]]:
    return next(each for each in _FORMS if isinstance(dtype.plain, each[0]))


def _proposed(dtype: dtypes.DType) -> str:
    first, plain = next(iter(_form(dtype)[2])), dtype.plain
    return f"NUMBER(38, {plain.scale if isinstance(plain, dtypes.Decimal) else 0})" if first == "NUMBER" else first


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _float(value: Any) -> str:
    return _FLOATS.get(value, value) if isinstance(value, str) else repr(value)


def _hex(value: str) -> str:
    return base64.b64decode(value).hex()


def _epoch(value: str) -> str:
    return str((datetime.fromisoformat(value) - EPOCH) // MICROSECOND)


_NUMBERS = {"NUMBER": "{}::NUMBER", "DECFLOAT": "{}::DECFLOAT"}
_TIMES = {each: f"TO_{each}({{}}::INTEGER, {_PLACES})" for each in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TIMESTAMP_TZ")}
_ARRAYS = {"ARRAY": "PARSE_JSON({})::ARRAY", "VARIANT": "PARSE_JSON({})"}
_OBJECTS = {"OBJECT": "PARSE_JSON({})::OBJECT", "VARIANT": "PARSE_JSON({})"}
_FORMS: list[tuple[Any, Callable[[Any], str], dict[str, str]]] = [
    (dtypes.Int, _plain, _NUMBERS),
    (dtypes.Decimal, _plain, _NUMBERS),
    (dtypes.Float, _float, {"FLOAT": "{}::FLOAT"}),
    (dtypes.Bool, _plain, {"BOOLEAN": "{}::BOOLEAN"}),
    (dtypes.Str, _plain, {"VARCHAR": "{}"}),
    (dtypes.Bytes, _hex, {"BINARY": "TO_BINARY({}, 'HEX')"}),
    (dtypes.Date, _plain, {"DATE": "TO_DATE({}, 'YYYY-MM-DD')"}),
    (dtypes.Datetime, _epoch, _TIMES),
    (dtypes.List | dtypes.Embedding, _plain, _ARRAYS),
    (dtypes.Dict | dtypes.Record, _plain, _OBJECTS),
]
"""The types of fields, the text of their values, and the casts by the types of columns."""
