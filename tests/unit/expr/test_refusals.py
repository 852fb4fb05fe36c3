"""Expressions that are refused, or fail on a row: kinds of errors and their texts (api §13)."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.expr import InvalidExprException, col, when

__owner__ = "team@example.com"

EXPRESSIONS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "types": (lambda: (col("a") + col("s")).typeof({"a": int, "s": str}), ValueError, ("failed to compile expression", "+", "int", "str", 'col("a") + col("s")')),
    "unknown": (lambda: col("zz").typeof({"a": int}), ValueError, ("zz", "a")),
    "compare": (lambda: (col("s") > "x").typeof({"s": str}), ValueError, ("str", ">")),
    "bool": (lambda: bool(col("a")), InvalidExprException, ("a",)),
    "xor": (lambda: col("a") ^ 1, InvalidExprException, ("^",)),
    "name": (lambda: col(5), InvalidExprException, ("5",)),
    "when": (lambda: when(col("a")).otherwise(1), Exception, ()),
    "literal": (lambda: col("a") + [1], Exception, ("[1]",)),
    "callable": (lambda: col("a") + (lambda x: x), TypeError, ("function",)),
    "outermost": (lambda: col("a").astype(int) + 1, TypeError, ()),
    "column": (lambda: col("a").eval(pd.DataFrame({"b": [1]}), {"a": int}), InvalidExprException, ("a",)),
    "null": (lambda: col("a").eval(pd.DataFrame({"a": [None]}), {"a": int}), ValueError, ("a", "int")),
    "division": (lambda: (col("a") // 0).eval(pd.DataFrame({"a": [1]}), {"a": int}), ValueError, ("failed to evaluate expression",)),
    "parse": (lambda: col("s").str.parse(int).eval(pd.DataFrame({"s": ["x"]}), {"s": str}), ValueError, ("failed to evaluate expression", "x")),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str) -> None:
    call, kind, words = EXPRESSIONS[name]
    with refusal(
        kind, *words, at=kind is not TypeError or name != "outermost", remedy=name not in ("outermost", "when")
    ):
        call()
