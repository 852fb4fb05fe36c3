"""Defaults of Min and Max (api §5)."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal as PythonDecimal
from typing import Any, Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, Max, Min, dataset, field, pipeline
from umbel.dtypes import Continuous, Decimal, Hopping, Tumbling, between, oneof
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)

W = Webhook(name="w")


@source(W.endpoint("Sales"), disorder="1d", cdc="append")
@dataset
class Sales:
    k: int
    o: Optional[int]
    n: int
    f: float
    d: Decimal[2]
    day: date
    at: datetime
    t: datetime = field(timestamp=True)


NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def _extreme(aggregate, column: str, kind: Any, default: Any, window: Any, source: Any = Sales):
    @dataset(index=True)
    class Out:
        k: int = field(key=True)
        v: kind
        t: datetime = field(timestamp=True)

        @pipeline
        @inputs(source)
        def p(cls, rows: Dataset):
            return rows.groupby("k").aggregate(v=aggregate(of=column, default=default, window=window))

    return Out


TAKEN = [
    ("n", int, 3, 3), ("n", int, 2.0, 2), ("n", int, -0.0, 0),
    ("f", float, 3, 3.0), ("f", float, 1.5, 1.5), ("f", float, PythonDecimal("1.25"), 1.25),
    ("d", Decimal[2], 3, PythonDecimal("3.00")), ("d", Decimal[2], 1.239, PythonDecimal("1.24")),
    ("d", Decimal[2], PythonDecimal("1.5"), PythonDecimal("1.50")),
    ("d", Decimal[2], PythonDecimal("1.239"), PythonDecimal("1.24")),
    ("day", date, date(2020, 1, 1), date(2020, 1, 1)), ("at", datetime, NOON, pd.Timestamp(NOON)),
]  # fmt: skip


@pytest.mark.parametrize("aggregate", [Min, Max])
@pytest.mark.parametrize("window", [Continuous("1h"), Tumbling("1h"), Hopping("forever", "1h")], ids=str)
@pytest.mark.parametrize(("column", "kind", "default", "shown"), TAKEN)
def test_defaults_of_extremes(aggregate, window, column: str, kind: Any, default: Any, shown: Any) -> None:
    out = _extreme(aggregate, column, kind, default, window)
    client = MockClient()
    client.commit(message="m", datasets=[Sales, out])
    row = {"k": [1], "o": [1], "n": [7], "f": [7.0], "d": [7], "day": [date(2024, 1, 1)], "at": [T]}
    client.log("w", "Sales", pd.DataFrame({**row, "t": [T]}))
    client.log("w", "Sales", pd.DataFrame({**row, "k": [2], "t": [T + timedelta(hours=5)]}))
    at = pd.Series([T + timedelta(hours=2), T - timedelta(1), T])
    rows, found = out.lookup(at, k=pd.Series([1, 1, 9]))
    retained = window == Hopping("forever", "1h")
    assert found.tolist() == [True, False, False]
    expected = [shown] * 3
    got = rows["v"].tolist()
    assert got[retained:] == expected[retained:]
    assert [str(each) for each in got[retained:]] == [str(each) for each in expected[retained:]]
    if kind is int:
        assert all(type(each) is int for each in got)


REFUSED = [
    ("n", int, 1.5), ("n", int, True), ("n", int, "1"), ("n", int, PythonDecimal(1)), ("n", int, float("nan")),
    ("n", int, float("inf")), ("n", int, 2**63), ("n", int, 1e30), ("f", float, 10**400), ("f", float, "1"),
    ("f", float, True), ("d", Decimal[2], "1"), ("d", Decimal[2], True),
    ("d", Decimal[2], float("nan")), ("d", Decimal[2], PythonDecimal(10) ** 27), ("day", date, NOON), ("day", date, 1),
    ("day", date, "2020-01-01"), ("at", datetime, date(2020, 1, 1)), ("at", datetime, 0), ("at", datetime, "2020-01-01"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind", "default"), REFUSED)
def test_defaults_of_extremes_refused(column: str, kind: Any, default: Any) -> None:
    with refusal(TypeError, "Min", f"'{column}'", repr(default)):
        _extreme(Min, column, kind, default, Continuous("1h"))


@dataset
class Marks:
    k: int
    b: between(int, 0, 10)
    s: Optional[between(float, 0, 1, strict_max=True)]
    o: oneof(int, [1, 5])
    t: datetime


@pytest.mark.parametrize(
    ("column", "kind", "default"),
    [
        ("b", between(int, 0, 10), -1),
        ("b", between(int, 0, 10), 11.0),
        ("s", between(float, 0, 1, strict_max=True), 1),
        ("s", between(float, 0, 1, strict_max=True), float("nan")),
        ("o", oneof(int, [1, 5]), 3),
    ],
)
def test_a_default_outside_a_restriction_is_refused(column: str, kind: Any, default: Any) -> None:
    words = (
        "pipeline 'Out.p'",
        f"default {default!r} is outside the type",
        f"field '{column}'",
        "assign the field as ",
    )
    with refusal(TypeError, *words):
        _extreme(Min, column, kind, default, Continuous("1h"), Marks)


def test_a_default_within_a_restriction() -> None:
    lowest = _extreme(Min, "s", between(float, 0, 1, strict_max=True), 0, Continuous("1h"), Marks)
    client = MockClient()
    client.commit("m", datasets=[Marks, lowest])
    client.log_to("Marks", pd.DataFrame({"k": [1], "b": [1], "s": [0.5], "o": [1], "t": [T]}))
    at = pd.Series([T, T + timedelta(hours=2)])
    rows, _ = client.lookup("Out", pd.DataFrame({"k": [1, 1]}), timestamps=at)
    assert rows["v"].tolist() == [0.5, 0.0]
