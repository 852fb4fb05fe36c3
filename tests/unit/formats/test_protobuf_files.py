"""Protobuf schemas that import files of Protobuf's own and of Confluent's, to which the registry has no reference."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from umbel.formats.protobuf import ProtobufDecoder
from umbel.formats.registry import RegisteredSchema

KINDS = descriptor_pb2.FieldDescriptorProto
HEAD = b"\0\0\0\0\1\0"


class OneSchema:
    """A registry with one schema, whose message has a number and, as its second field, a message of another type.

    Args:
        imports: the files that it imports.
        kind: the type of the second field; empty for none.
        fields: the names of further numbers.
    """

    def __init__(self, imports: Sequence[str], kind: str = "", fields: Sequence[str] = ()) -> None:
        file = descriptor_pb2.FileDescriptorProto(
            name="sale.proto", package="shop", syntax="proto3", dependency=imports
        )
        message = file.message_type.add(name="Sale")
        message.options.MergeFromString(b"\xc2\x44\x02\x0a\x00")  # a Meta of Confluent's
        message.field.add(name="n", number=1, type=KINDS.TYPE_INT64, label=1)
        if kind:
            message.field.add(name="other", number=2, type=KINDS.TYPE_MESSAGE, type_name=kind, label=1)
        for number, name in enumerate(fields, 3):
            message.field.add(name=name, number=number, type=KINDS.TYPE_INT64, label=1)
        self._schema = RegisteredSchema(base64.b64encode(file.SerializeToString()).decode())

    def schema(self, number: int) -> RegisteredSchema:
        return self._schema


def decoded(imports: Sequence[str], content: bytes, kind: str = "", fields: Sequence[str] = ()) -> Any:
    return ProtobufDecoder(OneSchema(imports, kind, fields)).decode(HEAD + content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "confluent/meta.proto",
        "confluent/type/decimal.proto",
        "confluent/types/decimal.proto",
        "google/protobuf/any.proto",
        "google/protobuf/api.proto",
        "google/protobuf/descriptor.proto",
        "google/protobuf/source_context.proto",
    ],
)
def test_known_files_are_imported(name: str) -> None:
    assert decoded([name], b"\x08\x05") == {"n": 5}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x0a\x02\x30\x39\x18\x02", Decimal("123.45")),
        (b"\x0a\x01\xff\x18\x01", Decimal("-0.1")),
        (b"", Decimal(0)),
        (b"\x0a\x02\x03\xe8", Decimal(1000)),
        (b"\x0a\x0e" + b"\x7f" + b"\xff" * 13 + b"\x18\x05", Decimal("25961484292674138142652481646.10047")),
    ],
)
def test_a_decimal_of_confluents_is_a_number(content: bytes, expected: Decimal) -> None:
    message = b"\x12" + bytes([len(content)]) + content
    found = decoded(["confluent/type/decimal.proto"], message, ".confluent.type.Decimal")["other"]
    assert str(found) == str(expected)


def test_what_is_missing_is_reported() -> None:
    for name in ("shop/other.proto", "google/type/date.proto"):
        with pytest.raises(ValueError, match=rf"it imports '{name}', which is not among its references"):
            decoded([name], b"")


def test_a_message_that_cannot_be_converted_is_rejected() -> None:
    """The names of its fields are those of methods: the source stopped."""
    with pytest.raises(ValueError, match="not readable with Protobuf schema 1: TypeError"):
        decoded(["google/protobuf/timestamp.proto"], b"", ".google.protobuf.Timestamp", ["HasField"])
    huge = b"\x0a\x81\x20" + b"\x01" * 4097
    with pytest.raises(ValueError, match="a decimal of 4097 bytes is longer than 4096"):
        decoded(["confluent/type/decimal.proto"], b"\x12\x84\x20" + huge, ".confluent.type.Decimal")
