"""Values in Postgres' text form become the values they are."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

import polars as pl
import pytest

from umbel.connectors.postgres.columns import described, typed
from umbel.connectors.postgres.copying import parse
from umbel.types.dtypes import Decimal, Dict, DType, Float, Str

CASES: list[tuple[str, str | None, list[str | None], DType | None, list[Any]]] = [
    ("int8", None, ["1", None, "-9223372036854775808"], None, [1, None, -(2**63)]),
    ("float8", None, ["1.5", "NaN", "-Infinity"], None, [1.5, float("nan"), float("-inf")]),
    ("numeric", None, ["1.50", "-2", None], Decimal(2), [Number("1.50"), Number("-2.00"), None]),
    ("numeric", None, ["0.1", "1e-7"], Float(), [0.1, 1e-7]),
    ("numeric", None, ["1" + "0" * 400, "-Infinity", "2"], Float(), [Number("1" + "0" * 400), float("-inf"), 2.0]),
    ("numeric", None, ["1." + "1" * 45], None, [Number("1." + "1" * 45)]),
    ("numeric", None, ["NaN", "1.5"], None, [float("nan"), Number("1.5")]),
    ("bool", None, ["t", "f", None], None, [True, False, None]),
    ("date", None, ["2024-02-29", "infinity"], None, [date(2024, 2, 29), "infinity"]),
    ("timestamptz", None, ["2024-01-01 00:00:00.5+00"], None, [datetime(2024, 1, 1, 0, 0, 0, 500_000, UTC)]),
    ("timestamptz", None, ["infinity", "2024-01-01 00:00:00+00"], None, ["infinity", datetime(2024, 1, 1, tzinfo=UTC)]),
    ("timestamp", None, ["0044-03-15 12:00:00 BC"], None, ["0044-03-15 12:00:00 BC"]),
    ("bytea", None, ["\\x00ff", "\\x"], None, [b"\x00\xff", b""]),
    ("jsonb", None, ['{"a": [1]}', "null"], None, [{"a": [1]}, None]),
    ("jsonb", None, ['{"a": 0.12345678901234567}'], Dict(Decimal(17)), [{"a": Number("0.12345678901234567")}]),
    ("jsonb", None, ["12345678901234567890.5"], Decimal(1), [Number("12345678901234567890.5")]),
    ("json", None, ['{"a": 1}'], Str(), ['{"a": 1}']),
    ("uuid", None, ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], Str(), ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("_int4", "int4", ["{1,NULL,-3}", "{}", "{{1},{2}}", "[0:1]={7,8}"], None, [[1, None, -3], [], [[1], [2]], [7, 8]]),
    ("_text", "text", ['{"a,b","{","\\"\\\\",NULL,"NULL",""}'], None, [["a,b", "{", '"\\', None, "NULL", ""]]),
    ("_box", "box", ["{(1,2),(0,0);NULL}"], None, [["(1,2),(0,0)", None]]),
    ("int2vector", "int2", ["1 2 3"], None, ["1 2 3"]),
    ("_bool", "bool", ["{t,f}"], None, [[True, False]]),
]


@pytest.mark.parametrize(("kind", "element", "text", "requested", "expected"), CASES)
def test_values(kind: str, element: str | None, text: list[Any], requested: DType | None, expected: list[Any]) -> None:
    column = described("c", kind, element, -1, (False, False), ";" if element == "box" else ",")
    found = typed(pl.Series("c", text, dtype=pl.String), column, requested)
    assert found.name == "c"
    assert list(map(repr, found.to_list())) == list(map(repr, expected)) or found.to_list() == expected


def test_null_and_empty_text_differ() -> None:
    data = b'1,,""\n2,"a\n""b""","\\N"\n3,"",\n'
    assert parse(data, ("id", "a", "b")).rows() == [("1", None, ""), ("2", 'a\n"b"', "\\N"), ("3", "", None)]


def test_a_row_of_one_null() -> None:
    assert parse(b'\n"x"\n\n', ("a",))["a"].to_list() == [None, "x", None]
