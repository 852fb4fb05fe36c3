"""The `expect_*` functions; each returns its name and all its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec

P = ParamSpec("P")
Expected = tuple[str, dict[str, Any]]

IGNORED = {
    "result_format": None,
    "row_condition": None,
    "condition_parser": None,
    "include_config": True,
    "catch_exceptions": None,
    "meta": None,
}


def expectation(func: Callable[P, None]) -> Callable[..., Expected]:
    """Decorate a function to return its name and arguments.

    Options without effect here are accepted.
    """
    own = signature(func)
    optional = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in IGNORED.items()]
    full = own.replace(parameters=[*own.parameters.values(), *optional])

    @wraps(func)
    def listed(*args: Any, **kwargs: Any) -> Expected:
        bound = full.bind(*args, **kwargs)
        bound.apply_defaults()
        return func.__name__, dict(bound.arguments)

    listed.__signature__ = full  # type: ignore[attr-defined]
    return listed


@expectation
def expect_column_values_to_not_be_null(column: str, mostly: float | None = None) -> None:
    """Values are not null."""


@expectation
def expect_column_values_to_be_null(column: str, mostly: float | None = None) -> None:
    """Values are null."""


@expectation
def expect_column_values_to_be_of_type(column: str, type_: str, mostly: float | None = None) -> None:
    """Values are of a declared type."""


@expectation
def expect_column_values_to_be_in_type_list(column: str, type_list: Sequence[str], mostly: float | None = None) -> None:
    """Values are of one of the listed types."""


@expectation
def expect_column_values_to_be_in_set(column: str, value_set: Sequence[Any], mostly: float | None = None) -> None:
    """Values are in a set."""


@expectation
def expect_column_values_to_not_be_in_set(column: str, value_set: Sequence[Any], mostly: float | None = None) -> None:
    """Values are not in a set."""


@expectation
def expect_column_values_to_be_between(
    column: str,
    min_value: Any = None,
    max_value: Any = None,
    strict_min: bool = False,
    strict_max: bool = False,
    mostly: float | None = None,
) -> None:
    """Values lie between two bounds, inclusive unless strict."""


@expectation
def expect_column_value_lengths_to_be_between(
    column: str, min_value: int | None = None, max_value: int | None = None, mostly: float | None = None
) -> None:
    """Text lengths lie between two bounds, inclusive."""


@expectation
def expect_column_value_lengths_to_equal(column: str, value: int, mostly: float | None = None) -> None:
    """Texts have an exact length."""


@expectation
def expect_column_values_to_match_regex(column: str, regex: str, mostly: float | None = None) -> None:
    """Texts match a regular expression."""


@expectation
def expect_column_values_to_not_match_regex(column: str, regex: str, mostly: float | None = None) -> None:
    """Texts do not match a regular expression."""


@expectation
def expect_column_values_to_match_regex_list(
    column: str, regex_list: Sequence[str], match_on: str = "any", mostly: float | None = None
) -> None:
    """Texts match any, or all, of the listed regular expressions."""


@expectation
def expect_column_values_to_not_match_regex_list(
    column: str, regex_list: Sequence[str], mostly: float | None = None
) -> None:
    """Texts match none of the listed regular expressions."""


@expectation
def expect_column_values_to_match_strftime_format(
    column: str, strftime_format: str, mostly: float | None = None
) -> None:
    """Texts are datetimes in a format."""


@expectation
def expect_column_values_to_be_dateutil_parseable(column: str, mostly: float | None = None) -> None:
    """Texts are datetimes in any usual format."""


@expectation
def expect_column_values_to_be_json_parseable(column: str, mostly: float | None = None) -> None:
    """Texts are JSON."""


@expectation
def expect_column_values_to_match_json_schema(
    column: str, json_schema: dict[str, Any] | str, mostly: float | None = None
) -> None:
    """Texts are JSON that is valid under a JSON schema."""


@expectation
def expect_column_pair_values_to_be_equal(
    column_A: str,  # noqa: N803  api.md's name
    column_B: str,  # noqa: N803
    ignore_row_if: str = "both_values_are_missing",
) -> None:
    """Values of two columns are equal."""


@expectation
def expect_column_pair_values_A_to_be_greater_than_B(  # noqa: N802  api.md's name
    column_A: str,  # noqa: N803
    column_B: str,  # noqa: N803
    or_equal: bool | None = None,
) -> None:
    """Values of one column are greater than those of another."""


@expectation
def expect_column_pair_values_to_be_in_set(
    column_A: str,  # noqa: N803
    column_B: str,  # noqa: N803
    value_pairs_set: Sequence[tuple[Any, Any]],
) -> None:
    """Pairs of values of two columns are in a set."""


@expectation
def expect_multicolumn_sum_to_equal(column_list: Sequence[str], sum_total: float) -> None:
    """The values of some columns add up to a total in every row."""


__all__ = [
    "expect_column_pair_values_A_to_be_greater_than_B",
    "expect_column_pair_values_to_be_equal",
    "expect_column_pair_values_to_be_in_set",
    "expect_column_value_lengths_to_be_between",
    "expect_column_value_lengths_to_equal",
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_dateutil_parseable",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_be_in_type_list",
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_be_null",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_match_json_schema",
    "expect_column_values_to_match_regex",
    "expect_column_values_to_match_regex_list",
    "expect_column_values_to_match_strftime_format",
    "expect_column_values_to_not_be_in_set",
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_not_match_regex",
    "expect_column_values_to_not_match_regex_list",
    "expect_multicolumn_sum_to_equal",
]
