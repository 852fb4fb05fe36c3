"""Few points are answered without frames, and as frames answer them; keys and instants of few rows have the same bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.aggregating import TABLE, Job, aggregation, frame, instant
from tests.comparing import assert_rows
from tests.laws.test_tiles import TILING, batches, inserts, instants, points, streams, tables, timeline
from tests.reference import Change
from umbel.aggregates import Average, Count, Distinct, ExpDecaySum, LastK, Max, Min, Stddev, Sum
from umbel.operators.leaf import Leaf
from umbel.operators.timeline import KEY, version_columns
from umbel.operators.upsert_kernel import follow
from umbel.plan.graph import Graph, Node
from umbel.query import lookups
from umbel.query.lookups import Lookups
from umbel.state.keys import encode_few, encode_instant, encode_keys, encode_time, shard_of, shard_of_key
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.windows import Continuous

WINDOWS = (Continuous("100s"), Continuous("1500s"), Continuous("forever"))
INSTANT = pl.Datetime("us", "UTC")


def every(window: Continuous) -> list[Any]:
    """Return an aggregate of each kind that has a short way, and with each default."""
    return [
        Count(window=window),
        Count(of="x", dropnull=True, window=window),
        Sum(of="x", window=window),
        Sum(of="f", window=window),
        Sum(of="d", window=window),
        Average(of="x", window=window),
        Average(of="f", default=None, window=window),
        Average(of="d", default=-1, window=window),
        Stddev(of="f", window=window),
        Stddev(of="x", default=None, window=window),
        ExpDecaySum(of="f", half_life="10m", window=window),
    ]


SHORT_WAY = tuple(each for window in WINDOWS for each in every(window))
INSERTED = (
    *SHORT_WAY,
    *(kind(of=of, window=window) for kind in (Min, Max) for of in ("x", "f") for window in WINDOWS),
    Max(of="f", default=7, window=WINDOWS[0]),
)
LONG_WAY = (
    Count(window=WINDOWS[0]),
    LastK(of="x", limit=2, dedup=False, window=WINDOWS[1]),
    Distinct(of="x", unordered=True, window=WINDOWS[2]),
)


def source(operator: Any, store: Any, changes: pl.DataFrame) -> Lookups:
    """Return lookups on the state of an operator, as dataset E."""
    graph = cast(Graph, SimpleNamespace(outputs={"E": Node(operator, (), operator.id, 0, 0)}))
    return Lookups(graph, store, lambda _: changes)


def check(asked: Lookups, where: list[tuple[int, int]], size: int, key: str = "k") -> None:
    """Assert that points asked few at a time have the answers they have all at once."""
    where = where[:: len(where) // 30 + 1]
    keys = pl.DataFrame({key: [each for each, _ in where]}, schema={key: pl.Int64})
    at = pl.Series("at", [instant(now) for _, now in where], INSTANT)
    many = -(-lookups.FEW // len(where)) + 1
    rows, found = asked.online("E", pl.concat([keys] * many), pl.concat([at] * many))
    for start in range(0, len(where), size):
        few, is_found = asked.online("E", keys[start : start + size], at[start : start + size])
        assert few.schema == rows.schema
        assert is_found.to_list() == found[start : start + len(few)].to_list()
        for place in range(len(few)):
            assert_rows(few.row(place), rows.row(start + place), 1e3, f"{where[start + place]}")


def valued(changes: list[tuple[int, Change]]) -> list[tuple[int, Change]]:
    """Return changes with decimals as well."""
    for _, change in changes:
        x = change.values["x"]
        change.values["d"] = None if x is None else pl.Series([x * 25], dtype=pl.Decimal(28, 2)).item() / 100
    return changes


@given(
    drawn=streams, asked=points, order=st.randoms(use_true_random=False), size=st.integers(1, 16), late=st.booleans()
)
@settings(max_examples=8, deadline=None)
def test_inserts(drawn: Any, asked: Any, order: Any, size: int, late: bool) -> None:
    changes = valued(inserts(drawn))
    job = Job(aggregation(*INSERTED, tiling=TILING))
    for batch in batches(changes, order, 3):
        job.feed(frame(batch), watermark=instant(changes[0][1].time) if late else None)
    check(source(job.operator, job.store, frame(changes)), instants(changes, asked), size)


@given(drawn=streams, gone=st.sets(st.integers(0, 69)), asked=points, order=st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_retractions(drawn: Any, gone: Any, asked: Any, order: Any) -> None:
    changes = valued(inserts(drawn))
    back = [(key, Change(c.at, c.time, c.values, -1, c.seq)) for n, (key, c) in enumerate(changes) if n in gone]
    job = Job(aggregation(*SHORT_WAY, appends=False, tiling=TILING))
    for batch in batches([*changes, *back], order, 3):
        job.feed(frame(batch))
    check(source(job.operator, job.store, frame([*changes, *back])), instants(changes, asked), 5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@given(drawn=tables, asked=points, order=st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_keyed_input(drawn: Any, asked: Any, order: Any) -> None:
    changes = valued(timeline(drawn))
    job = Job(aggregation(*SHORT_WAY, keyed=True, tiling=TILING))
    for batch in batches(changes, order, 3):
        job.feed(frame(batch, TABLE))
    check(source(job.operator, job.store, frame(changes, TABLE)), instants(changes, asked), 3)


@given(drawn=streams, asked=points)
@settings(max_examples=2, deadline=None)
def test_aggregates_without_a_short_way(drawn: Any, asked: Any) -> None:
    changes = inserts(drawn)
    job = Job(aggregation(*LONG_WAY, tiling=TILING))
    job.feed(frame(changes))
    check(source(job.operator, job.store, frame(changes)), instants(changes, asked), 4)


@given(drawn=tables, asked=points, size=st.integers(1, 16))
@settings(max_examples=8, deadline=None)
def test_versions(drawn: Any, asked: Any, size: int) -> None:
    changes = timeline(drawn)
    operator, store = Leaf(dataset="E", version=1, columns=TABLE), MemoryStore(shards=3)
    rows = frame(changes, TABLE)
    rows = rows.with_columns(encode_keys(rows.select("id")).alias(KEY))
    for shard in range(store.shards):
        with store.transaction(shard, [operator.id], Stamp(0, 1)) as transaction:
            table = State(transaction, operator.id).table("timeline", version_columns(TABLE))
            follow(rows.filter(shard_of(rows[KEY], store.shards) == shard), table)
    edges = [(change.values["id"], change.at + shift) for _, change in changes for shift in (-1, 0, 1)]
    check(source(operator, store, rows), [*asked, *edges], size, "id")


def test_no_points() -> None:
    job = Job(aggregation(*LONG_WAY))
    asked = source(job.operator, job.store, frame([]))
    found, is_found = asked.online("E", pl.DataFrame({"k": []}), pl.Series([], dtype=INSTANT))
    assert found.schema == job.operator.schema.polars()
    assert is_found.is_empty()


numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
texts = st.none() | st.text(max_size=5) | st.just("é" * 300)


@given(keys=st.lists(st.tuples(numbers, texts)))
def test_keys_and_instants_have_the_same_bytes(keys: Any) -> None:
    columns = pl.DataFrame(keys, schema={"number": pl.Int64, "text": pl.String}, orient="row")
    for some in (columns, columns.select("number"), columns.select("text")):
        encoded = encode_keys(some)
        assert encode_few(some) == encoded.to_list()
        assert [shard_of_key(key, 7) for key in encoded] == shard_of(encoded, 7).to_list()
    micros = pl.Series([number for number, _ in keys if number is not None], dtype=pl.Int64)
    assert [encode_instant(each) for each in micros] == encode_time(micros.cast(INSTANT)).to_list()
