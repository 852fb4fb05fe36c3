"""Avro messages: hostile records and schemas; which ones are walked before they are decoded."""

from __future__ import annotations

import io
import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.formats.avro_writing import LIST, number, record
from umbel.formats.avro import AvroDecoder
from umbel.formats.avro_shape import DEEPEST, AvroShape
from umbel.formats.registry import RegisteredSchema
from umbel.types.dtypes import List, Str

NAMES = itertools.count()


def shape_of(schema: Any) -> AvroShape:
    named = dict[str, Any]()
    return AvroShape(fastavro.parse_schema(schema, named), named)


# ---- shapes

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
Typed = tuple[Any, st.SearchStrategy[Any]]


def _fixed(size: int) -> Typed:
    name = f"F{next(NAMES)}"
    return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)


def _nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def of_fields(found: list[Typed]) -> Typed:
        fields = [(f"f{at}", kind) for at, (kind, _) in enumerate(found)]
        values = st.fixed_dictionaries({f"f{at}": each for at, (_, each) in enumerate(found)})
        return record(*fields, name=f"R{next(NAMES)}"), values

    return st.one_of(
        inner.map(lambda one: ({"type": "array", "items": one[0]}, st.lists(one[1], max_size=3))),
        inner.map(
            lambda one: ({"type": "map", "values": one[0]}, st.dictionaries(st.text(max_size=2), one[1], max_size=3))
        ),
        inner.map(
            lambda one: (
                one[0] if one[0] == "null" or isinstance(one[0], list) else ["null", one[0]],
                st.none() | one[1],
            )
        ),
        st.lists(inner, max_size=3).map(of_fields),
    )


TYPED = st.recursive(
    st.sampled_from(sorted(PLAIN)).map(lambda kind: (kind, PLAIN[kind])) | st.integers(0, 3).map(_fixed),
    _nested,
    max_leaves=8,
)


@given(TYPED, st.data())
@examples(60)
def test_a_walk_ends_where_the_record_does(typed: Typed, data: st.DataObject) -> None:
    schema, values = record(("v", typed[0])), typed[1]
    try:
        parsed = fastavro.parse_schema(schema)
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, {"v": data.draw(values)})
    except Exception:  # unions of unions, and of two types of one value
        return
    content, shape = written.getvalue(), shape_of(schema)
    assert shape.walk(b"xx" + content + b"more", 2) == (2 + len(content), False)
    for cut in range(len(content)):
        with pytest.raises(ValueError, match=r"cut|none with number|length of"):
            shape.walk(content[:cut], 0)


def test_only_schemas_that_expand_are_walked() -> None:
    row = record(("n", "long"), ("tags", {"type": "array", "items": ["null", "string"]}), name="Row")
    debezium = record(("before", ["null", row]), ("after", ["null", "Row"]), ("op", "string"))
    assert not shape_of(debezium).can_expand
    assert not shape_of(record(("n", "int"), *[(f"f{n}", "null") for n in range(500)])).can_expand
    assert shape_of(record(("next", ["null", "R"]))).can_expand
    assert shape_of(record(("all", {"type": "array", "items": "R"}))).can_expand
    assert shape_of(record(("none", {"type": "array", "items": record(("x", "null"), name="X")}))).can_expand


# ---- messages


class Registry:
    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def schema(self, number: int) -> RegisteredSchema:
        return RegisteredSchema(json.dumps(self._schema), {})


def laughing(levels: int) -> Any:
    """Return a schema whose record has no bytes and two to the power of `levels` values."""
    found: Any = record(("a", "null"), name="L0")
    for level in range(1, levels):
        found = record(("a", found), ("b", f"L{level - 1}"), name=f"L{level}")
    return found


TREE = record(("all", {"type": "array", "items": "R"}))
HOSTILE = {
    "a list": (LIST, (number(7) + number(1)) * 20_000 + number(7) + number(0), "nested deeper"),
    "a tree": (TREE, number(1) * 20_000 + number(0) * 20_001, "nested deeper"),
    "nulls": (record(("a", {"type": "array", "items": "null"})), number(10**9) + number(0), "take no bytes"),
    "a negative count": (
        record(("a", {"type": "array", "items": "null"})),
        number(-(10**9)) + number(0) * 2,
        "no bytes",
    ),
    "empty records": (
        record(("a", {"type": "array", "items": record(name="E")})),
        number(10**9) + number(0),
        "take no bytes",
    ),
    "doubled": (laughing(60), b"", "take no bytes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_message_that_expands_without_bound_is_refused(case: str) -> None:
    """It ended the process, or filled its memory, and did it again after the restart."""
    schema, content, reason = HOSTILE[case]
    decoder = AvroDecoder(Registry(schema))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=reason):
        decoder.decode(b"\0\0\0\0\1" + content)


def test_nested_messages_within_the_limit_are_read() -> None:
    decoder = AvroDecoder(Registry(LIST))  # type: ignore[arg-type]
    found = decoder.decode(b"\0\0\0\0\1" + (number(7) + number(1)) * (DEEPEST - 1) + number(7) + number(0))
    depth = 0
    while found["next"] is not None:
        found, depth = found["next"], depth + 1
    assert depth == DEEPEST - 1


def framed_value(kind: Any, content: bytes) -> Any:
    decoder = AvroDecoder(Registry(record(("x", kind), name="Valued")))  # type: ignore[arg-type]
    return decoder.decode(b"\0\0\0\0\1" + content)["x"]


@pytest.mark.parametrize("unscaled", [123_456, -123_456, 9_999, 10**27 + 1])
@pytest.mark.parametrize("size", [None, 16])
def test_a_decimal_with_more_digits_than_its_schema_declares_is_exact(unscaled: int, size: int | None) -> None:
    """It was rounded: 1234.56 of precision 4 was 1235.00."""
    kind = {"type": "bytes" if size is None else "fixed", "logicalType": "decimal", "precision": 4, "scale": 2}
    data = unscaled.to_bytes(16, "big", signed=True)
    if size is None:
        data = number(len(data)) + data
    else:
        kind |= {"name": "Fixed", "size": size}
    assert framed_value(kind, data) == Decimal((int(unscaled < 0), Decimal(abs(unscaled)).as_tuple().digits, -2))
    assert framed_value(["null", kind], number(1) + data) == Decimal(unscaled).scaleb(-2)


def test_an_instant_in_nanoseconds_is_an_instant() -> None:
    """As a number, a second behind 1970 was taken for the year 2001."""
    found = framed_value({"type": "long", "logicalType": "timestamp-nanos"}, number(10**9 + 1999))
    assert found == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)


def test_a_uuid_is_a_text() -> None:
    text = "5f3e9a4e-6f0a-4b1e-9d6c-1f2e3d4c5b6a"
    found = framed_value({"type": "string", "logicalType": "uuid"}, number(36) + text.encode())
    for dtype, values, expected in ((Str(), [found], [text]), (List(Str()), [[found]], [[text]])):
        checked = dtype.convert(values)
        assert (checked.values.to_list(), checked.errors) == (expected, {})
