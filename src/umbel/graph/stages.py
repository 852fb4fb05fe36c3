"""Stage execution: the flow of changes through a graph, shared by every runner.

A runner passes each stage its input frames and moves its output to the later stages; the process it runs in and the transport of
the frames are the runner's choice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from umbel.functions.guarding import applied
from umbel.graph.graph import Graph, GraphNode
from umbel.operators.operator import Clock, Keyed, RowWise
from umbel.state.port import Reader
from umbel.state.tables import State
from umbel.types.schema import AT, WEIGHT

Edge = tuple[int, int]
"""The number of the reading node, and the index of its input."""


@dataclass(slots=True)
class StageOutput:
    """The output of a stage.

    Args:
        frames: changes for later stages, by edge.
        logged: changes for the change logs, by node number.
        seen: the largest event time among the rows each node read, by node number.
    """

    frames: dict[Edge, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    logged: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, datetime] = field(default_factory=dict)

    def saw(self, node: GraphNode, frames: tuple[pl.DataFrame, ...]) -> None:
        """Record the largest event time a node has read."""
        for parent, frame in zip(node.parents, frames, strict=True):
            inserted = frame.filter(pl.col(WEIGHT) > 0) if AT in frame.columns else frame  # has `_weight`, too
            latest = inserted[parent.operator.schema.timestamp].max()
            if isinstance(latest, datetime):
                self.seen[node.number] = max(latest, self.seen.get(node.number, latest))


class PlannedState(State):
    """The state of an operator, with access to its datasets' version histories.

    These are found by the ids of the dataset leaves.
    """

    def __init__(self, reader: Reader, node: GraphNode) -> None:
        super().__init__(reader, node.state_id)
        self._reader_of_all, self._aliases = reader, node.aliases

    def of(self, state_id: str) -> State:
        """Return the state of a plan leaf, or of another state id."""
        return State(self._reader_of_all, self._aliases.get(state_id, state_id))


def emit(node: GraphNode, rows: pl.DataFrame, output: StageOutput) -> None:
    """Route a node's changes to its readers, through the row-wise operators in between."""
    if rows.is_empty():
        return
    if node.is_logged:
        output.logged[node.number].append(rows)
    for reader, position in node.readers:
        operator = reader.operator
        if isinstance(operator, RowWise):
            emit(reader, applied(operator, rows), output)
        elif isinstance(operator, Keyed):
            output.frames[reader.number, position].append(operator.partial(rows))


def run_shard(
    nodes: list[GraphNode],
    inbox: Mapping[Edge, pl.DataFrame],
    reader: Reader,
    clocks: Mapping[int, Clock],
    output: StageOutput,
) -> None:
    """Run the keyed nodes of one stage over one shard's input.

    Args:
        nodes: the stage's keyed nodes.
        inbox: the stage's input: one frame of changes per edge; edges without changes may be omitted.
        reader: the shard's open transaction.
        clocks: by node number.
        output: the stage's output, extended in place.
    """
    for node in nodes:
        frames = tuple(_arrived(node, position, inbox) for position in range(len(node.parents)))
        if all(frame.is_empty() for frame in frames) or not isinstance(node.operator, Keyed):
            continue
        if node.operator.is_timed:
            output.saw(node, frames)
        changes = node.operator.step(frames, PlannedState(reader, node), clocks.get(node.number, Clock()))
        emit(node, changes, output)


def tick_shard(nodes: list[GraphNode], reader: Reader, clocks: Mapping[int, Clock], output: StageOutput) -> None:
    """Fire the due timers of one stage in one shard.

    A timer is due if the node's stream time has passed it.
    """
    for node in nodes:
        if isinstance(node.operator, Keyed):
            changes = node.operator.tick(PlannedState(reader, node), clocks.get(node.number, Clock()))
            emit(node, changes, output)


def _arrived(node: GraphNode, position: int, inbox: Mapping[Edge, pl.DataFrame]) -> pl.DataFrame:
    frame = inbox.get((node.number, position))
    return node.parents[position].operator.schema.empty() if frame is None else frame


def timed(graph: Graph) -> list[GraphNode]:
    """Return the nodes whose results depend on stream time."""
    return [node for node in graph.nodes if isinstance(node.operator, Keyed) and node.operator.is_timed]
