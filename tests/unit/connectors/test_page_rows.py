"""Rows of pages as JSON: a value has one form, whatever stands beside it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from umbel.connectors.page_rows import json_line, staged_rows
from umbel.errors import InvalidType, InvalidValue


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


DAY = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("beside", [1, None, "not null", 2**70, {}, pd.NA], ids=str)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(5), 5), (np.float32(1.5), 1.5), (np.bool_(True), True), (np.str_("a"), "a"),
        (np.array([1, 2]), [1, 2]), (np.array([1.5]), [1.5]), (np.array(["a", None], object), ["a", None]),
        (np.datetime64("2024-01-01T00:00:00"), "2024-01-01T00:00:00"), (Color.RED, "red"), (Level.LOW, 1),
        (Point(1), {"x": 1}), ((1, 2), [1, 2]), (date(2024, 1, 1), "2024-01-01"), (DAY, "2024-01-01T00:00:00Z"),
        (pd.Timestamp("2024-01-01"), "2024-01-01T00:00:00"), (pd.NaT, None), (pd.NA, None), (Decimal("NaN"), None),
        (Decimal("1.50"), "1.50"), (2**70, 2**70), (-(2**63) - 1, -(2**63) - 1), ([2**70, {"a": 2**64}], [2**70, {"a": 2**64}]),
    ],
    ids=str,
)  # fmt: skip
def test_values(value: Any, expected: Any, beside: Any) -> None:
    """Beside a null the standard library wrote the row, and refused what orjson writes."""
    found = json.loads(json_line({"v": value, "beside": beside}))
    assert found["v"] == expected
    assert (type(found["v"]), set(found)) == (type(expected), {"v", "beside"})


@pytest.mark.parametrize("beside", [1, None], ids=str)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "nan has no form in it"), ([math.inf], "inf has no form in it"), (np.float32("nan"), "nan has no form"),
        (np.array([1.0, math.nan]), "nan has no form"), (b"a", "a value of type bytes"), ("\ud800", "surrogates"),
        (Decimal("Infinity"), "a value of type Decimal"), (object(), "a value of type object"),
        ([10**5000], "an integer of more digits"), (Mute(), "a value of type Mute"), ({"v": [Mute()]}, "a value of type Mute"),
    ],
)  # fmt: skip
def test_a_value_without_a_form_is_the_reason(value: Any, reason: str, beside: Any) -> None:
    found = json.loads(json_line({"v": value, "beside": beside}))
    assert found.startswith("no JSON, ")
    assert reason in found


def test_a_value_without_a_text_leaves_out_itself() -> None:
    """It raised again, as if the server did not answer: nothing behind it was read."""
    row: dict[str, Any] = {"n": 10**5000, "mute": Mute(), "key": "a"}
    found = json.loads(json_line(row))
    assert found.endswith(": {'n': <a value of type int>, 'mute': <a value of type Mute>, 'key': 'a'}")
    assert json.loads(json_line(Mute())).endswith(": <a value of type Mute>")
    row["row"] = row
    assert "'row': <a value of type dict>" in json.loads(json_line(row))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([[1]], pa.list_view(pa.int64())), "list_view"),
        (pa.RunEndEncodedArray.from_arrays([1], [5]), "run_end_encoded"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "month_day_nano_interval"),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])]), "sparse_union"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_column_that_cannot_be_read_is_named(column: Any, kind: str) -> None:
    """It was an error of Polars, as if the server did not answer."""
    with pytest.raises(
        InvalidType, match=rf"column 'odd' of a page is of Arrow's type .*{kind}.*which umbel does not read"
    ):
        staged_rows(pa.table({"n": [1], "odd": column}))


def test_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidType, match="a page has several columns of the name 'n'"):
        staged_rows(pa.table([pa.array([1]), pa.array([2])], names=["n", "n"]))


def test_a_table_that_is_none_of_arrow_is_refused() -> None:
    with pytest.raises(InvalidType, match="the rows of a page are no Arrow table: "):
        staged_rows(pd.DataFrame({"n": [1, "a"]}))  # type: ignore[arg-type]


def test_columns_are_staged_as_they_are() -> None:
    found = staged_rows(pa.table({"n": [1, 2], "text": ["a", None]}))
    assert found.to_dict(as_series=False) == {"n": [1, 2], "text": ["a", None]}
    assert staged_rows(pa.table({})).height == 0


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a page: column 'v' has a text that is not UTF-8"):
        staged_rows(pa.table({"v": pa.array([b"a", b"caf\xe9"]).view(pa.string())}))
