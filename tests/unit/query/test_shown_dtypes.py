"""The dtypes in which inputs are shown: none that changes their values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from umbel.query.answer import Answer
from umbel.query.columns import pandas_dtypes, provided
from umbel.types.dtypes import Bool, Datetime, DType, Int, Str

JAN = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("dtype", "column", "expected", "shown"),
    [
        (Str(), [True, False], ["True", "False"], "string"),
        (Str(), pd.array([True, False], dtype="boolean"), ["True", "False"], "string"),
        (Str(), [5, 6], [5, 6], "int64"),
        (Datetime(), [1_704_067_200], [JAN], "datetime64[ns, UTC]"),
        (Datetime(), pd.array([1_704_067_200], dtype="int64[pyarrow]"), [JAN], "datetime64[ns, UTC]"),
        (Datetime(), np.array(["2024-01-01"], dtype="datetime64[s]"), [JAN.replace(tzinfo=None)], "datetime64[s]"),
        (Int(), [True, False], [True, False], "bool"),
        (Bool(), [True, False], [True, False], "bool"),
    ],
)
def test_inputs_keep_their_values(dtype: DType, column: Any, expected: list[Any], shown: str) -> None:
    frame = pd.DataFrame({"F.x": column})
    columns = provided(frame, {"F.x": dtype})
    found = Answer(columns, {"F.x": dtype}, dtypes=pandas_dtypes(frame, ["F.x"])).to_pandas()["F.x"]
    assert (found.tolist(), str(found.dtype)) == (expected, shown)
