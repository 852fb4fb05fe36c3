"""The types of cursors: MongoDB compares a value with those of its own bracket only.

All numbers are one bracket, whatever their widths. A find from a value on returns no document whose cursor is of another
bracket, and says nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.json_util import DatetimeRepresentation, JSONMode, JSONOptions
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from umbel.types.epochs import EPOCH

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
JSON = JSONOptions(
    json_mode=JSONMode.CANONICAL,
    datetime_representation=DatetimeRepresentation.NUMBERLONG,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)
_MISSING = object()
_OTHERS = (
    "double", "int", "long", "decimal", "string", "object", "array", "binData", "objectId", "bool", "date", "regex",
    "javascript", "timestamp", "minKey", "maxKey",
)  # fmt: skip
"""The types of values by their names in `$type`, without null, which a missing field equals."""
_EARLIEST = -(2**63)


@dataclass(frozen=True, slots=True)
class Bracket:
    """Types whose values MongoDB compares with each other.

    Args:
        name: of the types, for messages.
        types: their names in `$type`.
        order: returns what orders the values in Python as the server does.
        before: returns the value some µs before another; None for values that are no times.
    """

    name: str
    types: tuple[str, ...]
    order: Callable[[Any], Any]
    before: Callable[[Any, int], Any] | None = None

    def has(self, value: Any) -> bool:
        """Return whether a value is of these types, and has an order, unlike NaN."""
        return _BY_TYPE.get(type(value)) is self and not _is_nan(value)

    def condition(self, low: Any = None) -> dict[str, Any]:
        """Return the condition on a cursor from a value on, None for all values."""
        return {"$type": list(self.types)} if low is None else {"$gte": low}

    def strays(self, cursor: str) -> dict[str, Any]:
        """Return the filter of documents with a cursor of other types, null or none.

        An index on the cursor can answer each of its conditions.
        """
        others = [each for each in _OTHERS if each not in self.types]
        found: list[dict[str, Any]] = [{cursor: {"$type": others}}, {cursor: None}]
        if self is NUMBER:
            found.append({cursor: math.nan})
        return {"$or": found}


def _is_nan(value: Any) -> bool:
    if isinstance(value, Decimal128):
        return value.to_decimal().is_nan()
    return isinstance(value, float) and math.isnan(value)


def _number(value: Any) -> Any:
    return value.to_decimal() if isinstance(value, Decimal128) else value


def _date_before(value: DatetimeMS, lookback: int) -> DatetimeMS:
    return DatetimeMS(max(int(value) - -(-lookback // 1000), _EARLIEST))


def _timestamp_before(value: Timestamp, lookback: int) -> Timestamp:
    return Timestamp(max(value.time - _seconds(lookback), 0), 0)


def _id_before(value: ObjectId, lookback: int) -> ObjectId:
    """Return the least id of an earlier second.

    Ids begin with their second, and clients make them in no order within one.
    """
    seconds = int.from_bytes(value.binary[:4], "big") - _seconds(lookback)
    return ObjectId(max(seconds, 0).to_bytes(4, "big") + bytes(8))


def _seconds(lookback: int) -> int:
    return -(-lookback // 1_000_000)


NUMBER = Bracket("number", ("double", "int", "long", "decimal"), _number)
STRING = Bracket("string", ("string",), lambda value: value.encode())
OBJECT_ID = Bracket("ObjectId", ("objectId",), lambda value: value.binary, _id_before)
DATE = Bracket("date", ("date",), int, _date_before)
TIMESTAMP = Bracket("timestamp", ("timestamp",), lambda value: (value.time, value.inc), _timestamp_before)
BRACKETS: Mapping[str, Bracket] = {each.name: each for each in (DATE, TIMESTAMP, OBJECT_ID, NUMBER, STRING)}
_BY_TYPE: Mapping[type, Bracket] = {
    **dict.fromkeys((int, Int64, float, Decimal128), NUMBER),
    str: STRING,
    ObjectId: OBJECT_ID,
    DatetimeMS: DATE,
    Timestamp: TIMESTAMP,
}


def value_at(document: Any, path: str) -> Any:
    """Return the value that a path with dots leads to; `_MISSING` for none."""
    value = document
    for name in path.split("."):
        if isinstance(value, list):
            return value  # the server compares each of its elements
        value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def type_name(value: Any) -> str:
    """Return the name of a value's type, for messages."""
    if value is _MISSING:
        return "missing"
    if _is_nan(value):
        return "NaN"
    found = _BY_TYPE.get(type(value))
    names = {type(None): "null", bool: "bool", list: "array", dict: "object", bytes: "binData"}
    return found.name if found else names.get(type(value), type(value).__name__)


def written(value: Any) -> str:
    """Return a value as text that `parsed` reads."""
    return json_util.dumps(value, json_options=JSON)


def parsed(text: str) -> Any:
    """Return a value that was `written`."""
    return json_util.loads(text, json_options=JSON)


def instant(milliseconds: int) -> datetime | None:
    """Return an instant, None beyond the years 1 to 9999."""
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def decoded(raw: bytes) -> Any:
    """Return the document in bytes of BSON.

    Raises:
        InvalidBSON: it is damaged, such as text that is not UTF-8.
    """
    return bson.decode(raw, codec_options=CODEC)
