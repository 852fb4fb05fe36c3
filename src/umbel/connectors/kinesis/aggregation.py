"""Aggregated records: several messages in one record, as the Kinesis Producer Library puts them.

The format is published with that library: four bytes, a protobuf message, and its MD5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import md5
from typing import Any

MAGIC = bytes.fromhex("f3899ac2")
DIGEST = 16


@dataclass(frozen=True, slots=True)
class AggregatedMessage:
    """A message of an aggregated record.

    Args:
        data: its bytes.
        hash_key: the number by which its shard is chosen, None if the record does not say.
    """

    data: bytes
    hash_key: int | None


def disaggregated(data: bytes) -> Sequence[AggregatedMessage] | None:
    """Return the messages of a record; None if it is no aggregated one."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + DIGEST:
        return None
    body, digest = data[len(MAGIC) : -DIGEST], data[-DIGEST:]
    if md5(body, usedforsecurity=False).digest() != digest:
        return None
    from google.protobuf.message import DecodeError

    record = _record_class()()
    try:
        record.ParseFromString(body)
    except DecodeError:
        return None
    return [AggregatedMessage(each.data, _hash_key(record, each)) for each in record.records]


def _hash_key(record: Any, message: Any) -> int | None:
    explicit, keys = record.explicit_hash_keys, record.partition_keys
    if message.HasField("explicit_hash_key") and message.explicit_hash_key < len(explicit):
        text = explicit[message.explicit_hash_key]
        return int(text) if text.isdecimal() else None
    if message.partition_key < len(keys):
        digest = md5(keys[message.partition_key].encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest, "big")
    return None


@cache
def _record_class() -> Any:
    """Return the class of the protobuf message."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    kind = FieldDescriptorProto
    file = FileDescriptorProto(name="kinesis_aggregated.proto", package="kinesis", syntax="proto2")
    outer, inner = file.message_type.add(name="AggregatedRecord"), file.message_type.add(name="Message")
    many, one = kind.LABEL_REPEATED, kind.LABEL_OPTIONAL
    outer.field.add(name="partition_keys", number=1, label=many, type=kind.TYPE_STRING)
    outer.field.add(name="explicit_hash_keys", number=2, label=many, type=kind.TYPE_STRING)
    outer.field.add(name="records", number=3, label=many, type=kind.TYPE_MESSAGE, type_name=".kinesis.Message")
    inner.field.add(name="partition_key", number=1, label=one, type=kind.TYPE_UINT64)
    inner.field.add(name="explicit_hash_key", number=2, label=one, type=kind.TYPE_UINT64)
    inner.field.add(name="data", number=3, label=one, type=kind.TYPE_BYTES)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("kinesis.AggregatedRecord"))
