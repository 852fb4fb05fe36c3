"""What holds for every expression: text, records, misuse, columns."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import typing
from datetime import UTC, datetime
from typing import Any, Optional

import cloudpickle
import pytest

import umbel.expr as expressions
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue
from umbel.expr import Expr, InvalidExprException, col, from_epoch, lit, make_struct, now, repeat, var, when, zip_struct
from umbel.expr.leaves import Col
from umbel.types.annotations import Decimal, Dict
from umbel.types.structs import struct


@struct
class P:
    x: int
    y: str | None


A, B = col("a"), col("b")

TEXTS: list[tuple[Expr, str]] = [
    (A, 'col("a")'),
    (lit(1), "lit(1)"),
    (lit("x"), 'lit("x")'),
    (lit([1], list[int]), "lit([1], List[int])"),
    (lit(float("inf")), 'lit(float("inf"))'),
    (lit("1.5", Decimal[2]), 'lit("1.50", Decimal[2])'),
    (A + 1, 'col("a") + 1'),
    (1 + A, '1 + col("a")'),
    (lit(1) + 2, "lit(1) + 2"),
    (lit(1) < A, 'lit(1) < col("a")'),
    (1 < A, 'col("a") > 1'),
    ((A + B) * 2, '(col("a") + col("b")) * 2'),
    (2 - (A - B), '2 - (col("a") - col("b"))'),
    (A // B % 2, '(col("a") // col("b")) % 2'),
    (-A, '-col("a")'),
    (-(A + 1), '-(col("a") + 1)'),
    (~(A > 1) & (B == "x"), '(~(col("a") > 1)) & (col("b") == "x")'),
    ((A + 1).abs(), '(col("a") + 1).num.abs()'),
    (lit(-1).abs(), "lit(-1).num.abs()"),
    (A.isnull(), 'col("a").isnull()'),
    (A.fillnull(0), 'col("a").fillnull(0)'),
    (A.round(), 'col("a").num.round(0)'),
    (A.str.lower().str.concat("é\n"), 'col("a").str.lower().str.concat("é\\n")'),
    (A.str.strptime("%Y"), 'col("a").str.strptime("%Y")'),
    (A.str.strptime("%Y", "Asia/Tokyo"), 'col("a").str.strptime("%Y", "Asia/Tokyo")'),
    (A.str.parse(list[P]), 'col("a").str.parse(List[P])'),
    (A.dt.year, 'col("a").dt.year'),
    (A.dt.with_tz("Asia/Tokyo").year, 'col("a").dt.with_tz("Asia/Tokyo").dt.year'),
    (A.dt.since(now(), "day"), 'col("a").dt.since(now(), "day")'),
    (A.dt.since(B), 'col("a").dt.since(col("b"))'),
    (A.list.map("v", var("v") + 1), 'col("a").list.map("v", var("v") + 1)'),
    (A.dict.get("k", 0), 'col("a").dict.get("k", 0)'),
    (A.dict.get("k"), 'col("a").dict.get("k")'),
    (A.struct.get("x"), 'col("a").struct.get("x")'),
    (from_epoch(A, "second"), 'from_epoch(col("a"), "second")'),
    (repeat(1, by=A), 'repeat(1, col("a"))'),
    (expressions.datetime(2024, 1, 2), "datetime(2024, 1, 2)"),
    (expressions.datetime(2024, 1, 2, minute=5), "datetime(2024, 1, 2, minute=5)"),
    (make_struct({"x": A, "y": "q"}, P), 'make_struct({"x": col("a"), "y": "q"}, P)'),
    (zip_struct({"x": A, "y": B}, P), 'zip_struct({"x": col("a"), "y": col("b")}, P)'),
    (when(A > 1).then(1).when(B).then(A), 'when(col("a") > 1).then(1).when(col("b")).then(col("a"))'),
    (when(True).then(None).otherwise("z"), 'when(True).then(None).otherwise("z")'),
    (A.num.log(), 'col("a").num.log()'),
    (A.num.log(base=2), 'col("a").num.log(2)'),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text_is_the_python_that_makes_the_expression(expr: Expr, text: str) -> None:
    assert str(expr) == repr(expr) == text
    names = {**vars(expressions), "P": P, "List": list, "Decimal": Decimal, "float": float}
    again = eval(text, {name: names[name] for name in [*expressions.__all__, "P", "List", "Decimal", "float"]})
    assert again.to_record() == expr.to_record()


def test_each_part_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of n terms took 3**n steps."""
    written, text_of = list[Col](), Col.__str__
    monkeypatch.setattr(Col, "__str__", lambda self: written.append(self) or text_of(self))
    total = functools.reduce(lambda total, _: (1 + total) - A, range(5), A)
    assert str(total) == "(1 + (" * 4 + '(1 + col("a")) - col("a")' + ')) - col("a")' * 4
    assert len(written) == 6


@pytest.mark.parametrize(("expr", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_records_and_pickles(expr: Expr, text: str) -> None:
    record = json.loads(json.dumps(expr.to_record()))
    for again in (
        Expr.from_record(record),
        pickle.loads(pickle.dumps(expr)) if "P" not in text else expr,
        cloudpickle.loads(cloudpickle.dumps(expr)),
        copy.deepcopy(expr),
    ):
        assert again.to_record() == record
        assert str(again) == text


def test_columns() -> None:
    expr = when(A.isnull()).then(B.list.map("v", var("v") + col("c"))).otherwise(lit([1], list[int]))
    assert expr.columns() == {"a", "b", "c"}
    assert now().columns() == set()


def test_expressions_are_frozen() -> None:
    with pytest.raises(AttributeError):
        A.name = "b"  # type: ignore[attr-defined]
    assert isinstance(hash(A + 1), int)


def test_no_truth_value() -> None:
    for use in (
        lambda: bool(A),
        lambda: A and B,
        lambda: not A,
        lambda: 1 if A > 1 else 2,
        lambda: 0 < A < 5,
        lambda: A in [B, B],
    ):
        with pytest.raises(InvalidExprException, match="truth value"):
            use()


def test_no_xor() -> None:
    for use in (lambda: A ^ B, lambda: True ^ A):
        with pytest.raises(InvalidExprException, match=r"'\^'"):
            use()


def test_no_iteration() -> None:
    with pytest.raises(InvalidExprException, match="iterated"):
        list(A)
    with pytest.raises(InvalidExprException, match="'in'"):
        1 in A  # noqa: B015


def test_astype_is_outermost() -> None:
    typed = (A + 1).astype(int)
    for use in (lambda: typed + 1, lambda: 1 + typed, lambda: A + typed, lambda: A.fillnull(typed), lambda: -typed):
        with pytest.raises(TypeError):
            use()
    with pytest.raises(InvalidType, match="astype must be outermost"):
        A + typed
    assert str(typed) == '(col("a") + 1).astype(int)'


def test_columns_have_names() -> None:
    with pytest.raises(InvalidExprException, match="col takes a name, not 5"):
        col(5)  # type: ignore[arg-type]


def test_unknown_columns_are_named() -> None:
    with pytest.raises(InvalidValue, match=r"'amout'.*did you mean 'amount'"):
        col("amout").typeof({"amount": int})


def test_unknown_methods_are_explained() -> None:
    with pytest.raises(InvalidAttribute, match="did you mean 'lower'"):
        A.str.lowr()
    with pytest.raises(InvalidAttribute, match=r"\.str\.lower"):
        A.lower()
    with pytest.raises(InvalidAttribute):
        A.list.len().upper()
    assert not hasattr(A, "_repr_html_")
    assert {"lower", "parse"} <= set(dir(A.str))


def test_wrong_arguments_are_explained() -> None:
    with pytest.raises(InvalidType, match=r"str\.concat"):
        A.str.concat()
    with pytest.raises(InvalidType, match=r"dt\.since"):
        A.dt.since(B, units="day")


def test_typeof_speaks_python() -> None:
    schema: dict[str, Any] = {"a": int, "b": Optional[str], "p": P, "d": Dict[int], "t": datetime}
    assert (A + 1).typeof(schema) is int
    assert (A / 1).typeof(schema) is float
    assert B.typeof(schema) == Optional[str]
    assert col("p").typeof(schema) is P
    assert now().typeof(schema) is datetime
    assert repeat(B, 2).typeof(schema) == typing.List[Optional[str]]
    assert from_epoch(A, "second").typeof(schema) is datetime
    assert lit(datetime(2024, 1, 1, tzinfo=UTC), datetime).typeof({}) is datetime


def test_deep_names() -> None:
    from umbel.expr import expr as deep

    names = {"col", "lit", "when", "make_struct", "from_epoch", "repeat"}
    for name in names | {"InvalidExprException", "TimeUnit", "Expr", "TypedExpr"}:
        assert getattr(deep, name) is getattr(expressions, name)
