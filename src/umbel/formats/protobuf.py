"""Protobuf messages with a schema id, as Confluent's serializers write them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from umbel.formats.protobuf_files import DECIMAL, add_known_file, decimal_of
from umbel.formats.registry import SchemaRegistry, framed


class ProtobufDecoder:
    """Decodes messages by the schema that wrote them.

    Args:
        schemas: of the messages, in serialized form.
    """

    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas, self._files = schemas, dict[int, Any]()
        self._kinds = dict[tuple[int, tuple[int, ...]], Any]()

    def decode(self, value: bytes) -> Any:
        """Return the fields of a message by name.

        An unset field with presence is null.

        Raises:
            ValueError: it has no known schema, or does not fit it.
            Transient: the registry does not answer.
        """
        number, content = framed(value)
        path, begin = _indexes(content)
        message = self._kind(number, path)()
        try:
            message.ParseFromString(content[begin:])
            return _plain(message)
        except Exception as error:  # the library raises its own kinds, and Python's for values out of range
            raise ValueError(f"not readable with Protobuf schema {number}: {type(error).__name__}: {error}") from error

    def _kind(self, number: int, path: tuple[int, ...]) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        if (number, path) not in self._kinds:
            file = self._file(number)
            try:
                found = list(file.message_types_by_name.values())[path[0]]
                for index in path[1:]:
                    found = found.nested_types[index]
            except IndexError:
                raise ValueError(f"Protobuf schema {number} has no message {list(path)}") from None
            self._kinds[number, path] = GetMessageClass(found)
        return self._kinds[number, path]

    def _file(self, number: int) -> Any:
        from google.protobuf.message import DecodeError

        if number not in self._files:
            registered = self._schemas.schema(number)
            try:
                self._files[number] = _described(registered.text, registered.references)
            except (TypeError, KeyError, binascii.Error, ValueError, DecodeError) as error:
                reason = f"Protobuf schema {number} is no serialized description: {type(error).__name__}: {error}"
                raise ValueError(reason) from error
        return self._files[number]


def _described(text: str, references: Mapping[str, str]) -> Any:
    """Return the description of a schema's file, in a pool of its own."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for name, each in (*references.items(), ("", text)):
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(each, validate=True))
        file.name = name or file.name or "schema.proto"
        for imported in file.dependency:
            if imported not in references:
                add_known_file(pool, imported)
        pool.Add(file)
        last = file.name
    return pool.FindFileByName(last)


def _indexes(content: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message of its schema one is, and where its content begins."""
    count, begin = _varint(content, 0)
    found = []
    for _ in range(count):
        index, begin = _varint(content, begin)
        found.append(index)
    if min(count, *found, 0) < 0:
        raise ValueError(f"the message has negative numbers of its kind: {[count, *found]}")
    return tuple(found) or (0,), begin


def _varint(content: bytes, begin: int) -> tuple[int, int]:
    """Return a zigzag number, and the position behind it."""
    value = shift = 0
    while begin < len(content) and shift < 64:
        byte = content[begin]
        value, shift, begin = value | (byte & 127) << shift, shift + 7, begin + 1
        if byte < 128:
            return value >> 1 ^ -(value & 1), begin
    raise ValueError("the message ends within the numbers of its kind")


def _plain(message: Any) -> Any:
    """Return a message as plain values."""
    name = message.DESCRIPTOR.full_name
    if name in _JSON:
        return _json(message, name)
    if name == "google.protobuf.Timestamp":
        return message.ToDatetime(tzinfo=UTC)
    if name == DECIMAL:
        return decimal_of(message)
    if name == "google.protobuf.Duration":
        return message.ToTimedelta().total_seconds()
    if name.startswith("google.protobuf.") and name.endswith("Value") and "value" in message.DESCRIPTOR.fields_by_name:
        return message.value
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


_STRUCT, _VALUE, _LIST = (f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_JSON = frozenset({_STRUCT, _VALUE, _LIST})
"""Messages that stand for JSON values."""


def _json(message: Any, name: str) -> Any:
    """Return the JSON value that a message stands for."""
    if name == _STRUCT:
        return {key: _json(each, _VALUE) for key, each in message.fields.items()}
    if name == _LIST:
        return [_json(each, _VALUE) for each in message.values]
    kind = message.WhichOneof("kind")
    if kind in ("struct_value", "list_value"):
        return _json(getattr(message, kind), _STRUCT if kind == "struct_value" else _LIST)
    return None if kind in (None, "null_value") else getattr(message, kind)


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return {key: _value(each, kind.fields_by_name["value"]) for key, each in value.items()}
    if field.is_repeated:
        return [_value(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value
