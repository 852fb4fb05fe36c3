"""Messages with schemas: several versions side by side, and hostile ones; none costs another message."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

from tests.servers import registry as registries
from umbel.connectors import Protobuf
from umbel.errors import Transient
from umbel.formats.messages import message_format
from umbel.formats.registry import SchemaRegistry
from umbel.types.dtypes import Float, Int, Optional, Str

FIELD = descriptor_pb2.FieldDescriptorProto
FORM = Protobuf(registry="confluent", url="http://registry", token="t")


@pytest.fixture
def server() -> Iterator[registries.SchemaRegistry]:
    with registries.running() as found:
        yield found


def file_of(name: str, fields: Sequence[tuple[str, int, int, str]], *others: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with a message M of some fields (name, number, type, type's name), and empty others."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="p", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{each}.proto" for each in ("timestamp", "duration", "struct"))
    message = file.message_type.add(name="M")
    for title, number, kind, of in fields:
        added = message.field.add(name=title, number=number, type=kind, label=1)  # type: ignore[arg-type]
        if of:
            added.type_name = of
    for each in others:
        file.message_type.add(name=each).field.add(name="n", number=1, type=FIELD.TYPE_INT64, label=1)
    return file


def kind_of(*files: descriptor_pb2.FileDescriptorProto) -> Any:
    """Return the class of message M in the last file."""
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, struct_pb2):
        known = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(known)
        pool.Add(known)
    for file in files:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("p.M"))


def packed(number: int, message: Any, path: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + path + message.SerializeToString()


def read(url: str, values: Sequence[bytes], columns: Any, form: Any = FORM) -> tuple[dict[int, Any], dict[int, str]]:
    """Return the rows and the reasons of rejected ones, by the number of the message."""
    made = message_format(form, columns, exact=True, schemas=SchemaRegistry(url, form="serialized"))
    rows, reasons, begin = dict[int, Any](), dict[int, str](), 0
    for raw in made.read(values):
        rejected = {number: reason for number, _, reason in raw.rejects.rows()}
        reasons |= {begin + number: reason for number, reason in rejected.items()}
        rows |= {begin + n: row for n, row in enumerate(raw.frame.to_dicts()) if n not in rejected}
        begin += raw.frame.height
    return rows, reasons


def test_versions_of_a_message_stand_side_by_side(server: registries.SchemaRegistry) -> None:
    """A field was added, removed, became a text, and moved to another message of the file."""
    n, who = ("n", 1, FIELD.TYPE_INT64, ""), ("who", 2, FIELD.TYPE_STRING, "")
    versions = [
        (file_of("a.proto", [n]), {"n": 1}, b"\0"),
        (file_of("a.proto", [n, who]), {"n": 2, "who": "added"}, b"\0"),
        (file_of("a.proto", [who]), {"who": "n removed"}, b"\0"),
        (file_of("a.proto", [("n", 3, FIELD.TYPE_STRING, ""), who]), {"n": "4", "who": "text"}, b"\0"),
        (file_of("a.proto", [("n", 3, FIELD.TYPE_STRING, ""), who]), {"n": "four", "who": "no number"}, b"\0"),
    ]
    values = []
    for file, fields, path in versions:
        values.append(packed(server.add(file.SerializeToString()), kind_of(file)(**fields), path))
    moved = file_of("a.proto", [n, who], "First")
    message = moved.message_type.pop(0)
    moved.message_type.append(message)
    values.append(packed(server.add(moved.SerializeToString()), kind_of(moved)(n=6, who="second"), b"\2\2"))
    rows, reasons = read(server.url, [*values, values[0]], {"n": Int(), "who": Optional(Str())})
    found = {number: (row["n"], row.get("who") or None) for number, row in rows.items()}
    assert found[0] == found[6] == (1, None)
    assert found[1] == (2, "added")
    assert found[5] == (6, "second")
    assert str(found[3][0]) == "4"
    assert not reasons  # the types of rows are checked later: rows 2 and 4 have no number


def test_a_schema_refers_to_others(server: registries.SchemaRegistry) -> None:
    city = descriptor_pb2.FileDescriptorProto(name="city.proto", package="q", syntax="proto3")
    city.message_type.add(name="City").field.add(name="name", number=1, type=FIELD.TYPE_STRING, label=1)
    town = file_of("town.proto", [("city", 1, FIELD.TYPE_MESSAGE, ".q.City")])
    town.dependency.append("city.proto")
    server.add(city.SerializeToString(), subject="geo/city")
    reference = {"name": "city.proto", "subject": "geo/city", "version": 1}
    number = server.add(town.SerializeToString(), references=[reference])
    message = kind_of(city, town)(city={"name": "Oslo"})
    rows, reasons = read(server.url, [packed(number, message)], {"city": Str()})
    assert not reasons
    assert "Oslo" in str(rows[0]["city"])


def test_a_schema_that_refers_to_itself_is_a_dead_letter(server: registries.SchemaRegistry) -> None:
    reference = {"name": "a.proto", "subject": "a", "version": 1}
    number = server.add(file_of("a.proto", []).SerializeToString(), subject="a", references=[reference])
    rows, reasons = read(server.url, [b"\0" + number.to_bytes(4, "big") + b"\0"], {"n": Int()})
    assert not rows
    assert reasons[0] == f"in the registry {server.url} schema 'a.proto' refers to itself"


def test_hostile_messages_cost_no_other(server: registries.SchemaRegistry) -> None:
    types = [("n", 1, FIELD.TYPE_INT64, ""), ("big", 2, FIELD.TYPE_UINT64, "")]
    types += [("at", 3, FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")]
    types += [("took", 4, FIELD.TYPE_MESSAGE, ".google.protobuf.Duration")]
    file = file_of("a.proto", types, "Other")
    number, kind = server.add(file.SerializeToString()), kind_of(file)
    far, long = kind(n=1), kind(n=2)
    far.at.seconds, long.took.seconds = 1 << 62, 1 << 62
    head = b"\0" + number.to_bytes(4, "big")
    good = packed(number, kind(n=7, took={"seconds": 90}))
    hostile = {
        "Timestamp is not valid": packed(number, far),
        "too large": packed(number, long),
        "has negative numbers of its kind: [1, -1]": packed(number, kind(n=3), b"\2\1"),
        "has negative numbers of its kind: [-1]": packed(number, kind(n=3), b"\1"),
        "has no message [9]": packed(number, kind(n=3), b"\2\x12"),
        "ends within the numbers of its kind": head + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\2\2",
        "does not begin with a zero byte": b"",
        "not readable with Protobuf schema": head + b"\0\xff\xff",
    }
    values = [each for one in hostile.values() for each in (one, good)]
    rows, reasons = read(server.url, values, {"n": Int(), "took": Optional(Float())})
    assert {number: (row["n"], row["took"]) for number, row in rows.items()} == {
        2 * place + 1: (7, 90.0) for place in range(len(hostile))
    }
    for (reason, _), found in zip(hostile.items(), reasons.values(), strict=True):
        assert reason in found


def test_structs_are_json(server: registries.SchemaRegistry) -> None:
    file = file_of("a.proto", [("s", 1, FIELD.TYPE_MESSAGE, ".google.protobuf.Struct")])
    message = kind_of(file)()
    value = {"a": [1.0, None, {"b": True}], "c": "text", "d": None, "e": {}, "f": []}
    message.s.update(value)
    made = message_format(FORM, {}, exact=False, schemas=SchemaRegistry(server.url, form="serialized"))
    number = server.add(file.SerializeToString())
    (raw,) = made.read([packed(number, message)])
    assert raw.frame["s"].to_list() == [value]


def test_json_behind_the_id_of_a_schema() -> None:
    """Confluent's JSON Schema serializers write five bytes before the object."""
    values = [
        b'\0\0\0\0\7{"n": 1}',
        b'{"n": 2}',
        b"\0\0\0",
        b'\0\0\0\0\x0a{"n": 3}',
        b"\0\0\0\0\7",
        b'\0\0\0\0\7{"n": }',
    ]
    rows, reasons = read("http://unused", values, {"n": Int()}, form="json")
    assert {number: row["n"] for number, row in rows.items()} == {0: 1, 1: 2, 3: 3}
    assert sorted(reasons) == [2, 4, 5]


@pytest.mark.parametrize("answer", [[], "text", {"no": "schema"}, {"schema": "", "references": [{"name": "x"}]}, None])
def test_a_server_that_is_no_registry_is_tried_again(
    server: registries.SchemaRegistry, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """No message becomes a dead letter because the address leads to something else."""
    monkeypatch.setattr(server, "answer", lambda *_: (200, answer))
    with pytest.raises(Transient, match=r"the schema registry http\S+ (answers with|does not answer)"):
        read(server.url, [b"\0\0\0\0\1\0"], {"n": Int()})


def test_the_text_of_a_schema_must_be_base64(server: registries.SchemaRegistry) -> None:
    texts = ["no base64 at all", base64.b64encode(b"\xff\xff").decode(), base64.b64encode(b"").decode()]
    heads = [b"\0" + server.add(text).to_bytes(4, "big") + b"\0" for text in texts]
    rows, reasons = read(server.url, heads, {"n": Int()})
    assert not rows
    assert sorted(reasons) == [0, 1, 2]
