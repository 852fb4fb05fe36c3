"""Aggregates that keep values keep values of every type, through the state and back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tests.aggregating import Job
from umbel.aggregates import Count, Distinct, FirstK, LastK, Max, Min
from umbel.operators.aggregate import aggregate
from umbel.operators.leaf import Leaf
from umbel.types import dtypes as d
from umbel.types.schema import Schema
from umbel.types.windows import Continuous

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = Continuous("1h")
PLACE = d.Struct("Place", (("x", d.Int()), ("names", d.List(d.Optional(d.Str())))))
VALUES: list[tuple[d.DType, list[Any]]] = [
    (d.Int(), [3, 1, 3]),
    (d.Float(), [1.5, -2.0, 1.5]),
    (d.Bool(), [True, False, True]),
    (d.Str(), ["b", "ä\0", "b"]),
    (d.Bytes(), [b"\0", b"", b"\0"]),
    (d.Decimal(2), [Decimal("1.50"), Decimal("-2.00"), Decimal("1.50")]),
    (d.Date(), [date(2024, 1, 2), date(2024, 1, 1), date(2024, 1, 2)]),
    (d.Datetime(), [START + timedelta(1), START, START + timedelta(1)]),
    (d.List(d.Optional(d.Int())), [[2, None], [], [2, None]]),
    (d.Embedding(2), [[1.0, 2.0], [0.0, 0.5], [1.0, 2.0]]),
    (PLACE, [{"x": 2, "names": ["a", None]}, {"x": 1, "names": []}, {"x": 2, "names": ["a", None]}]),
    (d.Dict(d.Int()), [[{"key": "b", "value": 1}], [], [{"key": "b", "value": 1}]]),
    (d.Between(d.Int(), 0, 9), [3, 1, 3]),
]


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize(("dtype", "values"), VALUES, ids=lambda each: str(each) if isinstance(each, d.DType) else "")
def test_values_of_every_type(dtype: d.DType, values: list[Any], appends: bool) -> None:
    aggregates: list[Any] = [
        LastK(of="v", limit=2, dedup=False, window=HOUR, into_field="last"),
        LastK(of="v", limit=2, dedup=True, window=HOUR, into_field="once"),
        FirstK(of="v", limit=2, dedup=False, dropnull=False, window=HOUR, into_field="first"),
    ]
    if dtype.is_hashable:
        aggregates += [
            Distinct(of="v", unordered=True, window=HOUR, into_field="all"),
            Count(of="v", unique=True, approx=True, window=HOUR, into_field="many"),
        ]
    if type(dtype) in (d.Int, d.Float, d.Decimal, d.Date, d.Datetime):
        aggregates += [Min(of="v", window=HOUR, into_field="min"), Max(of="v", window=HOUR, into_field="max")]
    columns = Schema((), (("k", d.Int()), ("v", dtype)), "t")
    leaf = Leaf(dataset="E", version=1, columns=columns, appends=appends)
    job = Job(aggregate(parents=(leaf,), keys=("k",), aggregates=tuple(aggregates)))
    for number, value in enumerate(values):
        at = START + timedelta(seconds=number)
        row = {"k": 1, "v": value, "t": at, "_at": at, "_weight": 1, "_seq": number}
        job.feed(pl.DataFrame([row], schema=columns.changes(), orient="row"))
    found = job.lookup([(1, 1_704_067_202_000_000)]).row(0, named=True)
    assert found["last"] == [values[2], values[1]]
    assert found["once"] == [values[2], values[1]]
    assert found["first"] == [values[0], values[1]]
    if dtype.is_hashable:
        assert sorted(map(repr, found["all"])) == sorted(map(repr, values[:2]))
        assert found["many"] == 2
    if "min" in found:
        assert (found["min"], found["max"]) == (values[1], values[0])
