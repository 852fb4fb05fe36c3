"""JSON values as Python's `json` has them: reading and writing of one record.

Integers have any size, NaN and the infinities are numbers, texts may have lone surrogates, the last of equal keys counts.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import orjson

from umbel.formats.chunks import MAX_ROW

_decode = msgspec.json.Decoder().decode
_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATETIME
_CONTAINERS = {dict, list}
_SURROGATE = re.compile("[\ud800-\udfff]")
_SMALL = re.compile(r'"(?:[^"\\]|\\.)*"|([0-9])(?:\.([0-9]+))?e-0([5-9])')
"""A text, or a number that Python writes in another form than orjson and Polars."""


class BadRecord(ValueError):
    """A line that is not a JSON object."""


def parse(line: bytes) -> dict[str, Any]:
    """Return the record of a line.

    Raises:
        BadRecord: the line is not a JSON object, is nested too deeply or is too long.
    """
    if len(line) > MAX_ROW:
        raise BadRecord(f"a record of {len(line)} bytes is longer than {MAX_ROW}")
    return read(line)


def read(line: bytes) -> dict[str, Any]:
    """Return the record of a line of any length.

    Raises:
        BadRecord: the line is not a JSON object, or is nested too deeply.
    """
    try:
        value = _decode(line)
    except (ValueError, RecursionError):  # Python's json reads NaN and lone surrogates
        value = _parse_slowly(line)
    if type(value) is not dict:
        raise BadRecord(f"a record is a JSON object, found {type(value).__name__}")
    return value


def _parse_slowly(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except RecursionError:
        raise BadRecord("the record is nested too deeply") from None
    except ValueError as error:
        raise BadRecord(f"broken JSON: {error}") from None


def copied(value: Any) -> Any:
    """Return a copy of a value of JSON that shares nothing with it."""
    if type(value) is dict:
        return {name: copied(each) if type(each) in _CONTAINERS else each for name, each in value.items()}
    if type(value) is list:
        return [copied(each) if type(each) in _CONTAINERS else each for each in value]
    return value


def dump(value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8.

    Datetimes are RFC 3339 in UTC, decimals are texts, NaN and infinities are `NaN`, `Infinity`, `-Infinity`.

    Raises:
        TypeError, ValueError, RecursionError: the value has no form in JSON.
    """
    try:
        found = orjson.dumps(value, default=_plain, option=_OPTIONS)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate, a key that is not a text
        return _dump_slowly(value)
    return _dump_slowly(value) if b"null" in found and _has_odd_float(value) else found


def instant_text(value: datetime) -> str:
    """Return an instant in RFC 3339 with `Z`; a naive one is in UTC."""
    offset = value.utcoffset()
    plain = value.replace(tzinfo=None) - offset if offset else value.replace(tzinfo=None)
    return f"{plain.isoformat()}Z"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


def _plain_as_fast(value: Any) -> Any:
    """Return a value that the faster encoder knows as it writes it."""
    try:
        return _plain(value)
    except TypeError:
        return json.loads(orjson.dumps(value, default=_plain, option=_OPTIONS))


def _dump_slowly(value: Any) -> bytes:
    text = json.dumps(value, default=_plain_as_fast, ensure_ascii=False, separators=(",", ":"))
    text = _SMALL.sub(_small_as_fast, text) if "e-0" in text else text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _small_as_fast(found: re.Match[str]) -> str:
    first, fraction, exponent = found.groups()
    if exponent is None:
        return found[0]
    if exponent == "5":
        return f"0.0000{first}{fraction or ''}"
    return f"{first}.{fraction}e-{exponent}" if fraction else f"{first}e-{exponent}"


def _has_odd_float(value: Any) -> bool:
    if type(value) is float:
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_odd_float, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_odd_float, value))
