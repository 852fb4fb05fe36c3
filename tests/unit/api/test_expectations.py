"""Expectations (api §10)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import umbel.lib
from tests.unit.api.streams import FOREVER, Events
from tests.unit.refusals import Cases, check_refused
from umbel.aggregates import Count
from umbel.api import expect
from umbel.api.dataset import Dataset, dataset, record_of
from umbel.api.expectations import expectations
from umbel.api.field import field
from umbel.api.inputs import inputs
from umbel.api.metadata import meta
from umbel.api.pipeline import pipeline
from umbel.types.windows import Tumbling

refused = Cases()

ARGUMENTS: dict[str, dict[str, Any]] = {
    "expect_column_values_to_not_be_null": {"column": "a"},
    "expect_column_values_to_be_null": {"column": "a"},
    "expect_column_values_to_be_of_type": {"column": "a", "type_": "int"},
    "expect_column_values_to_be_in_type_list": {"column": "a", "type_list": ["int"]},
    "expect_column_values_to_be_in_set": {"column": "a", "value_set": [1]},
    "expect_column_values_to_not_be_in_set": {"column": "a", "value_set": [1]},
    "expect_column_values_to_be_between": {
        "column": "a",
        "min_value": 1,
        "max_value": 2,
        "strict_min": False,
        "strict_max": True,
    },
    "expect_column_value_lengths_to_be_between": {"column": "a", "min_value": 1},
    "expect_column_value_lengths_to_equal": {"column": "a", "value": 1},
    "expect_column_values_to_match_regex": {"column": "a", "regex": "x"},
    "expect_column_values_to_not_match_regex": {"column": "a", "regex": "x"},
    "expect_column_values_to_match_regex_list": {"column": "a", "regex_list": ["x"], "match_on": "all"},
    "expect_column_values_to_not_match_regex_list": {"column": "a", "regex_list": ["x"]},
    "expect_column_values_to_match_strftime_format": {"column": "a", "strftime_format": "%Y"},
    "expect_column_values_to_be_dateutil_parseable": {"column": "a"},
    "expect_column_values_to_be_json_parseable": {"column": "a"},
    "expect_column_values_to_match_json_schema": {"column": "a", "json_schema": {"type": "object"}},
    "expect_column_pair_values_to_be_equal": {"column_A": "a", "column_B": "b"},
    "expect_column_pair_values_A_to_be_greater_than_B": {"column_A": "a", "column_B": "b", "or_equal": True},
    "expect_column_pair_values_to_be_in_set": {"column_A": "a", "column_B": "b", "value_pairs_set": [(1, 2)]},
    "expect_multicolumn_sum_to_equal": {"column_list": ["a", "b"], "sum_total": 1},
}


DEFAULTS: dict[str, dict[str, Any]] = {
    "expect_column_value_lengths_to_be_between": {"max_value": None},
    "expect_column_pair_values_to_be_equal": {"ignore_row_if": "both_values_are_missing"},
}
IGNORED = {
    "result_format": None,
    "row_condition": None,
    "condition_parser": None,
    "include_config": True,
    "catch_exceptions": None,
    "meta": None,
}


def test_every_expectation_is_tested() -> None:
    assert sorted(ARGUMENTS) == sorted(expect.__all__)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_returns_its_name_and_its_arguments(name: str) -> None:
    function = getattr(umbel.lib, name)
    single = "column" in ARGUMENTS[name]
    found, arguments = function(**ARGUMENTS[name])
    assert found == name
    assert arguments == DEFAULTS.get(name, {}) | ARGUMENTS[name] | ({"mostly": None} if single else {}) | IGNORED
    assert function(*ARGUMENTS[name].values()) == (found, arguments)
    assert ("mostly" in arguments) == single
    if single:
        assert function(**ARGUMENTS[name], mostly=0.9)[1]["mostly"] == 0.9
    assert function(**ARGUMENTS[name], meta={"a": 1}, include_config=False)[1]["meta"] == {"a": 1}


def with_expectations(*methods: Callable[..., Any]) -> Dataset:
    body = {f"e{place}": method for place, method in enumerate(methods)}
    return dataset(type("D", (), {"__annotations__": {"a": int, "t": datetime}, "__module__": __name__, **body}))


def listing(cls: Any) -> Any:
    return [expect.expect_column_values_to_not_be_null("a", mostly=0.95), expect.expect_column_values_to_be_null("a")]


def test_expectations_are_recorded_with_their_tolerance() -> None:
    found = record_of(with_expectations(expectations(version=2)(listing))).expectations
    assert found is not None
    assert (found.name, found.version) == ("listing", 2)
    assert [(each.name, each.mostly) for each in found.expected] == [
        ("expect_column_values_to_not_be_null", 0.95),
        ("expect_column_values_to_be_null", 1.0),
    ]
    assert record_of(with_expectations(expectations(listing))).expectations is not None
    assert record_of(with_expectations()).expectations is None


def two_parameters(cls: Any, other: Any) -> Any:
    return []


def second(cls: Any) -> Any:
    return []


refused.add(
    "two", lambda: with_expectations(expectations(listing), expectations(second)), ValueError, "D", "listing", "second"
)
refused.add("parameters", lambda: expectations(two_parameters), ValueError, "two_parameters", "cls")
refused.add("self", lambda: expectations(lambda self: []), ValueError, "cls")
refused.add("meta above", lambda: meta(owner="a@b.co")(expectations(listing)), ValueError, "listing", "meta")
refused.add("version", lambda: expectations(version="1"), TypeError, "version")  # type: ignore[call-overload]
refused.add("positional version", lambda: expectations(1), TypeError, "version")  # type: ignore[call-overload]
refused.add("no list", lambda: with_expectations(expectations(lambda cls: 3)), TypeError, "list")
refused.add("no pair", lambda: with_expectations(expectations(lambda cls: [3])), TypeError, "3")


def expecting(function: str, **arguments: Any) -> Callable[[], Dataset]:
    """Return a definition with one expectation."""
    return lambda: with_expectations(expectations(lambda cls: [getattr(expect, function)(**arguments)]))


BETWEEN, MATCH = "expect_column_values_to_be_between", "expect_column_values_to_match_regex"
PAIR = "expect_column_pair_values_to_be_equal"
refused.add("unknown field", expecting(BETWEEN, column="aa"), ValueError, "'D'", BETWEEN, "unknown field 'aa'", "'a'")
refused.add("unknown other", expecting(PAIR, column_A="a", column_B="zz"), ValueError, PAIR, "unknown field 'zz'")
refused.add(
    "unknown of many",
    expecting("expect_multicolumn_sum_to_equal", column_list=["a", "zz"], sum_total=1),
    ValueError,
    "unknown field 'zz'",
)
for mostly in (2, -0.1, "0.9", True, float("nan"), [1]):
    refused.add(f"mostly {mostly!r}", expecting(BETWEEN, column="a", mostly=mostly), ValueError, "mostly", repr(mostly))
for pattern in ("(", 5, None):
    refused.add(f"regex {pattern!r}", expecting(MATCH, column="a", regex=pattern), ValueError, MATCH, repr(pattern))
refused.add(
    "regex list",
    expecting(f"{MATCH}_list", column="a", regex_list=["a", "("]),
    ValueError,
    "'(' is no regular expression",
)


@refused(ValueError, "@meta")
def with_meta() -> None:
    @expectations
    @meta(owner="a@b.c")
    def e(cls):
        return []


@refused(ValueError, "'Watched.e'", "cls as its only parameter")
def parameters_in_a_dataset() -> None:
    @dataset
    class Watched:
        a: int
        t: datetime

        @expectations
        def e(cls, other):
            return []


@refused(ValueError, "'Watched.e'", "@meta")
def meta_in_a_dataset() -> None:
    @dataset
    class Watched:
        a: int
        t: datetime

        @meta(owner="a@b.co")
        @expectations
        def e(cls):
            return []


@refused(ValueError, "Totals", "continuous")
def on_terminal() -> None:
    over(FOREVER)


def over(window: Any) -> Dataset:
    @dataset(index=True)
    class Totals:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(Events)
        def p(cls, events):
            return events.groupby("uid").aggregate(n=Count(window=window))

        @expectations
        def e(cls):
            return [expect.expect_column_values_to_be_between(column=str(cls.n), min_value=0)]

    return Totals


def test_values_of_discrete_windows_may_be_expected() -> None:
    assert record_of(over(Tumbling("1h"))).expectations is not None


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
