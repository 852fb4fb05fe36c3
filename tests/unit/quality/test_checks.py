"""Watching expectations: what passes, what fails, what is not judged."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from umbel.api import expect
from umbel.definitions.records import Expectation, Expectations
from umbel.quality.checks import CONDITIONS, watch
from umbel.quality.json_schema import fits
from umbel.types.annotations import from_annotation

DTYPES = {
    "n": from_annotation(int | None),
    "m": from_annotation(int | None),
    "s": from_annotation(str | None),
    "t": from_annotation(datetime),
}
FRAME = pl.DataFrame(
    {
        "n": [1, 2, 3, None],
        "m": [1, 3, None, None],
        "s": ["2024", '{"a": 1}', "xyz", None],
        "t": [datetime(2024, 1, 1, tzinfo=UTC)] * 4,
    },
    schema={name: dtype.polars() for name, dtype in DTYPES.items()},
)
SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}

# expectation, its arguments, what each row is: pass (1), fail (0), not judged (.)
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("expect_column_values_to_not_be_null", {"column": "n"}, "1110"),
    ("expect_column_values_to_be_null", {"column": "m"}, "0011"),
    ("expect_column_values_to_be_of_type", {"column": "n", "type_": "int"}, "111."),
    ("expect_column_values_to_be_of_type", {"column": "n", "type_": "str"}, "000."),
    ("expect_column_values_to_be_in_type_list", {"column": "s", "type_list": ["int", "str"]}, "111."),
    ("expect_column_values_to_be_in_set", {"column": "n", "value_set": [1, 3]}, "101."),
    ("expect_column_values_to_not_be_in_set", {"column": "n", "value_set": [1, 3]}, "010."),
    ("expect_column_values_to_be_between", {"column": "n", "min_value": 1, "max_value": 2}, "110."),
    ("expect_column_values_to_be_between", {"column": "n", "min_value": 1, "strict_min": True}, "011."),
    ("expect_column_values_to_be_between", {"column": "n", "max_value": 2, "strict_max": True}, "100."),
    ("expect_column_values_to_be_between", {"column": "n"}, "111."),
    ("expect_column_value_lengths_to_be_between", {"column": "s", "min_value": 4, "max_value": 5}, "100."),
    ("expect_column_value_lengths_to_equal", {"column": "s", "value": 3}, "001."),
    ("expect_column_values_to_match_regex", {"column": "s", "regex": r"\d"}, "110."),
    ("expect_column_values_to_not_match_regex", {"column": "s", "regex": r"\d"}, "001."),
    ("expect_column_values_to_match_regex_list", {"column": "s", "regex_list": [r"^2", "z$"]}, "101."),
    ("expect_column_values_to_match_regex_list", {"column": "s", "regex_list": ["2", "4$"], "match_on": "all"}, "100."),
    ("expect_column_values_to_not_match_regex_list", {"column": "s", "regex_list": [r"^2", "z$"]}, "010."),
    ("expect_column_values_to_match_strftime_format", {"column": "s", "strftime_format": "%Y"}, "100."),
    ("expect_column_values_to_be_dateutil_parseable", {"column": "s"}, "100."),
    ("expect_column_values_to_be_json_parseable", {"column": "s"}, "110."),
    ("expect_column_values_to_match_json_schema", {"column": "s", "json_schema": SCHEMA}, "010."),
    ("expect_column_pair_values_to_be_equal", {"column_A": "n", "column_B": "m"}, "100."),
    (
        "expect_column_pair_values_to_be_equal",
        {"column_A": "n", "column_B": "m", "ignore_row_if": "either_value_is_missing"},
        "10..",
    ),
    ("expect_column_pair_values_to_be_equal", {"column_A": "n", "column_B": "m", "ignore_row_if": "never"}, "1001"),
    ("expect_column_pair_values_A_to_be_greater_than_B", {"column_A": "m", "column_B": "n"}, "01.."),
    ("expect_column_pair_values_A_to_be_greater_than_B", {"column_A": "n", "column_B": "m", "or_equal": True}, "10.."),
    ("expect_column_pair_values_to_be_in_set", {"column_A": "n", "column_B": "m", "value_pairs_set": [(2, 3)]}, "01.."),
    ("expect_multicolumn_sum_to_equal", {"column_list": ["n", "m"], "sum_total": 5}, "01.."),
]


@pytest.mark.parametrize(("name", "arguments", "rows"), CASES)
def test_each_expectation(name: str, arguments: dict[str, Any], rows: str) -> None:
    report, passed = getattr(expect, name)(**arguments)
    for place, expected in enumerate(rows):
        (one,) = watch(FRAME[place], DTYPES, Expectations("e", 1, (Expectation(report, passed),)))
        assert (one.rows, one.failed) == {"1": (1, 0), "0": (1, 1), ".": (0, 0)}[expected], place
    (found,) = watch(FRAME, DTYPES, Expectations("e", 1, (Expectation(report, passed),)))
    assert (found.rows, found.failed) == (4 - rows.count("."), rows.count("0"))
    assert set(found.columns) <= set(FRAME.columns)


LISTED = {"l": from_annotation(list[int] | None)}
LISTS = pl.DataFrame({"l": [[1], [1, 2], None]}, schema={"l": LISTED["l"].polars()})


@pytest.mark.parametrize(
    ("expected", "failed"),
    [(expect.expect_column_values_to_be_in_set, 1), (expect.expect_column_values_to_not_be_in_set, 1)],
)
def test_lists_are_in_a_set_of_lists(expected: Any, failed: int) -> None:
    (found,) = watch(LISTS, LISTED, Expectations("e", 1, (Expectation(*expected("l", [[1], [3]])),)))
    assert (found.rows, found.failed) == (2, failed)


def test_every_expectation_is_watched() -> None:
    assert sorted(CONDITIONS) == sorted(expect.__all__) == sorted({name for name, *_ in CASES})


@pytest.mark.parametrize(("mostly", "holds"), [(None, False), (0.8, False), (0.75, True), (0.5, True)])
def test_a_share_of_rows_may_fail(mostly: float | None, holds: bool) -> None:
    listed = Expectation(*expect.expect_column_values_to_not_be_null("n", mostly=mostly))
    assert watch(FRAME, DTYPES, Expectations("e", 1, (listed,)))[0].holds == holds


def test_no_rows_break_nothing() -> None:
    for name, arguments, _ in CASES:
        (found,) = watch(
            FRAME.clear(), DTYPES, Expectations("e", 1, (Expectation(*getattr(expect, name)(**arguments)),))
        )
        assert found.holds


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 2.0], [1.5, True, "1", None]),
        ({"type": ["number", "null"]}, [1, 1.5, None], [True, "x"]),
        ({"type": "boolean"}, [True], [1]),
        ({"enum": [1, "a"]}, [1, "a"], [2]),
        ({"const": {"a": 1}}, [{"a": 1}], [{"a": 2}]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x", True], [0, 3]),
        ({"enum": [1, 0]}, [1, 0], [True, False]),
        ({"$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"}, [None], [1]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, [1, 5.5], [6]),
        ({"pattern": "^(a+)+$"}, ["a" * 40], ["a" * 40 + "b"]),
        ({"type": "text"}, [], [1, "x"]),
        ({"pattern": "("}, [], ["("]),
        ("no schema", [], [1]),
        ({"maximum": 1, "exclusiveMinimum": 0}, [1], [0, 2]),
        ({"minLength": 2, "maxLength": 3, "pattern": "^a"}, ["ab", 5], ["a", "abcd", "bcd"]),
        ({"items": {"type": "string"}, "minItems": 1, "maxItems": 2}, [["a"], {}], [[], ["a"] * 3, [1]]),
        (
            {"properties": {"a": {"type": "null"}}, "required": ["b"]},
            [{"b": 1}, {"a": None, "b": 1}],
            [{}, {"a": 1, "b": 1}],
        ),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"c": 1}]),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["x", 6], [4]),
        ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, [6], [4, "x"]),
        ({"not": {"type": "string"}}, [1], ["x"]),
        (True, [1], []),
        (False, [], [1]),
        ({"title": "anything"}, [1, None], []),
    ],
)
def test_json_schema(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not fits(json.dumps(value), schema)] == []
    assert [value for value in bad if fits(json.dumps(value), schema)] == []


def test_a_schema_is_fetched_from_nowhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        schema = {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"}
        assert not fits("1", schema)
        assert not fits("1", {"$ref": "file:///etc/hostname"})
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()
