"""Expectations: how they are written, and what is refused (api §10)."""

from datetime import datetime
from typing import Any

import pytest

import umbel.lib as lib
from tests.unit.rules.refusals import refused
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling
from umbel.featuresets import feature, featureset
from umbel.lib import expectations, inputs, meta
from umbel.lib.expectations import expect_column_values_to_be_between
from umbel.testing import MockClient

__owner__ = "team@example.com"

SINGLE: dict[str, dict[str, Any]] = {
    "expect_column_values_to_not_be_null": {}, "expect_column_values_to_be_null": {},
    "expect_column_values_to_be_of_type": {"type_": "int"}, "expect_column_values_to_be_in_type_list": {"type_list": ["int"]},
    "expect_column_values_to_be_in_set": {"value_set": [1]}, "expect_column_values_to_not_be_in_set": {"value_set": [1]},
    "expect_column_values_to_be_between": {"min_value": None, "max_value": 3, "strict_min": False, "strict_max": True},
    "expect_column_value_lengths_to_be_between": {"min_value": 1, "max_value": None},
    "expect_column_value_lengths_to_equal": {"value": 3},
    "expect_column_values_to_match_regex": {"regex": "a"}, "expect_column_values_to_not_match_regex": {"regex": "a"},
    "expect_column_values_to_match_regex_list": {"regex_list": ["a"], "match_on": "any"},
    "expect_column_values_to_not_match_regex_list": {"regex_list": ["a"]},
    "expect_column_values_to_match_strftime_format": {"strftime_format": "%Y"},
    "expect_column_values_to_be_dateutil_parseable": {}, "expect_column_values_to_be_json_parseable": {},
    "expect_column_values_to_match_json_schema": {"json_schema": {"type": "object"}},
}  # fmt: skip
PAIRS: dict[str, dict[str, Any]] = {
    "expect_column_pair_values_to_be_equal": {
        "column_A": "a",
        "column_B": "b",
        "ignore_row_if": "both_values_are_missing",
    },
    "expect_column_pair_values_A_to_be_greater_than_B": {"column_A": "a", "column_B": "b", "or_equal": None},
    "expect_column_pair_values_to_be_in_set": {"column_A": "a", "column_B": "b", "value_pairs_set": [(1, 2)]},
    "expect_multicolumn_sum_to_equal": {"column_list": ["a", "b"], "sum_total": 3},
}
IGNORED = {
    "result_format": None,
    "row_condition": None,
    "condition_parser": None,
    "include_config": True,
    "catch_exceptions": None,
    "meta": None,
}


@pytest.mark.parametrize("name", [*SINGLE, *PAIRS])
def test_a_pair_of_name_and_arguments(name: str) -> None:
    single = name in SINGLE
    given = {"column": "a", **SINGLE[name]} if single else PAIRS[name]
    found, arguments = getattr(lib, name)(**given)
    assert found == name
    assert arguments == given | ({"mostly": None} if single else {}) | IGNORED
    positional = getattr(lib, name)(*given.values())
    assert positional == (found, arguments)
    if single:
        assert getattr(lib, name)(**given, mostly=0.95)[1]["mostly"] == 0.95
    assert getattr(lib, name)(**given, meta={"a": 1}, include_config=False)[1]["meta"] == {"a": 1}


def test_on_datasets() -> None:
    @dataset
    class D:
        a: int
        t: datetime

        @expectations(version=2)
        def check(cls):
            return [expect_column_values_to_be_between(column=str(cls.a), min_value=0, max_value=10, mostly=0.9)]

    assert MockClient().commit("m", [D]).status_code == 200

    @dataset
    class E:
        a: int
        t: datetime

        @expectations
        def check(cls):
            return []

    assert MockClient().commit("m", [E]).status_code == 200


def test_misuses() -> None:
    with refused(ValueError, "D1", "one", "two"):

        @dataset
        class D1:
            t: datetime

            @expectations
            def one(cls):
                return []

            @expectations
            def two(cls):
                return []

    with refused(ValueError, "check", "cls"):

        @dataset
        class D2:
            t: datetime

            @expectations
            def check(cls, df):
                return []

    with refused(ValueError, "check", "cls"):

        @dataset
        class D3:
            t: datetime

            @expectations
            def check(self):
                return []

    with refused(TypeError, "version"):
        expectations(version="1")
    with refused(TypeError, "version"):
        expectations(1)


def test_more_misuses() -> None:
    with refused(ValueError, "check", "meta"):

        @dataset
        class D4:
            t: datetime

            @expectations
            @meta(owner="a@b.co")
            def check(cls):
                return []

    with refused(ValueError, "check", "meta"):

        @dataset
        class D5:
            t: datetime

            @meta(owner="a@b.co")
            @expectations
            def check(cls):
                return []


def test_expectations_of_featuresets() -> None:
    with refused(NotImplementedError, "FS"):

        @featureset
        class FS:
            a: int = feature()

            @expectations
            def check(cls):
                return []

    with refused(TypeError, "D6", "check"):

        @dataset
        class D6:
            t: datetime

            @expectations
            def check(cls):
                return 5


@dataset
class A:
    k: int
    t: datetime


def over(window: object) -> Dataset:
    @dataset
    class Agg:
        k: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Count(window=window))

        @expectations
        def check(cls):
            return [expect_column_values_to_be_between(column="n", min_value=0)]

    return Agg


def test_terminal_datasets() -> None:
    with refused(ValueError, "Agg", "check"):
        over(Continuous("1h"))
    assert over(Tumbling("1h"))
