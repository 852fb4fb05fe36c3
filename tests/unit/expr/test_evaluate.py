"""The one way expressions are evaluated."""

from __future__ import annotations

import decimal
from datetime import UTC, datetime
from typing import Any, Optional

import polars as pl
import pytest

from tests.unit.expr.table import frame_of, schema_of
from umbel.errors import InvalidValue
from umbel.expr import Expr, col, evaluate, judge, lit, now
from umbel.types.annotations import Decimal, between, from_annotation, oneof, regex

A, S = col("a"), col("s")
COLUMNS = {"a": (int, [1, 2, 3]), "s": (Optional[str], ["x", None, "y"])}


def run(declared: dict[str, tuple[Expr, Any]], columns: Any = COLUMNS, **more: Any) -> pl.DataFrame:
    expected = {
        name: (expr, None if type_ is None else from_annotation(type_)) for name, (expr, type_) in declared.items()
    }
    return evaluate(frame_of(columns), expected, schema_of(columns), **more)


def test_all_see_the_input_and_come_in_order() -> None:
    found = run({"s": (A + 1, int), "a": (S, None), "n": (lit(7), None)})
    assert found.columns == ["s", "a", "n"]
    assert found.to_dict(as_series=False) == {"s": [2, 3, 4], "a": ["x", None, "y"], "n": [7, 7, 7]}


def test_constants_have_a_value_for_every_row() -> None:
    assert run({"n": (lit(1), None)})["n"].to_list() == [1, 1, 1]
    assert run({"n": (lit(1), None)}, {"a": (int, [])})["n"].to_list() == []
    assert evaluate(pl.DataFrame(height=2), {"n": (lit("k"), None)}, {})["n"].to_list() == ["k", "k"]


def test_a_panic_of_polars_is_an_error() -> None:
    """Its own is no Exception, and would pass through what catches those."""
    frame = pl.DataFrame({"t": pl.Series([2**63 - 1]).cast(pl.Datetime("us", "UTC"))})
    with pytest.raises(InvalidValue, match=r"failed to evaluate expression: .*out-of-range"):
        evaluate(frame, {"s": (col("t").dt.strftime("%Y"), None)}, {"t": from_annotation(datetime)})


def test_no_expressions() -> None:
    assert run({}).width == 0


def test_no_rows() -> None:
    found = run({"n": (A // 0, int), "l": (S.str.split(","), None)}, {"a": (int, []), "s": (str, [])})
    assert found.schema == {"n": pl.Int64, "l": pl.List(pl.String)}


DECLARED = [
    (A, float, [1.0, 2.0, 3.0]),
    (A, Optional[int], [1, 2, 3]),
    (A, Optional[float], [1.0, 2.0, 3.0]),
    (A, Decimal[2], [decimal.Decimal("1.00"), decimal.Decimal("2.00"), decimal.Decimal("3.00")]),
    (A / 4, Decimal[1], [decimal.Decimal("0.2"), decimal.Decimal("0.5"), decimal.Decimal("0.8")]),
    (A, between(int, 1, 3), [1, 2, 3]),
    (A, Optional[between(float, 1, 3)], [1.0, 2.0, 3.0]),
    (A, oneof(int, [1, 2, 3]), [1, 2, 3]),
    (S.fillnull("z"), regex("[xyz]"), ["x", "z", "y"]),
    (lit(None), Optional[str], [None, None, None]),
]


@pytest.mark.parametrize(("expr", "type_", "expected"), DECLARED, ids=str)
def test_declared_types(expr: Expr, type_: Any, expected: list[Any]) -> None:
    found = run({"v": (expr, type_)})["v"]
    assert found.dtype == from_annotation(type_).polars()
    assert found.to_list() == pytest.approx(expected) if isinstance(expected[0], float) else expected


@pytest.mark.parametrize(
    ("expr", "type_"),
    [
        (A, between(int, 1, 2)),
        (A, oneof(int, [1, 2])),
        (S.fillnull("z"), regex("[xz]")),
        (A * 10**14, Decimal[28]),
    ],
    ids=str,
)
def test_restrictions_are_checked_on_the_values(expr: Expr, type_: Any) -> None:
    with pytest.raises(InvalidValue, match="failed to evaluate expression") as caught:
        run({"v": (expr, type_)})
    assert str(expr) in str(caught.value)


@pytest.mark.parametrize(("expr", "type_"), [(S, str), (A / 2, int), (A > 1, int), (A, str), (lit(None), int)], ids=str)
def test_types_that_do_not_match(expr: Expr, type_: Any) -> None:
    with pytest.raises(InvalidValue, match="failed to compile expression"):
        run({"v": (expr, type_)})


def test_null_where_none_may_be() -> None:
    nan_as_int = (A / A).floor()
    with pytest.raises(InvalidValue, match="null where int is declared"):
        run({"v": (nan_as_int, int)}, {"a": (int, [0])})
    assert run({"v": (nan_as_int, Optional[int])}, {"a": (int, [0])})["v"].to_list() == [None]


def test_the_error_names_what_fails_among_many() -> None:
    with pytest.raises(InvalidValue) as caught:
        run({"fine": (A + 1, int), "bad": (1 + 6 // (A - 2), int)})
    text = str(caught.value)
    assert "failed to evaluate expression: int division by zero" in text
    assert '6 // (col("a") - 2)' in text
    assert "1 of 3 rows, first row 1" in text


def test_now() -> None:
    instant = datetime(2024, 1, 1, tzinfo=UTC)
    assert run({"t": (now(), None)}, now=instant)["t"].to_list() == [instant] * 3
    at = {"t": (datetime, [instant, instant.replace(year=2025)])}
    assert run({"y": (now().dt.year, int)}, at, now=pl.col("t"))["y"].to_list() == [2024, 2025]
    present = run({"t": (now(), None)})["t"][0]
    assert abs((datetime.now(UTC) - present).total_seconds()) < 60


def test_alone_it_raises_by_itself() -> None:
    frame, schema = frame_of(COLUMNS), schema_of(COLUMNS)
    guarded = (6 // (A - 2)).polars(schema)
    with pytest.raises(pl.exceptions.PolarsError, match="int division by zero"):
        frame.select(guarded)
    assert frame.filter(pl.col("a") != 2).select(guarded).to_series().to_list() == [-6, 6]


def test_judging_tells_the_rows_without_a_value() -> None:
    columns = {"a": (int, [1, 2, 0, 9]), "s": (str, ["1", "x", "3", "4"])}
    frame, schema = frame_of(columns), schema_of(columns)
    declared = from_annotation(between(int, 0, 5))
    found = judge(frame, 6 // A, declared, schema)
    assert set(found.errors) == {0, 2}
    assert "int division by zero" in found.errors[2]
    assert "between(int, 0, 5)" in found.errors[0]
    assert [found.values[row] for row in (1, 3)] == [3, 0]
    parsed = judge(frame, S.str.parse(int), from_annotation(int), schema)
    assert set(parsed.errors) == {1}
    assert [parsed.values[row] for row in (0, 2, 3)] == [1, 3, 4]
    with pytest.raises(InvalidValue, match="failed to compile expression"):
        judge(frame, S + 1, from_annotation(int), schema)
    assert judge(frame.clear(), 6 // A, declared, schema).values.len() == 0
