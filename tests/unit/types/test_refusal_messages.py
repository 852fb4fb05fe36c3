"""Refusals of values say what to do about them."""

from __future__ import annotations

from decimal import Decimal as Number

import pandas as pd
import polars as pl
import pytest

from umbel.client.plain import columns, plain
from umbel.errors import InvalidType
from umbel.types.dtype import DType
from umbel.types.dtypes import Dict, Float, Int, List, Str
from umbel.types.validate import validate

LONE = "a\ud800b"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (Str(), LONE),
        (List(Str()), ["a", LONE]),
        (Dict(Int()), {LONE: 1}),
        (Dict(Int()), [(LONE, 1)]),
        (Dict(Dict(Int())), {"a": {LONE: 1}}),
    ],
)
def test_an_unpaired_surrogate_is_named(dtype: DType, value: object) -> None:
    found = validate(pl.DataFrame([pl.Series("v", [value, None], dtype=pl.Object)]), {"v": dtype}).rejects
    assert "an unpaired surrogate, which has no form in UTF-8: 'a\\ud800b'" in found["reason"][0]


@pytest.mark.parametrize("value", [LONE, [LONE], {LONE: 1}, {"a": LONE}])
def test_an_unpaired_surrogate_is_not_sent(value: object) -> None:
    with pytest.raises(InvalidType, match=r"column 'v': text with an unpaired surrogate.*\(row 1\)"):
        columns(pd.DataFrame({"v": pd.Series(["\u00e9\U0001f600", value], dtype=object)}))


@pytest.mark.parametrize(("text", "is_number"), [("1.25", True), ("-1e3", True), ("a", False), ("", False)])
def test_a_number_in_text_for_a_float_is_explained(text: str, is_number: bool) -> None:
    rejects = validate(pl.DataFrame({"v": [text]}), {"v": Float()}).rejects
    assert rejects["reason"][0].startswith(f"expected float, got '{text}' (str)")
    assert ("clients send a Decimal as text; convert it with float(...)" in rejects["reason"][0]) == is_number
    assert plain(Number("1.25")) == "1.25"
