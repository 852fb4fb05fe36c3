"""Values of Avro that fastavro reads in another way than its specification has them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

_DIGITS = 4_096
"""Digits of a decimal that are read, whatever the precision that its schema declares."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  of instants without zone


def exact(schema: Any) -> Any:
    """Return a schema of which fastavro reads values exactly.

    fastavro rounds decimals with more digits than the schema declares, and knows no instants in nanoseconds: as plain numbers
    those near 1970 would be taken for seconds. They are cut to microseconds.
    """
    _know_nanoseconds()
    return _with_all_digits(schema)


def _with_all_digits(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_all_digits(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = ("type", "items", "values", "fields")
    found = {name: _with_all_digits(each) if name in inner else each for name, each in schema.items()}
    if schema.get("logicalType") == "decimal" and isinstance(schema.get("precision"), int):
        size = schema.get("size")
        most = int(math.log10(2) * (8 * size - 1)) if isinstance(size, int) else _DIGITS
        found["precision"] = max(schema["precision"], most)
    return found


def _know_nanoseconds() -> None:
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.setdefault("long-timestamp-nanos", _instant)
    LOGICAL_READERS.setdefault("long-local-timestamp-nanos", _local_instant)


def _local_instant(value: int, *_: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=value // 1000)


def _instant(value: int, *_: Any) -> datetime:
    return _local_instant(value).replace(tzinfo=UTC)
