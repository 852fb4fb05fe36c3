"""Avro as tests write it, also such that no library would."""

from __future__ import annotations

import io
from typing import Any

import fastavro

SYNC = b"S" * 16


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def number(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), b""
    while rest > 127:
        found, rest = found + bytes([rest & 127 | 128]), rest >> 7
    return found + bytes([rest])


def written(schema: Any, rows: list[Any], codec: str = "null", **options: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(schema), rows, codec=codec, sync_marker=SYNC, **options)
    return stream.getvalue()


def container(schema: Any, count: int, data: bytes, codec: bytes = b"null") -> bytes:
    """Return a file of one block, as it is."""
    head = written(schema, []).replace(b"\x08null", number(len(codec)) + codec)
    return head + number(count) + number(len(data)) + data + SYNC


LIST = record(("n", "long"), ("next", ["null", "R"]))
"""A schema of records in records."""
