"""JSON values as a sender writes them that does not know their types."""

from __future__ import annotations

import math
from typing import Any

import orjson
import polars as pl
import pytest

from umbel.errors import InvalidValue
from umbel.serving.requests import JsonBody
from umbel.types import dtypes
from umbel.types.json_values import UNTYPED_NAN, reader, revive, with_nan


class Nested(JsonBody, frozen=True):
    data: Any


def read(value: Any) -> Any:
    data = orjson.dumps(value)
    return with_nan(orjson.loads(data), data)


def test_a_nan_is_one_wherever_it_is() -> None:
    found = read({"a": [UNTYPED_NAN, {"b": UNTYPED_NAN}], "c": UNTYPED_NAN, "d": [1, None, "NaN", "\0"]})
    assert [math.isnan(each) for each in (found["a"][0], found["a"][1]["b"], found["c"])] == [True] * 3
    assert found["d"] == [1, None, "NaN", "\0"]
    assert math.isnan(read(UNTYPED_NAN))


@pytest.mark.parametrize("levels", [10, 600, 1000])
def test_a_nan_is_read_as_deep_as_the_parser_goes(levels: int) -> None:
    """Beyond five hundred levels the request was status 500."""
    body = b'{"data":' + b"[" * levels + orjson.dumps(UNTYPED_NAN) + b"]" * levels + b"}"
    found = Nested.parse(body).data
    for _ in range(levels):
        (found,) = found
    assert math.isnan(found)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_values_of_any_depth_are_no_bytes(opening: str) -> None:
    """The worker ended at such a row, again and again: Python's repr goes less deep than the parser."""
    deep = orjson.loads(opening * 1000 + "1" + ("]" if opening == "[" else "}") * 1000)
    for dtype in (dtypes.Bytes(), dtypes.Optional(dtypes.Bytes())):
        turn = reader(dtype)
        assert turn is not None
        with pytest.raises(InvalidValue, match="expected bytes in base64, got"):
            turn(deep)
        frame = revive(pl.DataFrame({"b": pl.Series([deep, "AP8="], dtype=pl.Object)}), {"b": dtype})
        assert frame["b"].to_list() == [deep, b"\x00\xff"]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (dtypes.Dict(dtypes.Float()), {"a": 1.5, "b": None}, {"a": 1.5, "b": None}),
        (dtypes.Dict(dtypes.Float()), {"a": "Infinity", "b": None, "c": "x"}, {"a": math.inf, "b": None, "c": "x"}),
        (dtypes.Dict(dtypes.Bytes()), {"a": "AA==", "b": None}, {"a": b"\0", "b": None}),
        (dtypes.List(dtypes.Float()), [1, None, "-Infinity", 2.5], [1, None, -math.inf, 2.5]),
        (dtypes.Embedding(2), [1.5, "Infinity"], [1.5, math.inf]),
        (
            dtypes.Struct("S", (("a", dtypes.Bytes()), ("b", dtypes.Float()))),
            {"a": "AA==", "c": 1},
            {"a": b"\0", "c": 1},
        ),
        (dtypes.Struct("S", (("a", dtypes.Bytes()), ("b", dtypes.Float()))), {"a": None, "b": 0}, {"a": None, "b": 0}),
    ],
)
def test_values_in_values(dtype: dtypes.DType, value: Any, expected: Any) -> None:
    turn = reader(dtype)
    assert turn is not None
    assert turn(value) == expected
