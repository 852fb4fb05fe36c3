"""Avro and Protobuf messages with schemas in a registry; Debezium's envelopes."""

from __future__ import annotations

import base64
import io
import itertools
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

from tests.servers import registry as registries
from tests.servers.kafka import Broker
from tests.servers.registry import SchemaRegistry
from tests.unit.connectors.reading import Read, read
from umbel.connectors import Avro, Kafka, Protobuf
from umbel.connectors.kafka import fetching
from umbel.connectors.kafka.source import TopicSource
from umbel.errors import NotSupported, Transient
from umbel.types.dtypes import Datetime, Dict, Float, Int, List, Optional, Str
from umbel.types.numeric import Decimal as DecimalType

names = (f"f{number}" for number in itertools.count())
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
SCHEMA = {
    "n": Int(),
    "who": Optional(Str()),
    "price": DecimalType(2),
    "at": Datetime(),
    "tags": List(Str()),
    "counts": Dict(Int()),
}
AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def sale(n: int, who: str | None = "ann") -> dict[str, Any]:
    return {"n": n, "who": who, "price": Decimal("1.25"), "at": AT, "tags": ["a", "b"], "counts": {"x": n}}


def framed(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


def avro(number: int, schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return framed(number, stream.getvalue())


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with registries.running() as found:
        yield found
    fetching.FETCHERS.close()


def reading(broker: Broker, form: Any, values: list[bytes | None]) -> TopicSource:
    name = next(names)
    broker.create(name)
    broker.produce(name, values)
    options = {"security_protocol": "PLAINTEXT", "sasl_mechanism": "PLAIN", "bootstrap_servers": broker.address}
    return Kafka(name="k", **options).topic(name, format=form).reader(Path())


def test_avro(broker: Broker, registry: SchemaRegistry) -> None:
    number = registry.add(json.dumps(SALE))
    form = Avro(registry="confluent", url=registry.url)
    found = read(reading(broker, form, [avro(number, SALE, sale(n)) for n in range(500)]), SCHEMA)
    assert not found.dead
    assert found.rows[7] == {**sale(7), "counts": [{"key": "x", "value": 7}]}
    assert [row["at"] for row in found.rows.values()] == [AT] * 500
    assert registry.requests.total() == 1  # schemas are cached


def test_avro_messages_that_cannot_be_read_are_dead_letters(broker: Broker, registry: SchemaRegistry) -> None:
    number = registry.add(json.dumps(SALE))
    broken = registry.add('{"type": "nothing"}')
    good = avro(number, SALE, sale(1, None))
    values = [
        good,
        b"\1abc",
        b"\0\0",
        avro(77, SALE, sale(2)),
        good[:-3],
        good + b"x",
        None,
        framed(broken, b"a"),
        good,
    ]
    reader = reading(broker, Avro(registry="confluent", url=registry.url), values)
    found = read(reader, SCHEMA)
    assert sorted(found.rows) == [0, 8]
    name = reader.connector.topic
    assert [where for where, _, _ in found.dead.values()] == [f"{name}[0]@{offset}" for offset in range(1, 8)]
    reasons = found.reasons()
    assert "does not begin with a zero byte" in reasons[0]
    assert "does not begin with a zero byte" in reasons[1]
    assert reasons[2] == f"schema 77 is not in the registry {registry.url}"
    assert reasons[3].startswith(f"not readable with Avro schema {number}")
    assert reasons[4] == f"1 bytes more than Avro schema {number} has"
    assert "tombstone" in reasons[5]
    assert reasons[6].startswith(f"Avro schema {broken} is not one")
    assert registry.requests["/schemas/ids/77"] == 1


def test_an_avro_schema_may_refer_to_others(broker: Broker, registry: SchemaRegistry) -> None:
    inner = {"type": "record", "name": "shop.Who", "fields": [{"name": "city", "type": "string"}]}
    registry.add(json.dumps(inner), subject="who")
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "n", "type": "int"}, {"name": "w", "type": "shop.Who"}],
    }
    reference = {"name": "shop.Who", "subject": "who", "version": 1}
    number = registry.add(json.dumps(outer), references=[reference])
    whole = {**outer, "fields": [outer["fields"][0], {"name": "w", "type": inner}]}
    values = [avro(number, whole, {"n": 1, "w": {"city": "Oslo"}})]
    found = read(reading(broker, Avro(registry="confluent", url=registry.url), values), {"n": Int(), "w": Dict(Str())})
    assert not found.dead
    assert found.rows[0]["n"] == 1


def test_a_registry_that_is_down_or_refuses_is_an_error_to_retry(broker: Broker, registry: SchemaRegistry) -> None:
    number = registry.add(json.dumps(SALE))
    reader = reading(broker, Avro(registry="confluent", url=registry.url), [avro(number, SALE, sale(1))])
    registry.is_down = True
    with pytest.raises(Transient, match="answers 500: the store is down"):
        read(reader, SCHEMA)
    registry.is_down, registry.authorization = False, "Bearer t0ken"
    with pytest.raises(Transient, match="answers 401") as report:
        read(reader, SCHEMA)
    assert "t0ken" not in str(report.value)
    token = Avro(registry="confluent", url=registry.url, token="t0ken")
    assert len(read(reading(broker, token, [avro(number, SALE, sale(1))]), SCHEMA).rows) == 1
    registry.authorization = "Basic " + base64.b64encode(b"me:pw").decode()
    user = Avro(registry="confluent", url=registry.url, username="me", password="pw")
    assert len(read(reading(broker, user, [avro(number, SALE, sale(1))]), SCHEMA).rows) == 1


def shop() -> tuple[descriptor_pb2.FileDescriptorProto, Any]:
    """Return a file with three messages, the third with another within, and its classes."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kinds = descriptor_pb2.FieldDescriptorProto
    file.enum_type.add(name="Size").value.add(name="SMALL", number=0)
    file.enum_type[0].value.add(name="LARGE", number=1)
    for name in ("Zero", "Alpha"):
        file.message_type.add(name=name).field.add(name="n", number=1, type=kinds.TYPE_INT64, label=1)
    sale = file.message_type.add(name="Sale")
    sale.nested_type.add(name="Who").field.add(name="city", number=1, type=kinds.TYPE_STRING, label=1)
    sale.field.add(name="n", number=1, type=kinds.TYPE_INT64, label=1)
    sale.field.add(name="size", number=2, type=kinds.TYPE_ENUM, type_name=".shop.Size", label=1)
    sale.field.add(name="at", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    sale.field.add(name="tags", number=4, type=kinds.TYPE_STRING, label=3)
    sale.field.add(name="who", number=5, type=kinds.TYPE_MESSAGE, type_name=".shop.Sale.Who", label=1)
    sale.field.add(name="ratio", number=6, type=kinds.TYPE_DOUBLE, label=1, proto3_optional=True, oneof_index=0)
    sale.oneof_decl.add(name="_ratio")
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    pool.Add(stamp)
    pool.Add(file)
    return file, {
        name: GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Sale", "Sale.Who", "Alpha")
    }


PROTOBUF = {"n": Int(), "size": Str(), "at": Datetime(), "tags": List(Str()), "ratio": Optional(Float())}


def test_protobuf(broker: Broker, registry: SchemaRegistry) -> None:
    file, kinds = shop()
    number = registry.add(file.SerializeToString())
    message = kinds["Sale"](n=5, size=1, tags=["a"], who={"city": "Oslo"})
    message.at.FromDatetime(AT)
    third = framed(number, b"\x02\x04" + message.SerializeToString())  # one index, 2, as zigzag numbers
    first = framed(number, b"\x00" + kinds["Alpha"](n=9).SerializeToString())
    nested = framed(number, b"\x04\x04\x00" + kinds["Sale.Who"](city="Rome").SerializeToString())
    missing = framed(number, b"\x02\x0e")
    values = [third, first, nested, missing, framed(99, b"\0"), framed(number, b"\x02\x04\xff"), None]
    form = Protobuf(registry="confluent", url=registry.url, token="t")
    found = read(reading(broker, form, values), PROTOBUF)
    assert found.rows == {0: {"n": 5, "size": "LARGE", "at": AT, "tags": ["a"], "ratio": None}}
    assert set(found.dead) == {1, 2, 3, 4, 5, 6}
    reasons = [found.dead[number][1] for number in range(3, 7)]
    assert reasons[0] == f"Protobuf schema {number} has no message [7]"
    assert reasons[1].startswith("schema 99 is not in the registry")
    assert reasons[2].startswith(f"not readable with Protobuf schema {number}")
    cities = read(reading(broker, form, [nested]), {"city": Str()})
    assert cities.rows == {0: {"city": "Rome"}}
    assert read(reading(broker, form, [first]), {"n": Int()}).rows == {0: {"n": 9}}


def test_a_registry_without_serialized_protobuf_gives_dead_letters(broker: Broker, registry: SchemaRegistry) -> None:
    number = registry.add('syntax = "proto3"; message A { int64 n = 1; }')
    form = Protobuf(registry="confluent", url=registry.url, token="t")
    found: Read = read(reading(broker, form, [framed(number, b"\0")]), {"n": Int()})
    assert found.reasons()[0].startswith(f"Protobuf schema {number} is no serialized description")


def test_a_missing_library_for_avro_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    cluster = Kafka(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
    with pytest.raises(NotSupported, match=r"fastavro.*(?s:.*)pip install 'umbel\[kafka\]'"):
        cluster.topic("t", format=Avro(registry="confluent", url="http://r")).reader(Path())
    cluster.topic("t").reader(Path())


def test_messages_of_several_versions_of_a_schema_stand_side_by_side(broker: Broker, registry: SchemaRegistry) -> None:
    """Each message is read by the schema that wrote it, and no row depends on its neighbours."""
    versions: list[tuple[list[tuple[str, Any]], dict[str, Any]]] = [
        ([("n", "int")], {"n": 1}),
        ([("n", "int"), ("who", "string")], {"n": 2, "who": "added"}),
        ([("who", ["null", "string"]), ("n", "long")], {"n": 1 << 40, "who": None}),
        ([("n", "double"), ("who", "string")], {"n": 4.0, "who": "promoted"}),
        ([("n", "double"), ("who", "string")], {"n": 4.5, "who": "no number"}),
        ([("n", "string"), ("who", "string")], {"n": "6", "who": "text"}),
        ([("n", "string"), ("who", "string")], {"n": "six", "who": "no number"}),
        ([("who", "string")], {"who": "removed"}),
        ([("n", {"type": "array", "items": "int"})], {"n": [8]}),
        ([("n", "int"), ("later", {"type": "map", "values": "int"})], {"n": 9, "later": {"x": 1}}),
    ]
    values = []
    for fields, record in versions:
        schema = {"type": "record", "name": "V", "fields": [{"name": name, "type": kind} for name, kind in fields]}
        values.append(avro(registry.add(json.dumps(schema)), schema, record))
    values += values[:2]
    form = Avro(registry="confluent", url=registry.url)
    found = read(reading(broker, form, [*values]), {"n": Int(), "who": Optional(Str())})
    expected = {
        0: (1, None),
        1: (2, "added"),
        2: (1 << 40, None),
        3: (4, "promoted"),
        5: (6, "text"),
        9: (9, None),
        10: (1, None),
        11: (2, "added"),
    }
    assert {number: (row["n"], row["who"]) for number, row in found.rows.items()} == expected
    assert sorted(found.dead) == [4, 6, 7, 8]
    alone = {
        number: (row["n"], row["who"])
        for number in range(len(values))
        for row in read(reading(broker, form, [values[number]]), {"n": Int(), "who": Optional(Str())}).rows.values()
    }
    assert alone == expected
