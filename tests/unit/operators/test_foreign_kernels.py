"""Operators and aggregates of other packages that raise, or return something else than changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pytest

from umbel import Continuous, Dataset, Sum, Webhook, dataset, field, index, inputs, pipeline, source
from umbel.aggregates.columns import Columns
from umbel.aggregates.sums import Sum as OwnSum
from umbel.errors import InvalidType, InvalidValue, Terminal
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Clock, Keyed, Operator, RowWise
from umbel.runtime.user_code import applying
from umbel.state.port import OldState
from umbel.state.tables import State
from umbel.testing import MockClient
from umbel.types.schema import AT, Schema

__owner__ = "shop@example.com"

AMOUNT = pl.col("amount")
WRONG: dict[str, tuple[Callable[[pl.DataFrame], Any], str]] = {
    "nothing": (lambda rows: None, "it returned NoneType, not a frame of Polars"),
    "missing": (lambda rows: rows.drop(AT), "column '_at' is missing"),
    "type": (
        lambda rows: rows.with_columns(AMOUNT.cast(pl.Float32)),
        "column 'amount' is of type Float32, not Float64",
    ),
    "null": (lambda rows: rows.with_columns(amount=pl.lit(None, pl.Float64)), "column 'amount' has a null"),
    "instant": (lambda rows: rows.with_columns(pl.lit(None, rows.schema[AT]).alias(AT)), "column '_at' has a null"),
}
RIGHT: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "same": lambda rows: rows,
    "order": lambda rows: rows.select(sorted(rows.columns, reverse=True)),
    "further": lambda rows: rows.with_columns(further=1),
}


EXCHANGES: dict[str, Any] = {"names": ("user",), "text": "user", "more": (("user",), ("user",)), "none": None}


def kernel(rows: pl.DataFrame, mode: str) -> Any:
    if mode == "old":
        raise OldState("state 'abc/counts' does not have the columns", hint="umbel rebuild DATASET")
    if mode == "raise":
        raise KeyError("thirteen")
    return RIGHT[mode](rows) if mode in RIGHT else WRONG[mode][0](rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Remembering(Keyed):
    """Has state by user."""

    mode: str

    def output(self, *inputs: Schema) -> Schema:
        return inputs[0]

    def exchange(self) -> Any:
        return EXCHANGES.get(self.mode, (("user",),))

    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        return kernel(changes[0], self.mode)


@dataclass(frozen=True, eq=False, kw_only=True)
class Passing(RowWise):
    """Has no state."""

    mode: str

    def output(self, *inputs: Schema) -> Schema:
        return inputs[0]

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        return kernel(rows, self.mode)


def _unlucky(value: float) -> float:
    raise ZeroDivisionError("none")


@dataclass(frozen=True, kw_only=True)
class WronglyLifted(OwnSum):
    """Fails for each row."""

    def lift(self, state: Columns) -> Any:
        return {name: each.map_elements(_unlucky, pl.Float64) for name, each in super().lift(state).items()}


@dataclass(frozen=True, kw_only=True)
class Undeclared(OwnSum):
    """Returns what it does not declare."""

    def result(self, states: pl.DataFrame, state: Columns) -> Any:
        return super().result(states, state).cast(pl.Int64)  # type: ignore[union-attr]

    def merge(self, state: Columns) -> Any:
        return {"sun": pl.lit(1)}


@dataclass(frozen=True, kw_only=True)
class OneForAll(OwnSum):
    """Returns one value for all states."""

    def result(self, states: pl.DataFrame, state: Columns) -> Any:
        return pl.lit(1.0)


@dataclass(frozen=True, kw_only=True)
class Failing(OwnSum):
    """Raises an exception."""

    def lift(self, state: Columns) -> Any:
        raise ZeroDivisionError("always")


def total(kind: type[Operator], mode: str, aggregate: Any = Sum) -> float:
    """Return the total of a user whose amounts pass an operator."""

    @source(Webhook(name="shop").endpoint("paid"), disorder="1h", cdc="append")
    @dataset
    class Paid:
        user: int
        amount: float
        at: datetime

    @index
    @dataset
    class Totals:
        user: int = field(key=True)
        total: float
        at: datetime

        @pipeline
        @inputs(Paid)
        def add(cls, paid: Dataset):
            passed = paid.then(kind, mode=mode)
            return passed.groupby("user").aggregate(total=aggregate(of="amount", window=Continuous("forever")))

    client = MockClient()
    client.commit(message="m", datasets=[Paid, Totals])
    at = [datetime(2026, 1, 1, tzinfo=UTC)] * 2
    client.log("shop", "paid", pd.DataFrame({"user": [13, 13], "amount": [1.5, 2.0], "at": at}))
    return client.lookup("Totals", keys=pd.DataFrame({"user": [13]}))[0]["total"][0]


@pytest.mark.parametrize("mode", RIGHT)
@pytest.mark.parametrize("kind", [Remembering, Passing])
def test_columns_may_be_in_any_order_and_more(kind: type[Operator], mode: str) -> None:
    assert total(kind, mode) == 3.5


@pytest.mark.parametrize("mode", WRONG)
@pytest.mark.parametrize("kind", [Remembering, Passing])
def test_something_else_than_changes_is_refused(kind: type[Operator], mode: str) -> None:
    with pytest.raises(InvalidType, match=WRONG[mode][1]) as failure:
        total(kind, mode)
    assert failure.value.message.startswith(f"{kind.__name__.lower()} in pipeline 'Totals.add': it returned ")
    assert "self.schema.changes()" in str(failure.value.hint)


def test_rows_of_a_row_wise_operator_are_rejected_in_a_worker() -> None:
    schema = Schema((), (), "at")
    operator = Passing(parents=(Leaf(dataset="Paid", version=1, columns=schema),), mode="missing")
    with pytest.raises(InvalidType, match="column '_at' is missing"):
        applying(operator).here(schema.empty())


def test_an_exception_of_an_operator_with_state_names_it() -> None:
    with pytest.raises(Terminal, match=r"remembering in pipeline 'Totals.add': KeyError: 'thirteen'") as failure:
        total(Remembering, "raise")
    assert __file__ in str(failure.value.where)
    assert f"mend {__name__}:Remembering and install it" in str(failure.value.hint)
    assert isinstance(failure.value.__cause__, KeyError)


def test_state_that_has_other_columns_names_the_operator() -> None:
    with pytest.raises(OldState, match=r"remembering in pipeline 'Totals.add': state 'abc/counts' does not") as failure:
        total(Remembering, "old")
    assert failure.value.hint == "umbel rebuild DATASET"


def test_an_exception_of_an_aggregate_names_it() -> None:
    with pytest.raises(Terminal, match=r"aggregate in pipeline 'Totals.add': ZeroDivisionError: none") as failure:
        total(Passing, "same", WronglyLifted)
    assert __file__ in str(failure.value.where)
    assert f"mend {__name__}:WronglyLifted" in str(failure.value.hint)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Undeclared, "merge returns 'sun', and its state is .*; result is of type Int64, and result_type says Float64"),
        (OneForAll, "result returns one value for all states, not one for each"),
        (Failing, "ZeroDivisionError: always"),
    ],
)
def test_an_aggregate_that_does_not_return_what_it_declares_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(InvalidType, match=f"aggregate in pipeline 'Totals.add': aggregate {kind.__name__}: {text}"):
        total(Passing, "same", kind)


@pytest.mark.parametrize("mode", EXCHANGES)
def test_an_exchange_that_is_not_by_columns_of_each_input_is_refused(mode: str) -> None:
    """One shard, as in process, hides it: a server with several failed once rows came."""
    with pytest.raises(InvalidType, match=r"remembering in pipeline 'Totals.add': exchange\(\) returned ") as failure:
        total(Remembering, mode)
    assert '(("user",),)' in str(failure.value.hint)


def test_an_exchange_by_an_unknown_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXCHANGES, "same", (("usr",),))
    with pytest.raises(InvalidValue, match=r"exchange\(\): unknown column 'usr'; did you mean 'user'"):
        total(Remembering, "same")
