"""The binary form that MySQL stores JSON values in, converted to text.

Format: "JSON binary format" of MySQL's source documentation (`json_binary.h`). MariaDB stores JSON as text.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

import orjson

_INTEGERS = {0x05: "<h", 0x06: "<H", 0x07: "<i", 0x08: "<I", 0x09: "<q", 0x0A: "<Q"}
_LITERALS = {0: None, 1: True, 2: False}
_NEWDECIMAL, _DATE, _TIME, _TIMES = 246, 10, 11, frozenset({7, 10, 11, 12})


def json_text(data: bytes) -> str:
    """Return a stored value as text."""
    return "null" if not data else _written(_value(data[0], data, 1))


def _written(value: Any) -> str:
    """Return JSON text; decimals keep their digits, which no float would."""
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{orjson.dumps(name).decode()}: {_written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return orjson.dumps(value).decode()


class _Number:
    """A number by its digits."""

    def __init__(self, text: str) -> None:
        self.text = text


def _value(kind: int, data: bytes, at: int) -> Any:
    if kind <= 0x03:
        return _container(data[at:], is_object=kind <= 0x01, is_large=kind in {0x01, 0x03})
    if kind == 0x04:
        return _LITERALS[data[at]]
    if kind in _INTEGERS:
        return struct.unpack_from(_INTEGERS[kind], data, at)[0]
    if kind == 0x0B:
        return struct.unpack_from("<d", data, at)[0]
    if kind == 0x0C:
        size, at = _length(data, at)
        return data[at : at + size].decode()
    if kind == 0x0F:
        size, begin = _length(data, at + 1)
        return _opaque(data[at], data[begin : begin + size])
    raise LookupError(f"JSON type {kind}")


def _container(data: bytes, *, is_object: bool, is_large: bool) -> Any:
    """Return an object or an array; offsets in it count from its beginning."""
    form, width = ("<I", 4) if is_large else ("<H", 2)

    def number(at: int) -> int:
        found: int = struct.unpack_from(form, data, at)[0]
        return found

    count, at, keys = number(0), 2 * width, list[str]()
    if is_object:
        for _ in range(count):
            begin, size = number(at), struct.unpack_from("<H", data, at + width)[0]
            keys.append(data[begin : begin + size].decode())
            at += width + 2
    values = []
    for _ in range(count):
        kind = data[at]
        is_inline = kind in {0x04, 0x05, 0x06} or (is_large and kind in {0x07, 0x08})
        values.append(_value(kind, data, at + 1 if is_inline else number(at + 1)))
        at += 1 + width
    return dict(zip(keys, values, strict=True)) if is_object else values


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length of seven bits a byte, and the position after it."""
    size = shift = 0
    while True:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return size, at


def _opaque(kind: int, data: bytes) -> Any:
    """Return a value of a type of SQL, as MySQL writes it."""
    from umbel.connectors.mysql.values import StreamColumn, decoder

    if kind == _NEWDECIMAL:
        column = StreamColumn(_NEWDECIMAL, data[:2], is_unsigned=False, codec=None, names=(), declared="")
        return _Number(decoder(column)[1](data, 2)[0])
    if kind in _TIMES:
        return _time(kind, int.from_bytes(data[:8], "little", signed=True))
    return f"base64:type{kind}:{base64.b64encode(data).decode()}"


def _time(kind: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    micros, packed = packed & 0xFFFFFF, packed >> 24
    clock = f"{packed >> 6 & 63:02d}:{packed & 63:02d}.{micros:06d}"
    if kind == _TIME:
        return f"{sign}{packed >> 12 & 1023:02d}:{clock}"
    day, month = packed >> 17 & 31, packed >> 22
    date = f"{month // 13:04d}-{month % 13:02d}-{day:02d}"
    return date if kind == _DATE else f"{date} {packed >> 12 & 31:02d}:{clock}"
