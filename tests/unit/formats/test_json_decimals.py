"""Decimals in JSON: numbers have all their digits, and mean the same whatever stands beside them."""

from __future__ import annotations

import decimal
import json
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.formats.json_lines import GROUP, JsonLines
from umbel.types.dtypes import Decimal, Dict, DType, Float, List, Optional, Str

MONEY = Decimal(2)
NUMBERS = {
    "1": "1.00",
    "-0.5": "-0.50",
    "1.005": "1.00",  # the float is below the half
    "0.125": "0.12",
    "1e3": "1000.00",
    "123456789012345": "123456789012345.00",
    "1234567890123456789": "1234567890123456789.00",
    "12345678901234567890123456": "12345678901234567890123456.00",
    "1234567890123456.78": "1234567890123456.78",
    "-98765432109876543210.125": "-98765432109876543210.12",
    "98765432109876543210.1350000000000000001": "98765432109876543210.14",
    "9.99999999999999999e3": "10000.00",
    "0.300000000000000004": "0.30",
    "0.1650000000000000000": "0.17",  # the digits of 0.165: the float is above the half
    "null": None,
}
TEXTS = {
    '"1234567890123456.78"': "1234567890123456.78",
    '" 2.5 "': "2.50",
    '"1e3"': "1000.00",
    '"NaN"': None,
    '"Infinity"': "refused",
}
REFUSED = ["true", "[1]", "{}", '"x"', '"0.125"', "1e30", "1234567890123456789012345678.9", "1e999"]
MEANT: dict[str, Any] = {**NUMBERS, **TEXTS, **dict.fromkeys(REFUSED, "refused")}


def _read(lines: list[str], dtype: DType = MONEY) -> list[Any]:
    """Return the value of each line as text, None for null."""
    reader, found = JsonLines({"name": Str(), "amount": dtype}, exact=True), list[Any]()
    for raw in reader.read("\n".join(lines).encode()):
        checked = dtype.ingest(raw.frame["amount"])
        refused = {*checked.errors, *raw.rejects["row"]}
        found += ["refused" if row in refused else value for row, value in enumerate(checked.values.to_list())]
    return [str(each) if isinstance(each, decimal.Decimal) else each for each in found]


def _line(value: str) -> str:
    return f'{{"name": "a \\"amount\\": 1", "amount": {value}}}'


@pytest.mark.parametrize("value", MEANT)
def test_a_number_is_rounded_and_a_text_is_exact(value: str) -> None:
    (found,) = _read([_line(value)], Optional(MONEY))
    assert found == MEANT[value]


@pytest.mark.parametrize("first", MEANT)
def test_a_decimal_is_read_alike_whatever_stands_before_it(first: str) -> None:
    for second, value in MEANT.items():
        assert _read([_line(first), _line(second)], Optional(MONEY)) == [MEANT[first], value], second


def test_numbers_and_texts_may_change_between_groups_of_lines() -> None:
    values = [*["1.5"] * GROUP, *['"1.5"'] * GROUP, *["1.5", '"1.5"', "12345678901234567890.25"] * GROUP]
    expected = [*["1.50"] * 2 * GROUP, *["1.50", "1.50", "12345678901234567890.25"] * GROUP]
    assert _read([*map(_line, values)]) == expected


LONG = decimal.Decimal("12345678901234567890.25")


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        (List(MONEY), "[1, %s, null]", None),
        (List(Optional(MONEY)), "[1, %s, null]", [decimal.Decimal(1), LONG, None]),
        (Dict(MONEY), '{"a": %s, "b": 0.5}', [("a", LONG), ("b", decimal.Decimal("0.5"))]),
        (List(List(MONEY)), "[[%s]]", [[LONG]]),
    ],
    ids=str,
)
def test_decimals_inside_of_lists_and_dictionaries(dtype: DType, text: str, expected: Any) -> None:
    (raw,) = JsonLines({"v": dtype}, exact=True).read((f'{{"v": {text % LONG}}}').encode())
    checked = dtype.ingest(raw.frame["v"])
    if expected is None:
        assert list(checked.errors) == [0]
        return
    value = checked.values[0]
    found = value.to_list() if isinstance(value, pl.Series) else value
    if isinstance(dtype, Dict):
        found = [tuple(each.values()) for each in found]
    assert (found, checked.errors) == (expected, {})


def test_floats_beside_decimals_are_what_they_are_alone() -> None:
    lines = [b'{"f": 0.30000000000000004, "d": 0.30000000000000004}', b'{"f": 2, "d": 12345678901234567890.25}']
    (raw,) = JsonLines({"f": Float(), "d": MONEY}, exact=True).read(b"\n".join(lines))
    assert Float().ingest(raw.frame["f"]).values.to_list() == [0.30000000000000004, 2.0]
    assert [str(each) for each in MONEY.ingest(raw.frame["d"]).values] == ["0.30", "12345678901234567890.25"]


@given(
    st.lists(
        st.one_of(st.none(), st.floats(), st.floats(-1e6, 1e6), st.integers(-(10**7), 10**7).map(lambda n: n / 8))
    ),
    st.integers(1, 28),
)
def test_floats_are_rounded_as_texts_of_them_are(values: list[float | None], scale: int) -> None:
    dtype = Decimal(scale)
    checked = dtype.convert_column(pl.Series(values, dtype=pl.Float64))
    for row, value in enumerate(values):
        if value is None or math.isnan(value):
            expected = None
        elif math.isinf(value) or abs(decimal.Decimal(f"{value:.{scale}f}")).scaleb(scale) >= 10**28:
            assert row in checked.errors
            continue
        else:
            expected = decimal.Decimal(f"{value:.{scale}f}")
        assert (checked.values[row], row in checked.errors) == (expected, False)


@given(
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str) | st.text("+-.0159eE ", max_size=9))
)
def test_texts_are_read_alike_at_once_and_one_by_one(texts: list[str]) -> None:
    at_once, each = MONEY.convert_column(pl.Series(texts, dtype=pl.String)), MONEY.convert_each(texts)
    assert (at_once.values.to_list(), at_once.errors) == (each.values.to_list(), each.errors)


def test_json_of_other_writers_has_the_digits_of_its_numbers() -> None:
    text = json.dumps({"amount": 1234567890123456.78})  # Python's own float
    assert _read([text]) == ["1234567890123456.80"]


@pytest.mark.parametrize("levels", [200, 900, 1000])
def test_beside_a_deeply_nested_member_numbers_are_floats_at_least(levels: int) -> None:
    reader = JsonLines({"amount": MONEY}, exact=True)
    line = f'{{"amount": 1234567890123456.78, "deep": {"[" * levels}{"]" * levels}}}'.encode()
    (raw,) = reader.texts([line, b'{"amount": 1234567890123456.78, "s": "\\ud83d\\ude00"}'])
    found = MONEY.ingest(raw.frame["amount"])
    assert (found.errors, raw.rejects.height, str(found.values[1])) == ({}, 0, "1234567890123456.78")
    assert abs(found.values[0] - found.values[1]) < 1
