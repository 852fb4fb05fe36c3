from __future__ import annotations

import decimal
from typing import Any

import polars as pl
import pytest

from umbel.formats.text_types import spelled
from umbel.types.dtypes import Bool, Bytes, Decimal, Dict, DType, Embedding, Float, Int, List, Optional, Str, Struct
from umbel.types.raw import Raw, rejects


def test_floats_and_truth_are_read_and_the_rest_stays_text() -> None:
    frame = pl.DataFrame(
        {"f": ["1.5", " 2 ", None], "b": ["True", "0", None], "i": ["1", "2", "3"], "s": ["1.5", "", None]}
    )
    expected = {"f": Optional(Float()), "b": Bool(), "i": Int(), "s": Str()}
    found = spelled(Raw(frame, rejects({})), expected).frame
    assert found["f"].to_list() == [1.5, 2.0, None]
    assert found["b"].to_list() == [True, False, None]
    assert found.schema["i"] == found.schema["s"] == pl.String()


def test_what_spells_no_number_stays_for_validation_to_refuse() -> None:
    found = spelled(Raw(pl.DataFrame({"f": ["1.5", "x"]}), rejects({})), {"f": Float()}).frame
    assert found["f"].to_list() == [1.5, "x"]
    assert list(Float().ingest(found["f"]).errors) == [1]


NESTED: list[tuple[DType, str, Any]] = [
    (Bytes(), "AP8=", b"\0\xff"),
    (List(Int()), "[1, 2]", [1, 2]),
    (List(Bytes()), '["AP8="]', [b"\0\xff"]),
    (List(Float()), '[1.5, "Infinity"]', [1.5, float("inf")]),
    (List(Decimal(2)), "[12345678901234567890.25]", [decimal.Decimal("12345678901234567890.25")]),
    (Embedding(2), "[1, 2.5]", [1.0, 2.5]),
    (Dict(Int()), '{"a": 1}', [{"key": "a", "value": 1}]),
    (Struct("S", (("x", Int()), ("y", Optional(Str())))), '{"x": 1}', {"x": 1, "y": None}),
]


@pytest.mark.parametrize(("dtype", "text", "value"), NESTED, ids=str)
def test_bytes_are_base64_and_nested_values_json(dtype: DType, text: str, value: Any) -> None:
    column = spelled(Raw(pl.DataFrame({"v": [text, None]}), rejects({})), {"v": Optional(dtype)}).frame["v"]
    assert Optional(dtype).ingest(column).values.to_list() == [value, None]


@pytest.mark.parametrize(("dtype", "text", "value"), NESTED, ids=str)
@pytest.mark.parametrize("wrong", ["x?", "[1", "1, 2", '{"x": 1}}', "[" * 100_000])
def test_what_is_no_json_stays_for_validation_to_refuse(dtype: DType, text: str, value: Any, wrong: str) -> None:
    column = spelled(Raw(pl.DataFrame({"v": [wrong, text]}), rejects({})), {"v": dtype}).frame["v"]
    found = dtype.ingest(column)
    assert list(found.errors) == [0]
    assert "(str)" in found.errors[0]
    assert found.values.to_list()[1] == value


def test_numbers_beyond_the_range_of_floats_are_no_infinities() -> None:
    texts = ["1e308", "1e309", "-1e400", "9" * 400, "inf", "-Infinity", "1e-400", None]
    column = spelled(Raw(pl.DataFrame({"f": texts}), rejects({})), {"f": Optional(Float())}).frame["f"]
    found = Optional(Float()).ingest(column)
    assert sorted(found.errors) == [1, 2, 3]
    assert found.values.to_list() == [1e308, None, None, None, float("inf"), float("-inf"), 0.0, None]
