"""The order in which a backfill emits results that have waited for the watermark.

While history is read there is no watermark. What waits for it then is that of all history, and may be as many rows as there are.
So it is emitted in steps, as if the watermark came by: each has the results of about as many rows of history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from umbel.graph.graph import Graph
from umbel.graph.stages import Moved
from umbel.operators.operator import Clock
from umbel.runtime.backfill_state import BackfillState
from umbel.runtime.progress import EventTimeProgress
from umbel.windowing.tiling import instant_of, micros

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

Spread = tuple[datetime, datetime, int]
"""The first and the last instant of some rows, and their number."""
PIECES = 16
"""In how many equal pieces the rows of a file are taken to be spread over its time, for each step."""


def begun_emission(
    deployment: Deployment, graph: Graph, state: BackfillState, time: EventTimeProgress, rows: Callable[[], int]
) -> BackfillState:
    """Return the state with the clocks of the next step that emits results.

    Without any if none is left.

    Args:
        deployment: the deployment.
        graph: the operators that are computed, and their inputs.
        state: of the backfill, after all history is read.
        time: event time as of the batch before.
        rows: returns about how many rows of history have the results of one step.
    """
    final = [node for node in graph.nodes if node.state_id in state.state_ids and node.is_final]
    instants = state.instants
    if instants is None:
        history = graph.history_of(frozenset(state.state_ids)) if final else ()
        spreads = [each for node in history for each in deployment.changes.spread(node)]
        instants = instants_of(spreads, rows()) if spreads else ()
    if not instants:
        return replace(state, instants=())
    clocks = progress_of(state, time, graph).until(instant_of(instants[0])).clocks(graph)
    if all(clocks[node.number].watermark is None for node in final):  # such as of a source that is loading
        return replace(state, instants=())
    return replace(state, instants=instants, clocks=_plain_clocks(graph, clocks))


def instants_of(spreads: Iterable[Spread], rows: int) -> list[int]:
    """Return the instants between parts of history with about some rows each, in µs, ascending.

    Args:
        spreads: how the rows are spread over time.
        rows: of a part.
    """
    pieces, found, behind = sorted(_pieces(spreads, max(1, rows // PIECES))), list[int](), 0
    for at, weight in pieces:
        if behind >= rows and at > (found[-1] if found else 0):
            found.append(at)
            behind = 0
        behind += weight
    return found


def _pieces(spreads: Iterable[Spread], rows: int) -> Iterable[tuple[int, int]]:
    for first, last, number in spreads:
        count = max(1, number // rows)
        begin, length = micros(first), micros(last) - micros(first)
        yield from ((begin + length * each // count, number // count) for each in range(count))


def progress_of(state: BackfillState, time: EventTimeProgress, graph: Graph) -> EventTimeProgress:
    """Return event time with that of the operators that a backfill computes.

    Args:
        state: of the backfill, after all history is read.
        time: event time as of the batch before.
        graph: the operators that are computed, and their inputs.
    """
    moved = {each: Moved.of_plain(plain) for each, plain in state.moved.items()}
    stream_times = {**time.stream_times, **stream_times_of(state, graph)}
    return replace(time, stream_times=stream_times, moved={**time.moved, **moved})


def stream_times_of(state: BackfillState, graph: Graph) -> dict[str, datetime]:
    """Return the stream times of the operators that a backfill computes, by state id.

    Args:
        state: of the backfill.
        graph: the operators, and their inputs.
    """
    eager = {node.state_id for node in graph.nodes if node.is_timed and not node.is_final}
    seen = {each: at for each, at in state.seen.items() if each in eager}
    return {each: datetime.fromisoformat(at) for each, at in {**seen, **state.passed}.items()}


def _plain_clocks(graph: Graph, clocks: Mapping[int, Clock]) -> dict[str, list[Any]]:
    """Return clocks as JSON-compatible data, by state id."""
    return {
        graph.nodes[number].state_id: [*map(_plain, (each.watermark, each.stream_time)), *map(_plain, each.parents)]
        for number, each in clocks.items()
    }


def clocks_of(graph: Graph, plain: Mapping[str, Sequence[Any]]) -> dict[int, Clock]:
    """Restore the clocks that the state of a backfill has."""
    found = {}
    for node in (each for each in graph.nodes if each.is_keyed and each.state_id in plain):
        watermark, stream_time, *parents = map(_instant, plain[node.state_id])
        found[node.number] = Clock(watermark, stream_time, tuple(parents), waits=True)
    return found


def _plain(instant: datetime | None) -> int | None:
    return None if instant is None else micros(instant)


def _instant(plain: int | None) -> datetime | None:
    return None if plain is None else instant_of(plain)
