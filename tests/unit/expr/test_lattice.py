"""What types have in common, and what stands for what."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from umbel.expr import lit, matches
from umbel.expr.lattice import Null, join
from umbel.types.annotations import Decimal, Dict, between, from_annotation, oneof, regex
from umbel.types.dtypes import Struct

JOINS: list[tuple[Any, Any, Any]] = [
    (int, int, int),
    (int, float, float),
    (Optional[int], float, Optional[float]),
    (int, Optional[int], Optional[int]),
    (str, str, str),
    (oneof(int, [1]), oneof(int, [1]), oneof(int, [1])),
    (oneof(int, [1]), oneof(int, [2]), int),
    (between(int, 0, 1), float, float),
    (list[int], Optional[list[int]], Optional[list[int]]),
    (int, str, None),
    (int, bool, None),
    (list[int], list[float], None),
    (int, Decimal[2], None),
]


@pytest.mark.parametrize(("left", "right", "expected"), JOINS, ids=str)
def test_join(left: Any, right: Any, expected: Any) -> None:
    one, other = from_annotation(left), from_annotation(right)
    common = None if expected is None else from_annotation(expected)
    assert join(one, other) == join(other, one) == common


def test_null_joins_everything() -> None:
    whole = from_annotation(int)
    assert join(Null(), whole) == join(whole, Null()) == from_annotation(Optional[int])
    assert join(Null(), Null()) == Null()
    assert join(Null(), from_annotation(Optional[str])) == from_annotation(Optional[str])


MATCHES: list[tuple[Any, Any, bool]] = [
    (int, int, True),
    (int, float, True),
    (int, Optional[int], True),
    (int, Optional[float], True),
    (Optional[int], Optional[float], True),
    (Optional[int], int, False),
    (Optional[int], float, False),
    (float, int, False),
    (bool, int, False),
    (bool, float, False),
    (int, bool, False),
    (int, str, False),
    (int, oneof(int, [1, 2]), True),
    (str, oneof(str, ["a"]), True),
    (str, oneof(int, [1]), False),
    (int, between(int, 1, 4), True),
    (int, between(float, 1, 4), True),
    (float, between(int, 1, 4), False),
    (str, regex("a"), True),
    (str, Optional[regex("a")], True),
    (Optional[str], regex("a"), False),
    (oneof(int, [1]), int, True),
    (int, Decimal[2], True),
    (float, Decimal[2], True),
    (Decimal[2], float, False),
    (Decimal[2], Decimal[3], False),
    (list[int], list[int], True),
    (list[int], list[float], False),
    (list[int], Optional[list[int]], True),
    (Dict[int], Dict[int], True),
]


@pytest.mark.parametrize(("inferred", "declared", "expected"), MATCHES, ids=str)
def test_matches(inferred: Any, declared: Any, expected: bool) -> None:
    assert matches(from_annotation(inferred), from_annotation(declared)) is expected


def test_literals_match_restrictions_whatever_their_value() -> None:
    declared = from_annotation(between(int, 1, 4))
    assert matches(lit(5).dtype({}), declared, lit(5))


def test_null_matches_what_may_be_null() -> None:
    assert matches(Null(), from_annotation(Optional[int]))
    assert not matches(Null(), from_annotation(int))


def test_structs_match_by_name_and_fields() -> None:
    fields = (("x", from_annotation(int)),)
    assert matches(Struct("P", fields, object()), Struct("P", fields))
    assert not matches(Struct("P", fields), Struct("Q", fields))
