"""Formats of messages: values of a topic, each one record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from umbel.formats.declarations import Avro, Protobuf
from umbel.formats.garbage import uncollected
from umbel.formats.json_lines import JsonLines
from umbel.formats.registry import HEAD, SchemaRegistry
from umbel.types.dtype import DType
from umbel.types.raw import TOMBSTONE, Raw, rejects


class MessageFormat(Protocol):
    """Reads the values of messages."""

    def read(self, values: Sequence[bytes]) -> Iterator[Raw]:
        """Yield one row for each value, in order."""


class JsonMessages:
    """One JSON object per message.

    It may stand behind the id of a schema, as Confluent's JSON Schema serializers write it.

    Args:
        requested: the requested columns and their types.
        exact: True if only these columns are returned.
    """

    def __init__(self, requested: Mapping[str, DType], *, exact: bool) -> None:
        self._lines = JsonLines(requested, exact=exact)

    def read(self, values: Sequence[bytes]) -> Iterator[Raw]:
        yield from self._lines.texts([each[HEAD:] if each[:1] == b"\0" else each for each in values])


class DecodedMessages:
    """Messages decoded one by one.

    Args:
        requested: the requested columns and their types.
        exact: True if only these columns are returned.
        decode: returns the record of a value as a mapping; ValueError if it is not one.
    """

    def __init__(self, requested: Mapping[str, DType], *, exact: bool, decode: Callable[[bytes], Any]) -> None:
        self._lines, self._decode = JsonLines(requested, exact=exact), decode

    def read(self, values: Sequence[bytes]) -> Iterator[Raw]:
        rows, errors = list[Any](), dict[int, str]()
        with uncollected():
            for number, value in enumerate(values):
                try:
                    rows.append(self._decode(value))
                except ValueError as error:
                    rows.append({})
                    errors[number] = str(error)
        yield from self._lines.portions(rows, errors)


def message_format(
    declared: str | Avro | Protobuf,
    requested: Mapping[str, DType],
    *,
    exact: bool,
    schemas: SchemaRegistry | None = None,
) -> MessageFormat:
    """Return the reader of a declared format.

    Args:
        declared: "json", Avro(...) or Protobuf(...).
        requested: the requested columns and their types.
        exact: True if only these columns are returned.
        schemas: the registry of a format that has one.
    """
    if isinstance(declared, Avro):
        from umbel.formats.avro import AvroDecoder

        return DecodedMessages(requested, exact=exact, decode=AvroDecoder(_needed(schemas)).decode)
    if isinstance(declared, Protobuf):
        from umbel.formats.protobuf import ProtobufDecoder

        return DecodedMessages(requested, exact=exact, decode=ProtobufDecoder(_needed(schemas)).decode)
    return JsonMessages(requested, exact=exact)


def _needed(schemas: SchemaRegistry | None) -> SchemaRegistry:
    assert schemas is not None
    return schemas


def with_tombstones(form: MessageFormat, values: Sequence[bytes | None]) -> Iterator[Raw]:
    """Yield one row for each value; those without a value are rejected as tombstones."""
    if None not in values:
        yield from form.read(values)  # type: ignore[arg-type]
        return
    begin = 0
    while begin < len(values):
        is_missing = values[begin] is None
        end = next((n for n in range(begin, len(values)) if (values[n] is None) != is_missing), len(values))
        if is_missing:
            reasons = rejects(dict.fromkeys(range(end - begin), TOMBSTONE))
            yield Raw(pl.DataFrame(height=end - begin), reasons)
        else:
            yield from form.read([value for value in values[begin:end] if value is not None])
        begin = end
