"""The values in row events of the binary log, decoded column by column.

Format: "Rows_event" and "Table_map_event" of MySQL's source documentation, and the pages on replication of MariaDB's manual. A
decoder takes the data and a position in it, and returns the value with the position after it.
"""

from __future__ import annotations

import socket
import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from umbel.connectors.mysql.binary_json import json_text
from umbel.connectors.mysql.charsets import reading
from umbel.connectors.mysql.columns import BIT, SINGLE
from umbel.connectors.sql.columns import BYTES, DATE, FLOAT, INSTANT, INT, JSON, NAIVE, NUMERIC, TEXT

Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
BINARY = 63
"""The collation of bytes."""
ENUM, SET, STRING = 247, 248, 254
NUMERIC_TYPES = frozenset({1, 2, 3, 4, 5, 8, 9, 13, 246})
"""The types that the metadata on signs counts."""
CHARACTER_TYPES = frozenset({15, 140, 141, 249, 250, 251, 252, 253, 254})
"""The types that the metadata on collations counts, except enumerations and sets."""
METADATA_BYTES = {
    **dict.fromkeys((4, 5, 17, 18, 19, 140, 242, 245, 249, 250, 251, 252, 255), 1),
    **dict.fromkeys((15, 16, 141, 246, 247, 248, 253, 254), 2),
}
"""The bytes of metadata that a type has; none for others."""


@dataclass(frozen=True, slots=True)
class StreamColumn:
    """A column as the stream describes it.

    Args:
        type: the number of its type.
        metadata: the bytes that belong to the type.
        is_unsigned: whether its numbers have no sign.
        codec: its character set, as `charsets.reading` takes it; None for bytes.
        names: the values of an enumeration or a set.
        declared: the name of its type in the catalog, if it still has such a column.
    """

    type: int
    metadata: bytes
    is_unsigned: bool
    codec: str | None
    names: Sequence[str]
    declared: str


def decoder(column: StreamColumn) -> tuple[str, Decode]:
    """Return the kind of a column's values, and what decodes them.

    Raises:
        LookupError: the type is unknown.
    """
    if column.type in _INTEGERS:
        signed, unsigned = _INTEGERS[column.type]
        return INT, _fixed(unsigned if column.is_unsigned else signed)
    if column.type in _MAKERS:
        return _MAKERS[column.type](column)
    raise LookupError(f"type {column.type}")


def _fixed(form: str) -> Decode:
    packed = struct.Struct(form)
    unpack, size = packed.unpack_from, packed.size
    return lambda data, at: (unpack(data, at)[0], at + size)


_INTEGERS = {1: ("<b", "<B"), 2: ("<h", "<H"), 3: ("<i", "<I"), 8: ("<q", "<Q")}


def _medium(column: StreamColumn) -> tuple[str, Decode]:
    signed = not column.is_unsigned
    return INT, lambda data, at: (int.from_bytes(data[at : at + 3], "little", signed=signed), at + 3)


def _year(_: StreamColumn) -> tuple[str, Decode]:
    return INT, lambda data, at: (data[at] + 1900 if data[at] else 0, at + 1)


def _bit(column: StreamColumn) -> tuple[str, Decode]:
    size = column.metadata[1] + (column.metadata[0] > 0)
    return BIT, lambda data, at: (int.from_bytes(data[at : at + size], "big"), at + size)


# ---- text and bytes ------------------------------------------------------------------------------------------------


def _prefixed(size: int, convert: Callable[[bytes], Any]) -> Decode:
    """Return the decoder of values with their length before them."""
    if size == 1:

        def short(data: bytes, at: int) -> tuple[Any, int]:
            end = at + 1 + data[at]
            return convert(data[at + 1 : end]), end

        return short

    def long(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + size
        end = begin + int.from_bytes(data[at:begin], "little")
        return convert(data[begin:end]), end

    return long


def _characters(column: StreamColumn, size: int) -> tuple[str, Decode]:
    if column.codec is None:
        return BYTES, _prefixed(size, bytes)
    return (JSON if column.declared == "json" else TEXT), _prefixed(size, reading(column.codec))


def _varying(column: StreamColumn) -> tuple[str, Decode]:
    return _characters(column, 1 if int.from_bytes(column.metadata, "little") < 256 else 2)


def _large(column: StreamColumn) -> tuple[str, Decode]:
    return _characters(column, column.metadata[0])


def _compressed(column: StreamColumn) -> tuple[str, Decode]:
    size = column.metadata[0] if len(column.metadata) == 1 else 1 + (int.from_bytes(column.metadata, "little") > 255)
    convert = bytes if column.codec is None else reading(column.codec)

    def inflated(value: bytes) -> Any:
        # a byte that names the method and the bytes of the length, the length, the data
        if not value or value[0] == 0:
            return convert(value[1:])
        return convert(zlib.decompress(value[1 + (value[0] & 7) :], -15 if value[0] & 8 else 15))

    return (BYTES if column.codec is None else TEXT), _prefixed(size, inflated)


def real_type(metadata: bytes) -> tuple[int, int]:
    """Return the type and the length in bytes of a column of type STRING."""
    first, second = metadata
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def _string(column: StreamColumn) -> tuple[str, Decode]:
    kind, length = real_type(column.metadata)
    if kind == ENUM:
        return TEXT, _enumeration(column.names, length)
    if kind == SET:
        return TEXT, _set(column.names, length)
    size = 1 if length < 256 else 2
    if column.declared in _SPECIAL:
        convert = _SPECIAL[column.declared]
        return TEXT, _prefixed(size, lambda value: convert(value.ljust(length, b"\0")))
    if column.codec is None:
        return BYTES, _prefixed(size, lambda value: value.ljust(length, b"\0"))  # zeros at the end are not sent
    return _characters(column, size)


_SPECIAL: dict[str, Callable[[bytes], str]] = {
    "uuid": lambda value: str(uuid.UUID(bytes=value)),
    "inet6": lambda value: socket.inet_ntop(socket.AF_INET6, value),
    "inet4": lambda value: socket.inet_ntop(socket.AF_INET, value),
}
"""The types of MariaDB that are sent as bytes, by their names in the catalog."""


def _enumeration(names: Sequence[str], size: int) -> Decode:
    known = dict(enumerate(("", *names)))  # 0 stands for a value that was none of them
    return lambda data, at: (known[int.from_bytes(data[at : at + size], "little")], at + size)


def _set(names: Sequence[str], size: int) -> Decode:
    def chosen(data: bytes, at: int) -> tuple[str, int]:
        bits = int.from_bytes(data[at : at + size], "little")
        return ",".join(name for place, name in enumerate(names) if bits >> place & 1), at + size

    return chosen


def _json(column: StreamColumn) -> tuple[str, Decode]:
    return JSON, _prefixed(column.metadata[0], json_text)


def _space(column: StreamColumn) -> tuple[str, Decode]:
    return BYTES, _prefixed(column.metadata[0], bytes)


# ---- numbers with a point ------------------------------------------------------------------------------------------

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""The bytes of a group of fewer than nine digits."""


def _groups(digits: int, *, is_fraction: bool) -> list[tuple[int, int]]:
    """Return the digits and bytes of the groups of an integer part or a fraction."""
    full, rest = [(9, 4)] * (digits // 9), [(digits % 9, _DIGIT_BYTES[digits % 9])] if digits % 9 else []
    return full + rest if is_fraction else rest + full


def _decimal(column: StreamColumn) -> tuple[str, Decode]:
    precision, scale = column.metadata
    whole, fraction = _groups(precision - scale, is_fraction=False), _groups(scale, is_fraction=True)
    size = sum(each for _, each in whole + fraction)

    def text(data: bytes, at: int) -> tuple[str, int]:
        value = bytearray(data[at : at + size])
        is_negative = not value[0] & 0x80
        value[0] ^= 0x80
        if is_negative:
            value = bytearray(each ^ 0xFF for each in value)
        begin, parts = 0, list[str]()
        for groups in (whole, fraction):
            part = ""
            for digits, length in groups:
                part += f"{int.from_bytes(value[begin : begin + length], 'big'):0{digits}d}"
                begin += length
            parts.append(part)
        sign, units = "-" if is_negative else "", parts[0].lstrip("0") or "0"
        return f"{sign}{units}.{parts[1]}" if scale else f"{sign}{units}", at + size

    return NUMERIC, text


# ---- times ---------------------------------------------------------------------------------------------------------


def _fraction(metadata: bytes) -> tuple[int, int, int]:
    """Return digits and bytes of a fraction of a second, and the factor to µs."""
    digits = metadata[0] if metadata else 0
    size = (digits + 1) // 2
    return digits, size, 10 ** (6 - 2 * size)


def _date(_: StreamColumn) -> tuple[str, Decode]:
    def text(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 3], "little")
        return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}", at + 3

    return DATE, text


def _datetime(column: StreamColumn) -> tuple[str, Decode]:
    _, size, factor = _fraction(column.metadata)
    end = 5 + size

    def text(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        micros = int.from_bytes(data[at + 5 : at + end], "big") * factor if size else 0
        year, month = divmod(packed >> 22, 13)
        clock = f"{packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}.{micros:06d}"
        return f"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} {clock}", at + end

    return NAIVE, text


def _timestamp(column: StreamColumn) -> tuple[str, Decode]:
    from datetime import UTC, datetime

    _, size, factor = _fraction(column.metadata)
    end = 4 + size
    days = dict[int, str]()  # most rows of a stream are of few days

    def text(data: bytes, at: int) -> tuple[str, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        micros = int.from_bytes(data[at + 4 : at + end], "big") * factor if size else 0
        if not seconds and not micros:
            return "0000-00-00 00:00:00", at + end
        day, rest = divmod(seconds, 86_400)
        if day not in days:
            days[day] = datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
        minutes = rest // 60
        return f"{days[day]} {minutes // 60:02d}:{minutes % 60:02d}:{rest % 60:02d}.{micros:06d}", at + end

    return INSTANT, text


def _time(column: StreamColumn) -> tuple[str, Decode]:
    digits, size, factor = _fraction(column.metadata)
    end = 3 + size

    def text(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + end], "big") - (0x800000 << 8 * size)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole, micros = packed >> 8 * size, (packed & (1 << 8 * size) - 1) * factor
        found = f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        return f"{found}.{micros:06d}"[: len(found) + 1 + digits] if digits else found, at + end

    return TEXT, text


_MAKERS: dict[int, Callable[[StreamColumn], tuple[str, Decode]]] = {
    4: lambda _: (SINGLE, _fixed("<f")),
    5: lambda _: (FLOAT, _fixed("<d")),
    9: _medium,
    10: _date,
    13: _year,
    14: _date,
    15: _varying,
    16: _bit,
    17: _timestamp,
    18: _datetime,
    19: _time,
    140: _compressed,
    141: _compressed,
    242: _space,
    245: _json,
    246: _decimal,
    249: _large,
    250: _large,
    251: _large,
    252: _large,
    253: _varying,
    254: _string,
    255: _space,
}
