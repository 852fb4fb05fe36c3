"""How changes flow through a graph: the one way every runner executes a stage.

A runner gives each stage the frames that arrived for it and moves what comes out to the stages after; where it runs and how the
frames travel is its own affair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from umbel.operators.operator import Clock, Keyed, RowWise
from umbel.plan.graph import Graph, Node
from umbel.state.port import Reader
from umbel.state.tables import State
from umbel.types.schema import AT, WEIGHT

Edge = tuple[int, int]
"""The number of the node that reads, and which of its inputs it is."""


@dataclass(slots=True)
class Outbox:
    """What a stage hands on.

    Args:
        frames: changes for later stages, by the edge they travel.
        logged: changes for the change logs, by node number.
        seen: the largest event time among the rows each node read, by node number.
    """

    frames: dict[Edge, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    logged: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, datetime] = field(default_factory=dict)

    def saw(self, node: Node, frames: tuple[pl.DataFrame, ...]) -> None:
        """Note the largest event time a node has read."""
        for parent, frame in zip(node.parents, frames, strict=True):
            inserted = frame.filter(pl.col(WEIGHT) > 0) if AT in frame.columns else frame  # combined frames know
            latest = inserted[parent.operator.schema.timestamp].max()
            if isinstance(latest, datetime):
                self.seen[node.number] = max(latest, self.seen.get(node.number, latest))


class PlannedState(State):
    """An operator's state, which finds the timelines of the datasets it reads by the ids of their leaves."""

    def __init__(self, reader: Reader, node: Node) -> None:
        super().__init__(reader, node.owner)
        self._reader_of_all, self._aliases = reader, node.aliases

    def of(self, owner: str) -> State:
        """Return the state behind a leaf of the plan, or of another owner."""
        return State(self._reader_of_all, self._aliases.get(owner, owner))


def spread(node: Node, rows: pl.DataFrame, outbox: Outbox) -> None:
    """Hand a node's changes to everything that reads them, through the row-wise operators that follow."""
    if rows.is_empty():
        return
    if node.is_logged:
        outbox.logged[node.number].append(rows)
    for reader, place in node.readers:
        operator = reader.operator
        if isinstance(operator, RowWise):
            spread(reader, operator.apply(rows), outbox)
        elif isinstance(operator, Keyed):
            outbox.frames[reader.number, place].append(operator.partial(rows))


def run_shard(
    nodes: list[Node], inbox: Mapping[Edge, pl.DataFrame], reader: Reader, clocks: Mapping[int, Clock], outbox: Outbox
) -> None:
    """Run the keyed nodes of one stage over what arrived for one shard.

    Args:
        nodes: the stage's keyed nodes.
        inbox: one frame of changes per edge; edges without changes may be left out.
        reader: the shard's open transaction.
        clocks: by node number.
        outbox: gets what comes out.
    """
    for node in nodes:
        frames = tuple(_arrived(node, place, inbox) for place in range(len(node.parents)))
        if all(frame.is_empty() for frame in frames) or not isinstance(node.operator, Keyed):
            continue
        if node.operator.is_timed:
            outbox.saw(node, frames)
        changes = node.operator.step(frames, PlannedState(reader, node), clocks.get(node.number, Clock()))
        spread(node, changes, outbox)


def tick_shard(nodes: list[Node], reader: Reader, clocks: Mapping[int, Clock], outbox: Outbox) -> None:
    """Fire the timers of one stage in one shard that are due at the nodes' frontiers."""
    for node in nodes:
        if isinstance(node.operator, Keyed):
            changes = node.operator.tick(PlannedState(reader, node), clocks.get(node.number, Clock()))
            spread(node, changes, outbox)


def _arrived(node: Node, place: int, inbox: Mapping[Edge, pl.DataFrame]) -> pl.DataFrame:
    frame = inbox.get((node.number, place))
    return node.parents[place].operator.schema.empty() if frame is None else frame


def timed(graph: Graph) -> list[Node]:
    """Return the nodes whose results depend on the frontier."""
    return [node for node in graph.nodes if isinstance(node.operator, Keyed) and node.operator.is_timed]
