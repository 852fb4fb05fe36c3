"""Lookups of many keys at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from tests.aggregating import INSTANT, Job, aggregation, frame, instant
from tests.reference import Change
from umbel.aggregates import Count, Sum
from umbel.graph.graph import Graph, GraphNode
from umbel.query.lookups import POINTS_AT_ONCE, Lookups
from umbel.types.windows import Continuous


def test_a_lookup_of_many_keys_reads_them_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored for all keys was in memory at once, several times."""
    count = 2 * POINTS_AT_ONCE + 100
    job = Job(aggregation(Count(window=Continuous("forever")), Sum(of="x", window=Continuous("forever"))))
    job.feed(frame([(key, Change(1000, 1000, {"x": key}, seq=key)) for key in range(count)]))
    sizes, stored_answer = list[int](), type(job.operator).stored_answer

    def counted(operator: Any, state: Any, points: pl.DataFrame) -> Any:
        sizes.append(points.height)
        return stored_answer(operator, state, points)

    monkeypatch.setattr(type(job.operator), "stored_answer", counted)
    graph = cast(Graph, SimpleNamespace(outputs={"E": GraphNode(job.operator, (), job.operator.id, 0, 0)}))
    keys = pl.DataFrame({"k": [*reversed(range(count + 5))]})
    at = pl.Series([instant(2000)], dtype=INSTANT).new_from_index(0, keys.height)
    rows, found = Lookups(graph, job.store, lambda _, __: frame([])).online("E", keys, at)
    assert rows["a1"].to_list() == [None] * 5 + [*reversed(range(count))]
    assert rows["a0"].to_list() == [None] * 5 + [1] * count
    assert found.sum() == count
    assert sum(sizes) == keys.height
    assert max(sizes) <= POINTS_AT_ONCE
