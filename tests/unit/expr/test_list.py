"""Functions of lists."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from random import Random
from typing import Any, Optional

import pandas as pd
import polars as pl
import pytest

from tests.unit.expr.table import check, fails, refused
from umbel.expr import Expr, InvalidExprException, col, lit, now, var, when
from umbel.expr.evaluate import evaluate
from umbel.types.annotations import oneof
from umbel.types.dtypes import Int, List
from umbel.types.structs import struct


@struct
class Point:
    x: int
    y: int | None


L, V = col("l"), var("v")
INTS = {"l": (list[int], [[1, 2], [], [3]])}
FLOATS = {"l": (list[float], [[1.5, 2.0], [], [3.0]])}
HOLES = {"l": (list[int | None], [[1, None], [], [2, 2]])}
NULLS = {"l": (Optional[list[int]], [[1, 2], None, []])}
TRUTHS = {"l": (list[bool], [[True, True], [], [True, False], [False]])}
MAYBES = {"l": (list[bool | None], [[True, None], [], [False, None], [True], [False], [None]])}
POINTS = {"l": (list[Point], [[{"x": 1, "y": 2}, {"x": 3, "y": None}], []])}
TEXTS = {"l": (list[str], [["a", "b"], []])}
NESTED = {"l": (list[list[int]], [[[1, 2], []], []])}

CASES: list[tuple[Expr, Any, Any, list[Any]]] = [
    (L.list.len(), INTS, int, [2, 0, 1]),
    (L.list.len(), HOLES, int, [2, 0, 2]),
    (L.list.len(), NULLS, Optional[int], [2, None, 0]),
    (L.list.sum(), INTS, int, [3, 0, 3]),
    (L.list.sum(), FLOATS, float, [3.5, 0.0, 3.0]),
    (L.list.sum(), HOLES, Optional[int], [None, 0, 4]),
    (L.list.sum(), NULLS, Optional[int], [3, None, 0]),
    (L.list.min(), INTS, Optional[int], [1, None, 3]),
    (L.list.max(), INTS, Optional[int], [2, None, 3]),
    (L.list.min(), HOLES, Optional[int], [None, None, 2]),
    (L.list.max(), HOLES, Optional[int], [None, None, 2]),
    (L.list.max(), NULLS, Optional[int], [2, None, None]),
    (L.list.mean(), INTS, Optional[float], [1.5, None, 3.0]),
    (L.list.mean(), HOLES, Optional[float], [None, None, 2.0]),
    (L.list.mean(), NULLS, Optional[float], [1.5, None, None]),
    (L.list.all(), TRUTHS, bool, [True, True, False, False]),
    (L.list.all(), MAYBES, Optional[bool], [None, True, None, True, False, None]),
    (L.list.any(), TRUTHS, bool, [True, False, True, False]),
    (L.list.any(), MAYBES, Optional[bool], [True, False, None, True, False, None]),
    (L.list.any(), {"l": (Optional[list[bool]], [None])}, Optional[bool], [None]),
    (L.list.contains(2), INTS, bool, [True, False, False]),
    (L.list.contains(2), HOLES, Optional[bool], [None, False, True]),
    (L.list.contains(lit(None)), HOLES, Optional[bool], [None, False, None]),
    (L.list.contains(2), NULLS, Optional[bool], [True, None, False]),
    (L.list.contains("a"), TEXTS, bool, [True, False]),
    (L.list.contains(col("i")), {**INTS, "i": (Optional[int], [2, None, None])}, Optional[bool], [True, False, None]),
    (L.list.contains(1), {"l": (list[oneof(int, [1, 2])], [[1], [2]])}, bool, [True, False]),
    (L.list.at(0), INTS, Optional[int], [1, None, 3]),
    (L.list.at(-1), INTS, Optional[int], [2, None, 3]),
    (L.list.at(1), HOLES, Optional[int], [None, None, 2]),
    (L.list.at(5), INTS, Optional[int], [None, None, None]),
    (L.list.at(-5), INTS, Optional[int], [None, None, None]),
    (L.list.at(-(2**63)), INTS, Optional[int], [None, None, None]),
    (L.list.at(col("i")), {**INTS, "i": (int, [-(2**63), 2**63 - 1, 0])}, Optional[int], [None, None, 3]),
    (L.list.at(col("i")), {**INTS, "i": (int, [1, 0, -1])}, Optional[int], [2, None, 3]),
    (L.list.at(0), NULLS, Optional[int], [1, None, None]),
    (L.list.at(0), NESTED, Optional[list[int]], [[1, 2], None]),
    (L.list.hasnull(), HOLES, bool, [True, False, False]),
    (L.list.hasnull(), INTS, bool, [False, False, False]),
    (L.list.hasnull(), NULLS, Optional[bool], [False, None, False]),
    (L.list.map("v", V * 2), INTS, list[int], [[2, 4], [], [6]]),
    (L.list.map("v", V + 1), HOLES, list[int | None], [[2, None], [], [3, 3]]),
    (L.list.map("v", V.isnull()), HOLES, list[bool], [[False, True], [], [False, False]]),
    (L.list.map("v", V + 1), NULLS, Optional[list[int]], [[2, 3], None, []]),
    (L.list.map("v", lit("k")), INTS, list[str], [["k", "k"], [], ["k"]]),
    (L.list.map("v", V.str.upper()), TEXTS, list[str], [["A", "B"], []]),
    (L.list.map("v", V.list.len()), NESTED, list[int], [[2, 0], []]),
    (L.list.map("v", V.list.map("w", var("w") * 10)), NESTED, list[list[int]], [[[10, 20], []], []]),
    (L.list.map("v", V.struct.get("y")), POINTS, list[int | None], [[2, None], []]),
    (L.list.map("v", Point.expr(x=V, y=lit(None))), INTS, list[Point],  # type: ignore[attr-defined]
     [[{"x": 1, "y": None}, {"x": 2, "y": None}], [], [{"x": 3, "y": None}]]),
    (L.list.map("v", when(V > 1).then(V // (V - 1)).otherwise(0)), INTS, list[int], [[0, 2], [], [1]]),
    (L.list.filter("v", V > 1), INTS, list[int], [[2], [], [3]]),
    (L.list.filter("v", ~V.isnull()), HOLES, list[int | None], [[1], [], [2, 2]]),
    (L.list.filter("v", V > 1), NULLS, Optional[list[int]], [[2], None, []]),
    (L.list.filter("v", lit(True)), INTS, list[int], [[1, 2], [], [3]]),
    (L.list.filter("v", lit(False)), INTS, list[int], [[], [], []]),
    (L.list.filter("v", V.struct.get("x") > 1), POINTS, list[Point], [[{"x": 3, "y": None}], []]),
    (L.list.filter("v", V > 1).list.map("w", var("w") - 1).list.sum(), INTS, int, [1, 0, 2]),
    # The rest of the row, beside the elements.
    (L.list.map("v", V + col("k")), {**INTS, "k": (int, [10, 20, 30])}, list[int], [[11, 12], [], [33]]),
    (L.list.map("v", V + col("k")), {**NULLS, "k": (int, [10, 20, 30])}, Optional[list[int]], [[11, 12], None, []]),
    (L.list.filter("v", col("k") <= V), {**INTS, "k": (int, [2, 0, 4])}, list[int], [[2], [], []]),
    (L.list.map("v", V.list.map("w", var("w") + V.list.len() + col("k"))), {**NESTED, "k": (int, [10, 0])},
     list[list[int]], [[[13, 14], []], []]),
    (L.list.map("v", col("m")), {**INTS, "m": (list[int], [[7], [8], []])}, list[list[int]], [[[7], [7]], [], [[]]]),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "columns", "type_", "expected"), CASES, ids=str)
def test_values(expr: Expr, columns: Any, type_: Any, expected: list[Any]) -> None:
    check(expr, columns, type_, expected)


def test_now_inside_of_a_list() -> None:
    import polars as pl

    from tests.unit.expr.table import frame_of, schema_of
    from umbel.expr import evaluate

    instants = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)]
    columns = {"l": (list[datetime], [instants, []]), "at": (datetime, [datetime(2024, 1, 1, 2, tzinfo=UTC)] * 2)}
    hours = L.list.map("v", now().dt.since(V, "hour"))
    found = evaluate(frame_of(columns), {"r": (hours, None)}, schema_of(columns), pl.col("at"))
    assert found["r"].to_list() == [[2, 1], []]


@pytest.mark.parametrize(
    ("expr", "columns"),
    [
        (L.list.sum(), {"l": (list[int], [[2**63 - 1, 1]])}),
        (L.list.map("v", 1 // V), {"l": (list[int], [[1], [0]])}),
        (L.list.filter("v", 1 // (V - col("k")) > 0), {"l": (list[int], [[1], [2]]), "k": (int, [5, 2])}),
    ],
    ids=str,
)
def test_no_value(expr: Expr, columns: Any) -> None:
    fails(expr, columns)


@pytest.mark.parametrize(
    ("expr", "columns", "texts"),
    [
        (col("a").list.len(), {"a": (int, [])}, ["list.len", "int"]),
        (L.list.sum(), TEXTS, ["list.sum", "List[str]"]),
        (L.list.mean(), TRUTHS, ["list.mean", "List[bool]"]),
        (L.list.min(), TEXTS, ["list.min", "List[str]"]),
        (L.list.all(), INTS, ["list.all", "List[int]"]),
        (L.list.any(), TEXTS, ["list.any", "List[str]"]),
        (L.list.contains(3.0), INTS, ["list.contains", "float", "List[int]"]),
        (L.list.contains("x"), INTS, ["list.contains", "str", "List[int]"]),
        (L.list.contains(None), INTS, ["list.contains", "None", "List[int]"]),
        (L.list.at(1.0), INTS, ["list.at", "float"]),
        (L.list.at(col("i")), {**INTS, "i": (Optional[int], [])}, ["list.at", "Optional[int]"]),
        (L.list.filter("v", V), INTS, ["list.filter", "bool", "int"]),
        (L.list.filter("v", V > 1), HOLES, ["list.filter", "Optional[bool]"]),
        (L.list.map("v", V.str.lower()), INTS, ["str.lower", "int"]),
        (L.list.map("v", var("w")), INTS, ["'w'"]),
        (L.list.map("v", col("nope")), INTS, ["'nope'"]),
        (V + 1, INTS, ["'v'"]),
    ],
    ids=str,
)
def test_refused(expr: Expr, columns: Any, texts: list[str]) -> None:
    refused(expr, columns, *texts)


def test_a_variable_has_a_name() -> None:
    with pytest.raises(InvalidExprException, match="5"):
        L.list.map(5, V)
    with pytest.raises(InvalidExprException, match="var"):
        var(5)  # type: ignore[arg-type]


def test_the_sum_of_no_floats_has_no_sign() -> None:
    found = L.list.sum().eval(pd.DataFrame({"l": [[], [1.5]]}), {"l": list[float]})
    assert [str(each) for each in found] == ["0.0", "1.5"]


@pytest.mark.parametrize("expr", [L.list.sum(), L.list.mean()], ids=str)
def test_floats_are_added_up_in_one_order_whatever_the_other_rows_are(expr: Expr) -> None:
    chance = Random(1)
    items = [[chance.uniform(-1, 1) for _ in range(300)] for _ in range(20)] + [[-0.0]]
    schema = {"l": list[Optional[float]]}
    alone = [expr.eval(pd.DataFrame({"l": [each]}), schema)[0] for each in items]
    beside = expr.eval(pd.DataFrame({"l": [*items, [None]]}), schema)[:-1]
    assert [repr(float(each)) for each in beside] == [repr(float(each)) for each in alone]


def test_a_sum_takes_about_as_long_as_a_maximum() -> None:
    frame = pl.DataFrame({"l": [[1, 2, 3]] * 50_000})

    def seconds(expr: Expr) -> float:
        begun = time.process_time()
        evaluate(frame, {"value": (expr, None)}, {"l": List(Int())})
        return time.process_time() - begun

    least = min(seconds(L.list.max()) for _ in range(5))
    assert min(seconds(L.list.sum()) for _ in range(5)) < 8 * max(least, 0.001), "20 times, with a group for each list"


def test_lists_of_one_length_beside_columns_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("umbel.expr.lambdas._cut")
    check(L.list.map("v", V + col("n")), {**INTS, "n": (int, [1, 2, 3])}, list[int], [[2, 3], [], [6]])
