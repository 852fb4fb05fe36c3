"""Answers: what of their dtypes travels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from umbel.query.answer import Answer, dtypes_from_json
from umbel.types.dtypes import Int


def test_dtypes_that_no_name_makes_are_left_out() -> None:
    """Arrow's types with parameters print names that pandas cannot read."""
    found = {"a": pd.ArrowDtype(pa.decimal128(10, 2)), "b": pd.ArrowDtype(pa.binary(4)), "c": np.dtype("int32")}
    answer = Answer({name: pl.Series([1]) for name in found}, dict.fromkeys(found, Int()), dtypes=found)
    assert dtypes_from_json(answer.dtypes_json(), ["a", "b", "c"]) == {"c": np.dtype("int32")}
