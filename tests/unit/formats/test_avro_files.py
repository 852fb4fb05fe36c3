"""Files of Avro: values that their types do not have, all compressions, hostile and damaged ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.connectors.reading import Read, read
from tests.unit.formats.avro_writing import LIST, SYNC, container, number, record, written
from umbel.connectors.files import Files
from umbel.types.dtypes import Datetime, Decimal, Int, Optional, Str


def outcome(folder: Path, content: bytes, schema: Any) -> Read:
    (folder / "a.avro").write_bytes(content)
    return read(Files(name="f", folder=str(folder)).path("a.avro", "avro").reader(folder), schema)


def as_logical(kind: str, logical: str, values: list[Any]) -> bytes:
    """Return a file of values that fastavro would not write as that type."""
    masked = "X" * len(logical)
    schema = record(("n", "long"), ("other", "string"), ("v", {"type": kind, "logicalType": masked}))
    rows = [{"n": n, "other": f"o{n}", "v": value} for n, value in enumerate(values)]
    return written(schema, rows, sync_interval=40).replace(masked.encode(), logical.encode())


@pytest.mark.parametrize(
    ("kind", "logical", "good", "bad"),
    [
        ("long", "timestamp-micros", 0, 2**62),
        ("long", "timestamp-millis", 0, -(2**62)),
        ("long", "local-timestamp-micros", 0, 2**62),
        ("int", "date", 0, 2**31 - 1),
        ("int", "time-millis", 0, 2**31 - 1),
        ("long", "time-micros", 0, 2**60),
        ("string", "uuid", "12345678-1234-5678-1234-567812345678", "no uuid"),
    ],
)
def test_a_value_that_its_type_does_not_have_costs_its_row(
    tmp_path: Path, kind: str, logical: str, good: Any, bad: Any
) -> None:
    """All following rows of the file were lost behind one dead letter."""
    values = [bad if n in (3, 4, 17) else good for n in range(30)]
    found = outcome(tmp_path, as_logical(kind, logical, values), {"n": Int(), "other": Str()})
    assert [row[0] for row in found.values()] == [n for n in range(30) if n not in (3, 4, 17)]
    for at, (place, reason, text) in zip((3, 4, 17), [found.dead[n] for n in sorted(found.dead)], strict=True):
        assert (place, reason[:25]) == (f"a.avro: row {at}", "'v' is not of its Avro ty")
        assert json.loads(text) == {"n": at, "other": f"o{at}", "v": bad}


@pytest.mark.parametrize("wrapped", [lambda kind: kind, lambda kind: ["null", kind]])
def test_a_decimal_with_more_digits_than_its_schema_declares_is_exact(
    tmp_path: Path, wrapped: Callable[[Any], Any]
) -> None:
    """It was rounded: 1234567.89 of precision 4 was 1235000.00."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    branch = b"" if wrapped(0) == 0 else number(1)
    values = [123_456_789, 1_234, -(10**27)]
    rows = b"".join(branch + number(12) + each.to_bytes(12, "big", signed=True) for each in values)
    found = outcome(tmp_path, container(record(("v", wrapped(kind))), len(values), rows), {"v": Optional(Decimal(2))})
    assert found.values() == [(Number(each).scaleb(-2),) for each in values]
    assert found.dead == {}


@pytest.mark.parametrize("logical", ["timestamp-nanos", "local-timestamp-nanos"])
def test_instants_in_nanoseconds(tmp_path: Path, logical: str) -> None:
    """As plain numbers, those near 1970 were taken for seconds: a second behind it was the year 2001."""
    nanos = [0, 10**9, 999, -1, 86_400 * 10**9, 1_772_366_400_123_456_789]
    schema = record(("v", {"type": "long", "logicalType": logical}))
    found = outcome(tmp_path, container(schema, len(nanos), b"".join(map(number, nanos))), {"v": Datetime()})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert found.values() == [(epoch + timedelta(microseconds=each // 1000),) for each in nanos]


def test_the_field_named_by_a_refusal_has_the_value(tmp_path: Path) -> None:
    """A number behind the symbols of an enum is refused whatever the logical types: the first field was blamed."""
    schema = record(("n", "long"), ("v", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    found = outcome(tmp_path, container(schema, 2, number(1) + number(7) + number(2) + number(1)), {"n": Int()})
    assert found.values() == [(2,)]
    assert [reason[:34] for reason in found.reasons()] == ["a value is not of its Avro type: I"]


def test_a_text_that_is_not_utf_8_costs_its_row(tmp_path: Path) -> None:
    content = written(record(("n", "long"), ("s", "string")), [{"n": n, "s": "abc"} for n in range(3)])
    found = outcome(
        tmp_path, content.replace(b"abc", b"\xff\xfe\xfd", 2).replace(b"\xff\xfe\xfd", b"abc", 1), {"n": Int()}
    )
    assert [row[0] for row in found.values()] == [0, 2]
    ((place, reason, text),) = found.dead.values()
    assert (place, reason[:30], text) == (
        "a.avro: row 1",
        "a value is not of its Avro type: "[:30],
        b'{"n":1,"s":"\\\\xff\\\\xfe\\\\xfd"}',
    )


def test_a_file_of_records_that_expand_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    one, deep = number(7) + number(0), (number(7) + number(1)) * 20_000 + number(7) + number(0)
    found = outcome(tmp_path, container(LIST, 3, one + deep + one), {"n": Int()})
    assert found.values() == [(7,), (7,)]
    assert [reason[:25] for reason in found.reasons()] == ["its values are nested deep"[:25]]
    nulls = record(("n", "long"), ("a", {"type": "array", "items": "null"}))
    block = number(1) + number(0) + number(2) + number(10**9) + number(0)
    found = outcome(tmp_path, container(nulls, 2, block), {"n": Int()})
    assert found.values() == [(1,)]
    assert "take no bytes" in found.reasons()[0]
    found = outcome(tmp_path, container(record(), 10**12, b""), {"n": Optional(Int())})
    assert "10" in found.reasons()[-1]


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "snappy": lambda data: pa.compress(data, codec="snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big"),
    "zstandard": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    "lz4": lambda data: len(data).to_bytes(4, "little") + pa.compress(data, codec="lz4_raw", asbytes=True),
}
ROW = record(("n", "long"), ("s", "string"))
BLOCK = b"".join(number(n) + number(2) + b"ab" for n in range(2000))


@pytest.mark.parametrize("codec", CODECS)
def test_all_codecs_are_read(tmp_path: Path, codec: str) -> None:
    """Those of Spark and Hive needed packages that were not installed: the file was one dead letter."""
    found = outcome(tmp_path, container(ROW, 2000, CODECS[codec](BLOCK), codec.encode()), {"n": Int(), "s": Str()})
    assert found.dead == {}
    assert found.values() == [(n, "ab") for n in range(2000)]


@pytest.mark.parametrize("codec", ["bzip2", "xz"])
def test_codecs_of_python_are_read(tmp_path: Path, codec: str) -> None:
    rows = [{"n": n, "s": "x" * (n % 50)} for n in range(5000)]
    found = outcome(tmp_path, written(ROW, rows, codec), {"n": Int(), "s": Str()})
    assert (found.dead, found.values()) == ({}, [(row["n"], row["s"]) for row in rows])


@pytest.mark.parametrize("codec", CODECS)
@given(at=st.integers(0, 4000), byte=st.integers(1, 255), cut=st.booleans())
@examples(40)
def test_damage_never_ends_the_reading(
    tmp_path_factory: pytest.TempPathFactory, codec: str, at: int, byte: int, cut: bool
) -> None:
    whole = container(ROW, 200, CODECS[codec](BLOCK[: BLOCK.index(number(200) + number(2))]), codec.encode())
    at %= len(whole)
    content = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ byte]) + whole[at + 1 :]
    found = outcome(tmp_path_factory.mktemp("avro"), content, {"n": Int(), "s": Str()})
    assert len(found.rows) <= 200
    if cut and content and not content.endswith(SYNC):
        assert found.dead


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstandard", "deflate"])
def test_a_block_that_says_it_is_huge_is_damage(tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbel.formats.avro_blocks.MOST_BLOCK", 1000)
    found = outcome(tmp_path, container(ROW, 2000, CODECS[codec](BLOCK)[:990], codec.encode()), {"n": Int()})
    assert found.rows == {}
    assert found.reasons()[0].startswith(f"not a readable Avro file: a block compressed by {codec} is damaged")
