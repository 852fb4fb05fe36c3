"""The clocks operators get: how far their inputs have come, corrections still to come included."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.aggregating import instant
from tests.laws.sources import BEGIN, EVENTS, USERS, VISITS
from tests.laws.twins import Program, Source, Twin
from tests.reference import SECOND
from umbel.aggregates import Count
from umbel.graph.graph import Graph
from umbel.runtime.progress import EventTimeProgress
from umbel.types.windows import Continuous, Session, Tumbling

NOW = BEGIN + 1000 * SECOND
EVENT, USER, VISIT = (
    Twin.of("E", EVENTS, appends=True),
    Twin.of("U", USERS, appends=False),
    Twin.of("V", VISITS, appends=True),
)
COUNT = [Count(into_field="n")]


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
