"""The registry: adding a function is adding one function."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import polars as pl
import pytest

from tests.unit.expr.table import check, refused
from umbel.errors import PackageError, UnknownName
from umbel.expr import Expr, col
from umbel.expr.kinds import Text, Whole
from umbel.expr.registry import CONFLICTS, FUNCTIONS, catalogue, find, method


def shout(value: Text, times: Whole = 1) -> Text:  # type: ignore[assignment]
    """Put exclamation marks after the text."""
    return value + pl.lit("!").repeat_by(times).list.join("")


@pytest.fixture
def added() -> Iterator[None]:
    shout.__module__ = "theirs.str"
    method()(shout)
    yield
    del FUNCTIONS["str.shout"]


@pytest.mark.usefixtures("added")
def test_one_function_brings_types_text_records_errors_and_docs() -> None:
    expr = col("s").str.shout(2)
    check(expr, {"s": (str, ["a", "b"])}, str, ["a!!", "b!!"])
    assert str(expr) == 'col("s").str.shout(2)'
    assert str(Expr.from_record(json.loads(json.dumps(expr.to_record())))) == str(expr)
    refused(col("a").str.shout(), {"a": (int, [])}, "str.shout", "int")
    [row] = [row for row in catalogue() if row["name"] == "shout"]
    assert row == {
        "family": "str",
        "name": "shout",
        "takes": "value: str, times: int",
        "gives": "str",
        "doc": "Put exclamation marks after the text.",
    }


def test_every_function_is_documented() -> None:
    for row in catalogue():
        assert row["doc"].endswith((".", "zone.")), row
        assert row["takes"] or row["name"] == "datetime"
    families = {row["family"] for row in catalogue()}
    assert families >= {
        "",
        "num",
        "str",
        "dt",
        "list",
        "struct",
        "dict",
    }  # other packages, which tests install, have theirs


def test_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(find("str.lower"))) is find("str.lower")


def test_unknown_functions() -> None:
    with pytest.raises(UnknownName, match=r"did you mean .str\.lower."):
        find("str.lowr")


@pytest.mark.usefixtures("added")
def test_a_function_of_another_module_by_a_taken_name_names_both() -> None:
    def shout(value: Text) -> Text:
        """Shout."""
        return value

    shout.__module__ = "others.str"
    with pytest.raises(
        PackageError, match=r"'str\.shout': theirs\.str\.shout of theirs\.str and others\.str\.shout of others\.str"
    ):
        method()(shout)
    try:
        with pytest.raises(PackageError, match=r"theirs\.str\.shout.* and others\.str\.shout"):
            col("s").str.shout()
    finally:
        del CONFLICTS["str.shout"]


def test_a_name_of_umbel_cannot_be_taken() -> None:
    def lower(value: Text) -> Text:
        """Lower."""
        return value

    lower.__module__ = "others.str"
    with pytest.raises(PackageError, match=r"umbel\.expr\.str\.lower of umbel and others\.str\.lower"):
        method()(lower)
    assert find("str.lower").build is not lower
    assert CONFLICTS == {}
