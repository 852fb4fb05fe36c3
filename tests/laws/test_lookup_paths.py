"""Point lookups answer as queries with frames do; keys and instants that are encoded one by one have the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import STREAM, TABLE, Job, aggregation, frame, instant
from tests.comparing import assert_rows
from tests.laws.searching import searching
from tests.laws.test_tiles import (
    LONG,
    SHORT,
    TILING,
    batches,
    inserts,
    instants,
    points,
    streams,
    tables,
    tilings,
    version_history,
)
from tests.profiles import examples
from tests.reference import Change
from umbel.aggregates import (
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    hyperloglog,
    quantile,
)
from umbel.changes.upserts import follow
from umbel.changes.versions import KEY, version_columns
from umbel.errors import Terminal
from umbel.graph.graph import Graph, GraphNode
from umbel.operators.answering import answering
from umbel.operators.leaf import Leaf
from umbel.query import lookups
from umbel.query.lookups import Lookups
from umbel.query.rows import Instants
from umbel.state.keys import encode_instant, encode_keys, encode_points, encode_time, shard_of, shard_of_key
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.windows import Continuous, Tumbling
from umbel.windowing.tiling import Tiling

TEXTS = ("", "a", "é", "日本", "a\0b", "z" * 300)
NUMBERS = (float("nan"), float("inf"), -0.5, 0.0, 1e300)
WINDOWS = (Continuous("100s"), Continuous("1500s"), Continuous("forever"))
INSTANT = pl.Datetime("us", "UTC")


def every(window: Continuous) -> list[Any]:
    """Return aggregates of each kind whose states are sums, with each default."""
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


def retaining(turn: int) -> list[Any]:
    """Return aggregates whose states are values, over columns of every kind; `turn` says which has which window."""
    found = [
        *(kind(of=of) for kind in (Min, Max) for of in ("x", "f", "d", "g", "day")),
        Max(of="f", default=7),
        Min(of="d", default=Decimal(7)),
        Max(of="day", default=date(2000, 1, 1)),
        *(
            kind(of=of, limit=limit, dedup=dedup, dropnull=dedup)
            for kind in (LastK, FirstK)
            for of, limit, dedup in (("x", 2, False), ("s", 3, True), ("g", 3, False), ("d", 4, True), ("day", 9, True))
        ),
        *(
            Distinct(of=of, unordered=True, dropnull=dropnull)
            for of, dropnull in (("x", True), ("s", False), ("d", True))
        ),
        *(Count(of=of, unique=True, approx=True, dropnull=of == "s") for of in ("x", "s")),
        *(
            Quantile(of=of, p=p, approx=True, default=d)
            for of, p, d in (("x", 0.5, None), ("g", 0.9, 1), ("d", 1.0, 2.5))
        ),
    ]
    return [replace(each, window=WINDOWS[(place + turn) % 3]) for place, each in enumerate(found)]


SUMMED = tuple(each for window in WINDOWS for each in every(window))
OVER_LISTS = (
    Count(window=WINDOWS[0]),
    LastK(of="l", limit=2, dedup=False, window=WINDOWS[1]),
    Distinct(of="l", unordered=True, window=WINDOWS[2]),
)


def source(operator: Any, store: Any, changes: pl.DataFrame) -> Lookups:
    """Return lookups on the state of an operator, as dataset E."""
    graph = cast(Graph, SimpleNamespace(outputs={"E": GraphNode(operator, (), operator.id, 0, 0)}))
    return Lookups(graph, store, lambda _, __: changes)


def check(
    state_lookups: Lookups, where: list[tuple[int, int]], size: int, key: str = "k", *, has_point_lookups: bool = True
) -> int:
    """Assert that lookups of `size` points agree with one query of all; return how many were point lookups.

    So do lookups of a few fields.
    """
    where = where[:: len(where) // 30 + 1]
    keys = pl.DataFrame({key: [each for each, _ in where]}, schema={key: pl.Int64})
    at = pl.Series("at", [instant(now) for _, now in where], INSTANT)
    with patch.object(lookups, "POINT_LOOKUP_ROWS", 0):
        rows, found = state_lookups.online("E", keys, at)
        part = frozenset(rows.columns[2::7])
        narrow, _ = state_lookups.online("E", keys, at, part)
    assert part <= {*narrow.columns}
    assert_equal_frames(narrow, rows.select(narrow.columns))
    point_lookups = 0
    for start in range(0, len(where), size):
        some = {key: keys[key][start : start + size]}, Instants.of(at[start : start + size])
        with searching(together=start // size % 2 == 1):
            answer, narrowed = (state_lookups.point_lookup("E", *some, fields) for fields in (None, part))
        if answer is None or narrowed is None:
            assert answer is narrowed
            continue
        point_lookups += 1
        assert_equal_frames(narrowed.frame, answer.frame.select(n for n in answer.names if n in part | {key}))
        assert answer.frame.schema == rows.schema
        assert answer.found.to_list() == found[start : start + size].to_list()
        for name in answer.names:  # as Polars hands values out, to the type
            assert list(map(repr, answer.column(name).to_list())) == list(map(repr, answer.frame[name].to_list()))
        for place in range(len(answer.frame)):
            assert_rows(answer.frame.row(place), rows.row(start + place), 1e3, f"{where[start + place]}")
    assert has_point_lookups or not point_lookups
    return point_lookups


def assert_equal_frames(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Assert that frames have the same columns and values, to the last digit."""
    assert one.schema == other.schema
    assert list(map(repr, one.rows())) == list(map(repr, other.rows()))


def valued(changes: list[tuple[int, Change]]) -> list[tuple[int, Change]]:
    """Return changes with values of more types."""
    for _, change in changes:
        x = change.values["x"]
        change.values["d"] = None if x is None else Decimal(x * 25) / 100
        change.values["s"] = None if x is None else TEXTS[x % len(TEXTS)]
        change.values["g"] = None if x is None else NUMBERS[x % len(NUMBERS)]
        change.values["day"] = None if x is None else date(1969, 12, 28) + timedelta(days=x)
        change.values["l"] = None if x is None else [x, None]
    return changes


turns = st.integers(0, 2)
orders = st.randoms(use_true_random=False)
sizes = st.integers(1, 16)


@contextmanager
def sketching(is_sketching: bool) -> Iterator[None]:
    """Let sketches begin where there are more than three different values."""
    with ExitStack() as stack:
        for module in (hyperloglog, quantile):
            stack.enter_context(patch.object(module, "EXACT", 3 if is_sketching else module.EXACT))
        yield


@given(
    tiling=tilings,
    drawn=streams,
    requested=points,
    order=orders,
    size=sizes,
    late=st.booleans(),
    turn=turns,
    is_sketching=st.booleans(),
)
@examples(6)
def test_inserts(
    tiling: Tiling, drawn: Any, requested: Any, order: Any, size: int, late: bool, turn: int, is_sketching: bool
) -> None:
    changes = valued(inserts(drawn))
    job = Job(aggregation(*SUMMED, *retaining(turn), tiling=tiling))
    with sketching(is_sketching):
        for batch in batches(changes, order, 3):
            job.feed(frame(batch), watermark=instant(changes[0][1].time) if late else None)
        check(source(job.operator, job.store, frame(changes)), instants(changes, requested), size)


@given(
    tiling=tilings,
    drawn=streams,
    gone=st.sets(st.integers(0, 69)),
    requested=points,
    order=orders,
    size=sizes,
    late=st.booleans(),
    turn=turns,
    is_sketching=st.booleans(),
    is_appended=st.booleans(),
)
@examples(12)
def test_retractions(
    tiling: Tiling,
    drawn: Any,
    gone: Any,
    requested: Any,
    order: Any,
    size: int,
    late: bool,
    turn: int,
    is_sketching: bool,
    is_appended: bool,
) -> None:
    changes = valued(inserts(drawn))
    back = [(key, Change(c.at, c.time, c.values, -1, c.seq)) for n, (key, c) in enumerate(changes) if n in gone]
    values = [each for each in retaining(turn) if each.is_exact_retracted or not is_appended]
    job = Job(aggregation(*SUMMED, *values, appends=False, tiling=tiling))
    assert job.operator.tiles.is_appended is is_appended
    with sketching(is_sketching):
        for batch in batches([*changes, *back], order, 3):
            job.feed(frame(batch), watermark=instant(changes[0][1].time) if late else None)
        check(source(job.operator, job.store, frame([*changes, *back])), instants(changes, requested), size)


@given(tiling=tilings, drawn=tables, requested=points, order=orders, size=sizes, turn=turns)
@examples(6)
def test_keyed_input(tiling: Tiling, drawn: Any, requested: Any, order: Any, size: int, turn: int) -> None:
    changes = valued(version_history(drawn))
    job = Job(aggregation(*SUMMED, *retaining(turn), keyed=True, tiling=tiling))
    for batch in batches(changes, order, 3):
        job.feed(frame(batch, TABLE))
    check(source(job.operator, job.store, frame(changes, TABLE)), instants(changes, requested), size)


@pytest.mark.parametrize("options", [{}, {"appends": False}, {"keyed": True}])
def test_every_aggregate_over_plain_values_has_point_lookups(options: dict[str, bool]) -> None:
    schema = TABLE if options.get("keyed") else STREAM
    job = Job(aggregation(*SUMMED, *retaining(0), tiling=TILING, **options))
    changes = valued([(1, Change(t, t, {"x": t % 5, "f": 1.0}, 1, t)) for t in range(0, 400_000_000, 7_000_001)])
    job.feed(frame(changes, schema))
    where = [(key, 400_000_000 + shift) for key in (1, 2) for shift in (0, 1_000_000)]
    assert check(source(job.operator, job.store, frame(changes, schema)), where, 1) == len(where)


@pytest.mark.parametrize("window", [Continuous("forever"), Continuous("100s"), Tumbling("100s")])
@pytest.mark.parametrize("rows_of_point_lookups", [0, 256])
def test_a_value_that_does_not_fit_is_an_error_of_those_who_request_it(window: Any, rows_of_point_lookups: int) -> None:
    decaying = ExpDecaySum(of="f", half_life="1h", window=window)  # so that discrete windows are looked up
    job = Job(aggregation(Sum(of="x", window=window), Count(window=window), decaying, tiling=TILING))
    changes = [(1, Change(t, t, {"x": 2**62, "f": 1.0}, 1, t)) for t in (1, 2, 3)]
    job.feed(frame(changes))
    known = source(job.operator, job.store, frame(changes))
    keys, at = pl.DataFrame({"k": [1]}), pl.Series([instant(100_000_000)])
    with patch.object(lookups, "POINT_LOOKUP_ROWS", rows_of_point_lookups):
        assert known.online("E", keys, at, frozenset({"a1"}))[0]["a1"].to_list() == [3]
        for requested in (None, frozenset({"a0"}), frozenset({"a0", "a1"})):
            with pytest.raises(Terminal, match="does not fit int"):
                known.online("E", keys, at, requested)
    report = answering(job.operator, {"a1"}).replay(frame(changes), job.points([(1, 100_000_000)]))
    assert report["a1"].to_list() == [3]
    assert "a0" not in report.columns


def test_point_lookups_answer_up_to_their_edges() -> None:
    """At the instant of a row the state knows it; behind the watermark, all that is not before the last row absorbed is known."""
    job = Job(aggregation(*SUMMED, tiling=TILING))
    changes = valued([(1, Change(t, t, {"x": t % 5, "f": 1.0}, 1, t)) for t in range(0, 400_000_000, 20_000_000)])
    job.feed(frame(changes))
    late = valued([(1, Change(400_000_000, 400_000_000, {"x": 1, "f": 1.0}, 1, 1))])
    job.feed(frame(late), watermark=instant(300_000_000))
    where = [(1, 400_000_000), (1, 380_000_000), (1, 390_000_000)]
    assert check(source(job.operator, job.store, frame([*changes, *late])), where, 1) == len(where)


def test_point_lookups_find_the_keys_of_the_state() -> None:
    """Not a key whose rows were all retracted; and one of which nothing but its base is left."""
    job = Job(aggregation(Count(window=SHORT), Count(window=LONG), appends=False, tiling=TILING))
    row = Change(10_000_000, 10_000_000, {"x": 1, "f": 1.0}, 1, 1)
    gone = [(1, row), (1, replace(row, weight=-1)), (2, row)]
    changes = valued(gone)
    job.feed(frame(changes))
    where = [(1, 20_000_000), (2, 20_000_000), (2, 10_000_000), (2, 9_999_999)]
    assert check(source(job.operator, job.store, frame(changes)), where, 1) == len(where)
    later = valued([(2, replace(row, time=9_000_000_000, at=9_000_000_000, seq=2))])
    job.feed(frame(later), watermark=instant(9_000_000_000))
    job.feed(frame(valued([(2, replace(later[0][1], weight=-1))])))
    everything = [*changes, *later, *valued([(2, replace(later[0][1], weight=-1))])]
    where = [(1, 9_500_000_000), (2, 9_500_000_000)]
    assert check(source(job.operator, job.store, frame(everything)), where, 1) == len(where)


@pytest.mark.parametrize("instants_of_a_tile", [1, 20])
def test_point_lookups_find_no_key_whose_rows_were_retracted_by_a_later_batch(instants_of_a_tile: int) -> None:
    """What inserted the rows and what retracted them are in blocks of their own: most keys are in the first one only."""
    job = Job(aggregation(Count(window=SHORT), Count(window=LONG), appends=False, tiling=TILING))
    times = range(10_000_000, 10_000_000 + instants_of_a_tile)
    rows = [(key, Change(time, time, {"x": 1, "f": 1.0}, 1, time)) for key in range(50) for time in times]
    gone = [(key, replace(row, weight=-1)) for key, row in rows if key == 1 or (key == 2 and row.time > times[0])]
    job.feed(frame(valued(rows)))
    job.feed(frame(valued(gone)))
    everything = frame(valued([*rows, *gone]))
    where = [(key, at) for key in (1, 2, 3) for at in (9_999_999, 20_000_000, 200_000_000)]
    assert check(source(job.operator, job.store, everything), where, 1) == len(where)
    found = job.lookup([(key, 20_000_000) for key in (1, 2, 3)])
    assert found["_at_found"].to_list() == [False, True, True]


def test_the_window_edge_of_point_lookups() -> None:
    """A row at t counts until the last microsecond of second t + w, and no longer."""
    job = Job(aggregation(Count(window=SHORT), Sum(of="x", window=LONG), tiling=TILING))
    changes = valued([(1, Change(t, t, {"x": 1, "f": 1.0}, 1, t)) for t in (0, 5_000_000, 9_500_000)])
    job.feed(frame(changes))
    edges = [
        t + w + shift
        for t in (0, 5_000_000)
        for w in (100_000_000, 1_500_000_000)
        for shift in (-1, 0, 999_999, 1_000_000)
    ]
    where = [(1, at) for at in edges]
    assert check(source(job.operator, job.store, frame(changes)), where, 1) == len(where)


@given(drawn=streams, requested=points)
@examples(2)
def test_aggregates_over_lists_have_no_point_lookups(drawn: Any, requested: Any) -> None:
    changes = valued(inserts(drawn))
    job = Job(aggregation(*OVER_LISTS, tiling=TILING))
    job.feed(frame(changes))
    state_lookups = source(job.operator, job.store, frame(changes))
    assert state_lookups.online("E", pl.DataFrame({"k": [1]}), pl.Series([instant(0)], dtype=INSTANT))[0].height == 1
    check(state_lookups, instants(changes, requested), 4, has_point_lookups=False)


@given(drawn=tables, requested=points, size=sizes)
@examples(8)
def test_versions(drawn: Any, requested: Any, size: int) -> None:
    changes = version_history(drawn)
    operator, store = Leaf(dataset="E", version=1, columns=TABLE), MemoryStore(shards=3)
    rows = frame(changes, TABLE)
    rows = rows.with_columns(encode_keys(rows.select("id")).alias(KEY))
    for shard in range(store.shards):
        with store.transaction(shard, [operator.id], Stamp(0, 1)) as transaction:
            table = State(transaction, operator.id).timed("versions", version_columns(TABLE))
            follow(rows.filter(shard_of(rows[KEY], store.shards) == shard), table)
    edges = [(change.values["id"], change.at + shift) for _, change in changes for shift in (-1, 0, 1)]
    check(source(operator, store, rows), [*requested, *edges], size, "id")


def test_no_points() -> None:
    job = Job(aggregation(*OVER_LISTS))
    state_lookups = source(job.operator, job.store, frame([]))
    found, is_found = state_lookups.online("E", pl.DataFrame({"k": []}), pl.Series([], dtype=INSTANT))
    assert found.schema == job.operator.schema.polars()
    assert is_found.is_empty()


numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
texts = st.none() | st.text(max_size=5) | st.just("é" * 300)


@given(keys=st.lists(st.tuples(numbers, texts)))
def test_keys_and_instants_have_the_same_bytes(keys: Any) -> None:
    columns = pl.DataFrame(keys, schema={"number": pl.Int64, "text": pl.String}, orient="row")
    for some in (columns, columns.select("number"), columns.select("text")):
        encoded = encode_keys(some)
        assert encode_points([each.to_list() for each in some], some.dtypes) == encoded.to_list()
        assert [shard_of_key(key, 7) for key in encoded] == shard_of(encoded, 7).to_list()
    micros = pl.Series([number for number, _ in keys if number is not None], dtype=pl.Int64)
    assert [encode_instant(each) for each in micros] == encode_time(micros.cast(INSTANT)).to_list()
