"""The clocks operators get: how far their inputs have come, corrections still to come included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from tests.aggregating import instant
from tests.laws.sources import BEGIN, EVENTS, USERS, VISITS
from tests.laws.twins import Program, Source, Twin
from tests.reference import SECOND
from umbel.aggregates import Count
from umbel.graph.graph import Graph
from umbel.graph.stages import Moved
from umbel.runtime.progress import EventTimeProgress, Ramp, Taken
from umbel.types.schema import SEQ
from umbel.types.windows import Continuous, Session, Tumbling
from umbel.windowing.tiling import micros

NOW = BEGIN + 1000 * SECOND
EVENT, USER, VISIT = (
    Twin.of("E", EVENTS, appends=True),
    Twin.of("U", USERS, appends=False),
    Twin.of("V", VISITS, appends=True),
)
COUNT = [Count(into_field="n")]


def rows(*times: int) -> pl.DataFrame:
    return pl.DataFrame({"at": [instant(each) for each in times], SEQ: range(len(times))})


@pytest.mark.parametrize(
    ("twin", "behind"),
    [
        (EVENT, 0),
        (EVENT.latest("k"), 0),
        (EVENT.join(USER, ["k"], ["u"], how="left", within=(None, 10)), 10),
        (EVENT.dedup(["k"]), 0),
        (EVENT.dedup(["k"], Session("15s")), 15),
        (EVENT.dedup(["k"], Tumbling("30s")), 30),
        (EVENT.aggregate(["k"], COUNT, window=Session("15s")), 100 + 15 + 2),
        (EVENT.aggregate(["k"], COUNT, window=Tumbling("30s", lookback="20s")), 100 + 20 + 1),
        (VISIT.aggregate(["k"], [Count(into_field="n", window=Tumbling("30s"))], along="w"), None),
    ],
)
def test_what_follows_an_operator_waits_for_its_corrections(twin: Twin, behind: int | None) -> None:
    counted = Twin.of("M", twin.schema, appends=False).aggregate(
        [twin.schema.key_names[0] if twin.keys else "k"], [Count(into_field="m", window=Continuous("1m"))]
    )
    sources = {"E": Source(EVENTS, ()), "U": Source(USERS, ()), "V": Source(VISITS, ())}
    graph = Graph(Program.numbered(sources, {"M": twin, "D": counted}).definitions())
    time = EventTimeProgress({source.key: instant(NOW) for source in graph.sources()})
    time.advance_stream_times(graph, {node.number: instant(NOW - 100 * SECOND) for node in graph.nodes})
    found = time.clocks(graph)[graph.outputs["D"].number]
    assert found.waits
    assert found.watermark == (None if behind is None else instant(NOW) - timedelta(seconds=behind))


def test_sources_are_listed_no_more_often_where_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, times = Graph.sources, list[int]()
    known = {"E": Source(EVENTS, ()), "U": Source(USERS, ()), "V": Source(VISITS, ())}
    monkeypatch.setattr(Graph, "sources", lambda graph: times.append(1) or listed(graph))
    for names in ("E", "EUV"):
        graph = Graph(Program.numbered({name: known[name] for name in names}, {}).definitions())
        times.append(0)
        EventTimeProgress({source.key: instant(NOW) for source in listed(graph)}).clocks(graph)
    first, second = "".join(map(str, times)).split("0")[1:]
    assert first == second


def test_what_follows_a_transform_waits_for_rows_that_it_moves_back() -> None:
    moved = EVENT.moved(-40 * SECOND)
    both = moved.union(EVENT)
    count = lambda twin: twin.aggregate(["k"], [Count(into_field="n", window=Continuous("1m"))])  # noqa: E731
    graph = Graph(Program.numbered({"E": Source(EVENTS, ())}, {"M": count(moved), "B": count(both)}).definitions())
    (source,), (transform,) = graph.sources(), [node for node in graph.nodes if node.operator.moves_rows]
    time = EventTimeProgress({source.key: instant(NOW)})

    def watermarks() -> list[object]:
        clocks = time.clocks(graph)
        return [clocks[graph.outputs[name].number].watermark for name in ("M", "B")]

    assert watermarks() == [None, instant(NOW)], "it has read no rows: no other ones wait for it"
    since = NOW - 100 * SECOND
    assert time.move(graph, {transform.number: Moved(40 * SECOND, instant(since), instant(NOW - 40 * SECOND))}) == []
    time = EventTimeProgress.of(time.state)
    assert watermarks() == [instant(NOW - 40 * SECOND)] * 2
    behind = Moved(90 * SECOND, instant(NOW - 50 * SECOND), instant(NOW - 50 * SECOND))
    assert time.move(graph, {transform.number: behind}) == [(transform, behind, instant(NOW - 40 * SECOND))]
    assert watermarks() == [instant(NOW - 40 * SECOND)] * 2, "one that is late holds none up"
    further = Moved(70 * SECOND, instant(NOW - 40 * SECOND), instant(NOW - 40 * SECOND))
    assert time.move(graph, {transform.number: further}) == []
    assert watermarks() == [instant(NOW - 70 * SECOND)] * 2
    time.ended = frozenset([source.key])
    assert watermarks() == [instant(NOW - 40 * SECOND)] * 2, "as far as its newest row is"
    time.moved = {transform.state_id: Moved(0, instant(NOW - 500 * SECOND), instant(NOW - 500 * SECOND))}
    assert watermarks() == [instant(NOW)] * 2, "rows that were filtered before it count, too"


def test_one_row_that_is_moved_by_years_holds_no_watermark() -> None:
    moved = Moved.of(rows(NOW, NOW + 1), rows(NOW - 30, 0), ("at", "at"))
    assert moved == Moved(30, instant(0), instant(NOW - 30))
    assert Moved.of(rows(NOW), rows(0), ("at", "at")) == Moved(0, instant(0), instant(0))


def test_rows_moved_to_the_first_year_leave_no_watermark() -> None:
    counted = EVENT.moved(-40 * SECOND).aggregate(["k"], [Count(into_field="n", window=Continuous("1m"))])
    graph = Graph(Program.numbered({"E": Source(EVENTS, ())}, {"M": counted}).definitions())
    (source,), (transform,) = graph.sources(), [node for node in graph.nodes if node.operator.moves_rows]
    time, ancient = EventTimeProgress({source.key: instant(NOW)}), datetime(1, 1, 1, tzinfo=UTC)
    time.move(graph, {transform.number: Moved(NOW - micros(ancient), ancient, ancient)})
    assert time.clocks(graph)[graph.outputs["M"].number].watermark is None
    time.ended = frozenset([source.key])
    assert time.clocks(graph)[graph.outputs["M"].number].watermark is None


def test_rows_that_a_function_fails_on_hide_no_distance() -> None:
    before, after = rows(50, 10, 90), rows(50 - 30, 10 - 20, 90)
    moved = Moved(30, instant(-10), instant(90))
    assert Moved.of(before, after, ("at", "at")) == moved
    assert Moved.of(before, after[1:], ("at", "at")) == Moved(20, instant(-10), instant(90))
    assert Moved.of(before, after[2:], ("at", "at")) == Moved(0, instant(90), instant(90)), "that of the others"


def test_a_source_with_partitions_has_reached_what_its_unread_ones_have() -> None:
    def taken(partition: str, newest: int) -> Taken:
        return Taken("s", partition, instant(0), instant(newest))

    time = EventTimeProgress(unread={"s": ["0", "1"]})
    time.saw([taken("0", 10)], {"s"}, has_final=False)
    assert time.newest == {}, "nothing is known of the other partition"
    time.saw([taken("1", 30), taken("2", 90)], {"s"}, has_final=False)
    assert time.newest == {"s": instant(10)}
    again = EventTimeProgress.of(time.state)  # such as after a restart, before it is known what is unread
    again.saw([], set(), has_final=False)
    assert again.newest == {"s": instant(10)}
    again.saw([Taken("s", None, instant(0), instant(50))], {"s"}, has_final=False)  # a replay
    again.saw([], {"s"}, has_final=False)
    assert again.newest == {"s": instant(90)}, "all has been read"
    again.unread = {"s": ["0"]}
    again.saw([taken("0", 20)], {"s"}, has_final=False)
    assert again.newest == {"s": instant(90)}, "it never goes back"
    again.saw([taken("0", 95)], {"s"}, has_final=False)
    assert again.newest == {"s": instant(95)}
    again.saw([taken("1", 99)], {"s"}, has_final=False)
    again.unread = {"s": []}
    again.saw([], set(), has_final=False)
    assert again.newest == {"s": instant(99)}, "it is known without a row that all has been read"


def test_the_watermark_passes_loaded_rows_in_as_many_steps_as_there_were_batches() -> None:
    time = EventTimeProgress(loading=frozenset("s"))
    for low, high in ((40, 50), (0, 100), (70, 80)):
        time.saw([Taken("s", None, instant(low), instant(high))], {"s"}, has_final=True)
        time = EventTimeProgress.of(time.state)
        time.loading = frozenset("s")
    time.saw([], set(), has_final=True)  # one without rows
    assert time.ramps == {"s": Ramp(instant(0), steps=3)}
    time.loading, reached = frozenset(), []
    while time.ramps:
        reached.append(time._reached("s"))
        time.saw([], set(), has_final=True)
    assert reached == [instant(0) + (instant(100) - instant(0)) * k / 3 for k in (1, 2, 3)]
    assert time._reached("s") == instant(100)
