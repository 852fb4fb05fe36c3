"""Evaluation over pandas frames."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, Optional

import pandas as pd
import pytest

from umbel.errors import InvalidValue
from umbel.expr import Expr, InvalidExprException, col, lit, now
from umbel.types.annotations import Decimal
from umbel.types.structs import struct


@struct
class P:
    x: int
    y: str | None


DF = pd.DataFrame(
    {"a": [1, 2, 3], "f": [1.0, 0.0, -1.0], "s": ["x", "y", None], "l": [[1], [], [2, 3]]}, index=[7, 8, 9]
)
SCHEMA: dict[str, Any] = {"a": int, "f": float, "s": Optional[str], "l": list[int]}
MAKE = P.expr(x=col("a"), y=col("s"))  # type: ignore[attr-defined]

CASES: list[tuple[Expr, str, list[Any]]] = [
    (col("a") + 1, "int64", [2, 3, 4]),
    (col("a") / 2, "float64", [0.5, 1.0, 1.5]),
    (col("a") > 1, "bool", [False, True, True]),
    (col("s").fillnull("z"), "object", ["x", "y", "z"]),
    (col("s").str.upper(), "string", ["X", "Y", pd.NA]),
    (col("l").list.at(0), "Int64", [1, pd.NA, 2]),
    (col("l").list.mean(), "Float64", [1.0, pd.NA, 2.5]),
    (col("s") == "x", "boolean", [True, False, pd.NA]),
    (col("l"), "object", [[1], [], [2, 3]]),
    (MAKE, "object", [P(1, "x"), P(2, "y"), P(3, pd.NA)]),
    (col("f") / 0, "Float64", [float("inf"), pd.NA, float("-inf")]),
    (col("f").num.sqrt(), "Float64", [1.0, 0.0, pd.NA]),
    (lit(None), "object", [pd.NA, pd.NA, pd.NA]),
    (lit(1), "int64", [1, 1, 1]),
    (col("s").isnull(), "bool", [False, False, True]),
]


@pytest.mark.parametrize(("expr", "dtype", "expected"), CASES, ids=str)
def test_values_dtypes_and_index(expr: Expr, dtype: str, expected: list[Any]) -> None:
    found = expr.eval(DF, SCHEMA)
    assert found.dtype == dtype
    assert list(found.index) == [0, 1, 2]
    assert isinstance(found.index, pd.RangeIndex)
    assert [value is pd.NA for value in found] == [value is pd.NA for value in expected]
    assert [value for value in found if value is not pd.NA] == [value for value in expected if value is not pd.NA]


def test_instants_are_utc_and_missing_ones_nat() -> None:
    df = pd.DataFrame({"t": [pd.Timestamp("2024-01-01 01:00", tz="Asia/Tokyo"), pd.NaT]})
    found = col("t").eval(df, {"t": Optional[datetime]})
    assert found.dtype == "datetime64[ns, UTC]"
    assert found[0] == datetime(2023, 12, 31, 16, tzinfo=UTC)
    assert found[1] is pd.NaT


def test_the_frame_is_cast_to_the_schema() -> None:
    df = pd.DataFrame({"s": [1, 2], "i": [1.0, 2.0]})
    assert col("s").str.concat("!").eval(df, {"s": str}).tolist() == ["1!", "2!"]
    assert (col("i") + 1).eval(df, {"i": int}).tolist() == [2, 3]


def test_what_does_not_fit_the_schema() -> None:
    with pytest.raises(InvalidExprException, match="'z'"):
        col("a").eval(DF, {"a": int, "z": int})
    with pytest.raises(InvalidValue, match="'s'"):
        col("s").eval(DF, {"s": str})
    with pytest.raises(InvalidValue, match="'f'"):
        col("f").eval(pd.DataFrame({"f": [1.5]}), {"f": int})
    with pytest.raises(ValueError, match="failed to compile expression"):
        (col("a") + "x").eval(DF, SCHEMA)
    with pytest.raises(ValueError, match="failed to evaluate expression"):
        (col("a") // 0).eval(DF, SCHEMA)


def test_nan_is_null_on_the_way_in() -> None:
    df = pd.DataFrame({"f": [1.0, float("nan")]})
    assert col("f").isnull().eval(df, {"f": Optional[float]}).tolist() == [False, True]
    with pytest.raises(InvalidValue, match="'f'"):
        col("f").eval(df, {"f": float})


def test_output_dtype() -> None:
    assert col("a").eval(DF, SCHEMA, output_dtype=float).dtype == "float64"
    assert col("a").eval(DF, SCHEMA, output_dtype=Optional[int]).dtype == "Int64"
    assert str(col("a").eval(DF, SCHEMA, output_dtype=Decimal[2])[0]) == "1.00"
    with pytest.raises(ValueError, match="expected str"):
        col("a").eval(DF, SCHEMA, output_dtype=str)


def test_unparsed_structs_are_plain() -> None:
    assert MAKE.eval(DF, SCHEMA, parse=False)[0] == {"x": 1, "y": "x"}


def test_context_tells_the_time() -> None:
    instant = datetime(2020, 5, 6, tzinfo=UTC)
    assert now().dt.year.eval(DF, SCHEMA, context={"now": instant}).tolist() == [2020] * 3


def test_constants_need_no_columns() -> None:
    assert lit("k").eval(DF, {}).tolist() == ["k"] * 3


def test_importing_expressions_loads_no_pandas() -> None:
    code = "import sys, umbel.expr, umbel.expr.expr; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
