"""Files that Protobuf schemas import without a reference in the registry.

They are those of Protobuf itself, and those of Confluent's that Kafka Connect uses.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

DECIMAL = "confluent.type.Decimal"
_BYTES = 4_096
"""Bytes of a decimal; longer ones take long to convert, and fit no column."""
_OF_CONFLUENT = ("confluent/meta.proto", "confluent/type/decimal.proto", "confluent/types/decimal.proto")


def add_known_file(pool: Any, name: str) -> None:
    """Add a file, and those that it imports, to a pool of descriptors.

    Args:
        pool: the pool; nothing is done if it has the file.
        name: of the file, as it is imported.

    Raises:
        ValueError: it is not known.
    """
    try:
        pool.FindFileByName(name)
    except KeyError:
        file = _of_confluent(name) if name in _OF_CONFLUENT else _of_protobuf(name)
        for each in file.dependency:
            add_known_file(pool, each)
        pool.Add(file)


def decimal_of(message: Any) -> Decimal:
    """Return the number that a decimal of Confluent's stands for.

    Raises:
        ValueError: it has too many digits.
    """
    if len(message.value) > _BYTES:
        raise ValueError(f"a decimal of {len(message.value)} bytes is longer than {_BYTES}")
    sign, digits, _ = Decimal(int.from_bytes(message.value, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -message.scale))


def _of_protobuf(name: str) -> Any:
    """Return a file of Protobuf's own."""
    from google.protobuf import (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )

    modules: tuple[Any, ...] = (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
    file = descriptor_pb2.FileDescriptorProto()
    found = next((each.DESCRIPTOR for each in modules if each.DESCRIPTOR.name == name), None)
    if found is None:
        raise ValueError(
            f"it imports '{name}', which is not among its references in the registry; serializers with skip.known.types=false "
            "register references to all files"
        )
    found.CopyToProto(file)
    return file


def _of_confluent(name: str) -> Any:
    """Return a file of Confluent's; the one of annotations, which are not read, is empty."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
    if name == "confluent/types/decimal.proto":  # the former name
        file.dependency.append("confluent/type/decimal.proto")
        file.public_dependency.append(0)
    elif name == "confluent/type/decimal.proto":
        kinds, file.package = descriptor_pb2.FieldDescriptorProto, "confluent.type"
        fields = (("value", kinds.TYPE_BYTES), ("precision", kinds.TYPE_UINT32), ("scale", kinds.TYPE_INT32))
        message = file.message_type.add(name="Decimal")
        for number, (each, kind) in enumerate(fields, 1):
            message.field.add(name=each, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    return file
