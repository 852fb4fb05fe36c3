"""Executing a batch in one process: the stages of a graph over all shards of a store, one after the other.

The in-process runner is this with one shard in memory; the Spark driver uses it for batches too small to be worth tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from umbel.operators.operator import Clock, Keyed
from umbel.plan.flow import Edge, Outbox, run_shard, tick_shard, timed
from umbel.plan.graph import Graph, Node
from umbel.state.keys import encode_columns, shard_of
from umbel.state.port import Stamp, Store

Frames = dict[Edge, list[pl.DataFrame]]


@dataclass(slots=True)
class Result:
    """What a batch left behind besides state.

    Args:
        logged: changes for the change logs, by node number.
        seen: the largest event time among the rows each node read, by node number.
    """

    logged: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, datetime] = field(default_factory=dict)

    def add(self, outbox: Outbox) -> None:
        """Take over what an outbox holds besides frames."""
        for number, frames in outbox.logged.items():
            self.logged[number].extend(frames)
        for number, instant in outbox.seen.items():
            self.seen[number] = max(instant, self.seen.get(number, instant))


def route(node: Node, place: int, rows: pl.DataFrame, shards: int) -> Iterable[tuple[int, pl.DataFrame]]:
    """Split the rows that travel an edge by the shard their key belongs to."""
    if shards == 1:
        return [(0, rows)]
    operator = node.operator
    assert isinstance(operator, Keyed)
    owner = shard_of(encode_columns(rows, operator.exchange()[place]), shards)
    parts = rows.with_columns(owner.alias("_shard")).partition_by("_shard", as_dict=True, include_key=False)
    return [(int(shard), part) for (shard,), part in parts.items()]


class InProcess:
    """Run batches in this process.

    Args:
        graph: what to run.
        store: where the state is.
        only: the owners of the nodes that run; None for all.
    """

    def __init__(self, graph: Graph, store: Store, only: Container[str] | None = None) -> None:
        self.graph, self._store, self._only = graph, store, only
        self._timed = [node for node in timed(graph) if only is None or node.owner in only]

    def run(self, outbox: Outbox, stamp: Stamp, clocks: Mapping[int, Clock]) -> Result:
        """Run the stages after stage 0 over what stage 0 made."""
        result = Result()
        result.add(outbox)
        frames = self._routed(outbox)
        for number in range(1, self.graph.depth + 1):
            nodes = self.graph.stage(number, self._only)
            for shard in sorted(frames):
                produced = self._shard(nodes, shard, frames[shard], stamp, clocks)
                result.add(produced)
                self._pass_on(produced, frames)
        return result

    def settle(
        self, result: Result, stamp: Stamp, frontiers: dict[int, datetime], clocks: Mapping[int, Clock]
    ) -> Result:
        """Fire timers until no frontier moves any more; return what the batch and its ticks left behind.

        Args:
            result: of the batch itself.
            stamp: of the batch itself.
            frontiers: of the timed nodes, by number; moved.
            clocks: of the batch.
        """
        seen, step = result.seen, stamp.step
        while self._advance(seen, frontiers, clocks):
            step += 1
            moved = {number: replace(clocks.get(number, Clock()), frontier=at) for number, at in frontiers.items()}
            ticked = self._tick(Stamp(stamp.epoch, stamp.batch, step), {**clocks, **moved})
            seen = dict(ticked.seen)
            for number, frames in ticked.logged.items():
                result.logged[number].extend(frames)
        return result

    def _tick(self, stamp: Stamp, clocks: Mapping[int, Clock]) -> Result:
        result, frames = Result(), self._routed(Outbox())
        for number in range(1, self.graph.depth + 1):
            nodes = self.graph.stage(number, self._only)
            due = [node for node in nodes if node in self._timed]
            for shard in range(self._store.shards) if due else sorted(frames):
                produced = self._shard(nodes, shard, frames.get(shard, {}), stamp, clocks, due)
                result.add(produced)
                self._pass_on(produced, frames)
        return result

    def _shard(
        self,
        nodes: list[Node],
        shard: int,
        arrived: Mapping[Edge, list[pl.DataFrame]],
        stamp: Stamp,
        clocks: Mapping[int, Clock],
        due: Iterable[Node] = (),
    ) -> Outbox:
        edges = {edge for edge in arrived if any(edge[0] == node.number for node in nodes)}
        outbox = Outbox()
        if edges or due:
            inbox = {edge: pl.concat(arrived[edge]) for edge in edges}
            with self._store.transaction(shard, [node.owner for node in nodes], stamp) as transaction:
                run_shard(nodes, inbox, transaction, clocks, outbox)
                tick_shard(list(due), transaction, clocks, outbox)
        return outbox

    def _routed(self, outbox: Outbox) -> dict[int, Frames]:
        frames: dict[int, Frames] = defaultdict(lambda: defaultdict(list))
        self._pass_on(outbox, frames)
        return frames

    def _pass_on(self, outbox: Outbox, frames: dict[int, Frames]) -> None:
        for (number, place), rows in outbox.frames.items():
            for shard, part in route(self.graph.nodes[number], place, pl.concat(rows), self._store.shards):
                frames[shard][number, place].append(part)

    def _advance(
        self, seen: Mapping[int, datetime], frontiers: dict[int, datetime], clocks: Mapping[int, Clock]
    ) -> bool:
        """Move the frontiers: to the newest rows, or to the watermark where results wait for it; return whether any moved."""
        moved = {node.number: _reached(node, seen, clocks.get(node.number, Clock())) for node in self._timed}
        later = {
            number: at
            for number, at in moved.items()
            if at is not None and (number not in frontiers or at > frontiers[number])
        }
        frontiers.update(later)
        return bool(later)


def _reached(node: Node, seen: Mapping[int, datetime], clock: Clock) -> datetime | None:
    operator = node.operator
    waits = isinstance(operator, Keyed) and operator.is_final and clock.waits
    return clock.watermark if waits else seen.get(node.number)
