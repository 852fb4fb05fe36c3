"""Functions of text."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime
from typing import Any, Optional

import pytest

from tests.unit.expr.table import check, fails, refused
from umbel.errors import InvalidType
from umbel.expr import Expr, InvalidExprException, col, lit, when
from umbel.types.annotations import Decimal, Dict, between, regex
from umbel.types.structs import struct


@struct
class Item:
    name: str
    price: float | None


S, X = col("s"), col("x")
TEXT = {"s": (str, ["Ab", "", "É√😀"])}
NULLS = {"s": (Optional[str], ["a.b", None, "a.b", "axb"]), "x": (Optional[str], ["a", "a", None, "b"])}
ITEM = Item.__umbel_struct__  # type: ignore[attr-defined]

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (S.str.lower(), TEXT, str, ["ab", "", "é√😀"]),
    (S.str.upper(), TEXT, str, ["AB", "", "É√😀"]),
    (S.str.len(), TEXT, int, [2, 0, 3]),
    (S.str.concat("!"), TEXT, str, ["Ab!", "!", "É√😀!"]),
    (S.str.concat(X), NULLS, Optional[str], ["a.ba", None, None, "axbb"]),
    (lit("<").str.concat(S), TEXT, str, ["<Ab", "<", "<É√😀"]),
    (S.str.contains("."), NULLS, Optional[bool], [True, None, True, False]),
    (S.str.contains(""), TEXT, bool, [True, True, True]),
    (S.str.contains(X), NULLS, Optional[bool], [True, None, None, True]),
    (S.str.startswith("a."), NULLS, Optional[bool], [True, None, True, False]),
    (S.str.startswith(X), NULLS, Optional[bool], [True, None, None, False]),
    (S.str.endswith(".b"), NULLS, Optional[bool], [True, None, True, False]),
    (S.str.endswith(X), NULLS, Optional[bool], [False, None, None, True]),
    (S.str.split("."), NULLS, Optional[list[str]], [["a", "b"], None, ["a", "b"], ["axb"]]),
    (S.str.split(","), {"s": (str, ["", ",", "a,b,"])}, list[str], [[""], ["", ""], ["a", "b", ""]]),
    (S.str.split(""), TEXT, list[str], [["A", "b"], [], ["É", "√", "😀"]]),
    (S.str.split(X), NULLS, Optional[list[str]], [["", ".b"], None, None, ["ax", ""]]),
    (lit("ab").str.split(X), {"x": (str, ["", "b", "ab"])}, list[str], [["a", "b"], ["a", ""], ["", ""]]),
    (S.str.lower().len(), TEXT, int, [2, 0, 3]),
    (S.str.len(), {"s": (regex("a+"), ["a", "aa"])}, int, [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


JSON = [
    ('{"a": {"b": "x"}}', "$.a", '{"b":"x"}'),
    ('{"a": {"b": "x"}}', "$.a.b", "x"),
    ('{"a": {"b": "x"}}', "$['a']['b']", "x"),
    ('{"a": [1, 2]}', "$.a", "[1,2]"),
    ('{"a": [1, 2]}', "$.a[1]", "2"),
    ('{"a": [{"b": 1}, {"b": 2}]}', "$.a[*].b", "1"),
    ('{"a": [{"b": 1}, {"b": 2}]}', "$..b", "1"),
    ('{"a": true}', "$.a", "true"),
    ('{"a": 1.5}', "$.a", "1.5"),
    ('{"a": null}', "$.a", None),
    ('{"a": 1}', "$.z", None),
    ('{"a": 1', "$.a", None),
    ("", "$.a", None),
    ('"x"', "$", "x"),
    ('{"a b": 1, "a": 2}', "$['a b']", "1"),
    ('{"a b": 1, "a": 2}', '$.["a b"] ', "1"),
    ('{"a-é/#1": 1, "a": 2}', "$.a-é/#1", "1"),
    ('{"a": {"x]": 1}}', "$..['x]']", "1"),
    ('{"a": [[1, 2], [3]]}', "$.a[1:][0]", "3"),
    ('{"a": [{"b": 1}, {"b": 2, "c": "[\'"}]}', """$.a[?(@['b'] == 2 && @.c == "['")].*""", "2"),
]


@pytest.mark.parametrize(("text", "path", "expected"), JSON)
def test_json_extract(text: str, path: str, expected: str | None) -> None:
    check(S.str.json_extract(path), {"s": (str, [text])}, Optional[str], [expected])
    check(S.str.json_extract(path), {"s": (Optional[str], [None])}, Optional[str], [None])


@pytest.mark.parametrize("path", ["a", "", ".a", "$.[[", "$.a[?(@.b[0]==5)]"])
def test_bad_json_path(path: str) -> None:
    refused(S.str.json_extract(path), TEXT, "json_extract")


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("$.a b", "b"),
        ("$.a .b", ".b"),
        ("$ .a", ".a"),
        ("$.a,b", ",b"),
        ("$.a]", "]"),
        ("$.a[0]b", "b"),
        ("$.a\n.b", ".b"),
        ("$.a()", "()"),
        ("$.a:b", ":b"),
        ("$.a=1", "=1"),
    ],
)
def test_a_json_path_that_is_read_in_part(path: str, rest: str) -> None:
    with pytest.raises(InvalidExprException, match="is no JSONPath from") as caught:
        S.str.json_extract(path)
    assert repr(rest) in caught.value.message


def test_a_json_path_that_is_read_in_part_and_committed_before() -> None:
    record = S.str.json_extract("$.a").to_record()
    record["constants"]["path"] = "$.a b"
    check(Expr.from_record(record), {"s": (str, ['{"a": 1, "a b": 2}'])}, Optional[str], ["1"])


PARSED = [
    (int, "1", 1),
    (int, "1.0", 1),
    (int, " 1 ", 1),
    (int, "-9223372036854775808", -(2**63)),
    (float, "1.5", 1.5),
    (float, "2", 2.0),
    (bool, "true", True),
    (str, '"x\\n"', "x\n"),
    (Optional[int], "null", None),
    (list[int], "[1, 2]", [1, 2]),
    (list[int | None], "[1, null]", [1, None]),
    (Item, '{"name": "x", "price": 2, "extra": []}', {"name": "x", "price": 2.0}),
    (Item, '{"name": "x"}', {"name": "x", "price": None}),
    (list[Item], '[{"name": "x", "price": null}]', [{"name": "x", "price": None}]),
    (Dict[int], '{"b": 1, "a": 2}', [{"key": "a", "value": 2}, {"key": "b", "value": 1}]),
    (Decimal[2], "1.25", decimal.Decimal("1.25")),
    (date, '"2024-02-29"', date(2024, 2, 29)),
    (datetime, '"2024-02-29T01:02:03.5+01:00"', datetime(2024, 2, 29, 0, 2, 3, 500_000, tzinfo=UTC)),
    (between(int, 0, 5), "3", 3),
]


@pytest.mark.parametrize(("type_", "text", "expected"), PARSED, ids=str)
def test_parse(type_: Any, text: str, expected: Any) -> None:
    check(S.str.parse(type_), {"s": (str, [text])}, type_, [expected])
    check(S.str.parse(type_), {"s": (Optional[str], [None, text])}, Optional[type_], [None, expected])


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (int, "1.5"),
        (int, '"1"'),
        (int, "true"),
        (int, "null"),
        (int, "9223372036854775808"),
        (int, ""),
        (int, "x"),
        (float, '"1.5"'),
        (bool, "1"),
        (str, "x"),
        (str, "1"),
        (list[int], "[1, null]"),
        (list[int], '{"a": 1}'),
        (Item, '{"price": 2}'),
        (Item, '{"name": null}'),
        (between(int, 0, 5), "9"),
    ],
    ids=str,
)
def test_parse_refuses(type_: Any, text: str) -> None:
    fails(S.str.parse(type_), {"s": (str, [text])}, "JSON", "str.parse")


def test_parse_where_it_is_not_needed() -> None:
    guarded = when(S.str.startswith("-")).then(-1).otherwise(S.str.parse(int))
    check(guarded, {"s": (str, ["-", "5"])}, int, [-1, 5])
    fails(guarded, {"s": (str, ["-", "x"])}, "JSON of type int")


def at(hour: int, minute: int = 0, second: int = 0, microsecond: int = 0, day: int = 2) -> datetime:
    return datetime(2024, 1, day, hour, minute, second, microsecond, tzinfo=UTC)


INSTANTS = [
    (("%Y-%m-%d %H:%M:%S",), "2024-01-02 03:04:05", at(3, 4, 5)),
    (("%Y-%m-%d %H:%M:%S%.f",), "2024-01-02 03:04:05.123456", at(3, 4, 5, 123456)),
    (("%Y-%m-%d %H:%M:%S%.f",), "2024-01-02 03:04:05", at(3, 4, 5)),
    (("%Y-%m-%d",), "2024-01-02", at(0)),
    (("%d/%m/%Y %I:%M %p",), "02/01/2024 03:04 PM", at(15, 4)),
    (("%Y-%m-%d %H:%M:%S%z",), "2024-01-02 03:04:05+0200", at(1, 4, 5)),
    (("%Y-%m-%dT%H:%M:%S%#z",), "2024-01-02T03:04:05Z", at(3, 4, 5)),
    (("%Y-%m-%d %H:%M", "America/New_York"), "2024-01-02 03:04", at(8, 4)),
    (("%Y-%m-%d %H:%M:%S%z", "America/New_York"), "2024-01-02 03:04:05+0200", at(1, 4, 5)),
]


@pytest.mark.parametrize(("arguments", "text", "expected"), INSTANTS)
def test_strptime(arguments: tuple[str, ...], text: str, expected: datetime) -> None:
    check(S.str.strptime(*arguments), {"s": (str, [text])}, datetime, [expected])
    check(S.str.strptime(*arguments), {"s": (Optional[str], [None])}, Optional[datetime], [None])


def test_strptime_takes_the_first_of_two_and_refuses_what_no_clock_showed() -> None:
    local = S.str.strptime("%Y-%m-%d %H:%M", timezone="America/New_York")
    first = datetime(2024, 11, 3, 5, 30, tzinfo=UTC)
    check(local, {"s": (str, ["2024-11-03 01:30"])}, datetime, [first])
    fails(local, {"s": (str, ["2024-03-10 02:30"])}, "strptime", "the clocks of America/New_York skip its time")


@pytest.mark.parametrize("text", ["2024-13-01", "x", "", "2024-01-01 00:00"])
def test_strptime_refuses(text: str) -> None:
    fails(S.str.strptime("%Y-%m-%d"), {"s": (str, ["2024-01-01", text])}, "not in the format", "first row 1")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome"])
@pytest.mark.parametrize("second", [253_402_300_800, -62_135_596_801, 9_000_000_000_000])
def test_strptime_refuses_other_years_than_1_to_9999(zone: str, second: int) -> None:
    fails(S.str.strptime("%s", timezone=zone), {"s": (str, [str(second)])}, "strptime", "years 1 to 9999")


@pytest.mark.parametrize("format", ["%H:%M", "%m-%d", "literal", ""])
def test_strptime_refuses_formats_without_a_year(format: str) -> None:
    refused(S.str.strptime(format), TEXT, "strptime", "has no year")


@pytest.mark.parametrize("format", ["%Y", "%y%m%d", "%s", "%c", "%+", "%Y-%j", "%G-%V-%u", "%FT%T%#z", "%FT%T%.f%z"])
def test_strptime_takes_formats_with_a_year(format: str) -> None:
    assert S.str.strptime(format).typeof({"s": str}) is datetime


@pytest.mark.parametrize(
    "arguments", [("%Q",), ("%Y-%m-%d %H",), ("%Y", "+05:30"), ("%Y", "Mars/Olympus"), ("%Y", "EDT!")], ids=str
)
def test_bad_formats_and_zones(arguments: tuple[str, ...]) -> None:
    refused(S.str.strptime(*arguments), TEXT, "strptime")


@pytest.mark.parametrize("name", ["lower", "upper", "len"])
def test_text_only(name: str) -> None:
    refused(getattr(col("a").str, name)(), {"a": (int, [])}, f"str.{name}", "int")


@pytest.mark.parametrize("name", ["concat", "contains", "startswith", "endswith", "split"])
def test_both_must_be_text(name: str) -> None:
    refused(getattr(S.str, name)(1), TEXT, f"str.{name}", "int", "str")


def test_constants_must_be_text() -> None:
    with pytest.raises(InvalidType, match="str"):
        S.str.strptime(5)
