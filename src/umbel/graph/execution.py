"""Batch execution in one process.

The stages of a graph run one after the other over all shards of a store.

The in-process runner uses it with one shard in memory; the Spark driver uses it for batches too small to justify tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import Edge, StageOutput, run_shard, timed
from umbel.operators.operator import Clock, Keyed
from umbel.state.keys import encode_columns, shard_of
from umbel.state.port import Stamp, Store
from umbel.types.schema import TRUNCATION, WEIGHT

Frames = dict[Edge, list[pl.DataFrame]]


@dataclass(slots=True)
class BatchResult:
    """The outputs of a batch besides state.

    Args:
        logged: changes for the change logs, by node number.
        seen: the largest event time among the rows each node read, by node number.
    """

    logged: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, datetime] = field(default_factory=dict)

    def add(self, output: StageOutput) -> None:
        """Merge the change-log entries and event times of a stage output."""
        for number, frames in output.logged.items():
            self.logged[number].extend(frames)
        for number, instant in output.seen.items():
            self.seen[number] = max(instant, self.seen.get(number, instant))


def route(node: GraphNode, position: int, rows: pl.DataFrame, shards: int) -> Iterable[tuple[int, pl.DataFrame]]:
    """Split the rows of an edge by the shard of their key.

    Truncations go to every shard.
    """
    if shards == 1:
        return [(0, rows)]
    operator = node.operator
    assert isinstance(operator, Keyed)
    is_truncation = pl.col(WEIGHT) == TRUNCATION
    if operator.takes_truncations and (everywhere := rows.filter(is_truncation)).height:
        parts = dict(_by_shard(operator, position, rows.filter(~is_truncation), shards))
        found = {each: [parts[each]] if each in parts else [] for each in range(shards)}
        return [(each, pl.concat([*frames, everywhere])) for each, frames in found.items()]
    return _by_shard(operator, position, rows, shards)


def _by_shard(operator: Keyed, position: int, rows: pl.DataFrame, shards: int) -> list[tuple[int, pl.DataFrame]]:
    shard = shard_of(encode_columns(rows, operator.exchange()[position]), shards)
    parts = rows.with_columns(shard.alias("_shard")).partition_by("_shard", as_dict=True, include_key=False)
    return [(int(shard), part) for (shard,), part in parts.items()]


class InProcess:
    """Run batches in this process.

    Args:
        graph: the graph to run.
        store: the state store.
        only: the state ids of the nodes to run; None for all.
    """

    def __init__(self, graph: Graph, store: Store, only: Container[str] | None = None) -> None:
        self.graph, self._store, self._only = graph, store, only
        self._timed = [node for node in timed(graph) if only is None or node.state_id in only]

    def run(self, output: StageOutput, stamp: Stamp, clocks: Mapping[int, Clock]) -> BatchResult:
        """Run all stages after stage 0 over the output of stage 0."""
        result = BatchResult()
        result.add(output)
        frames = self._routed(output)
        for number in range(1, self.graph.depth + 1):
            nodes = self.graph.stage(number, self._only)
            for shard in sorted(frames):
                produced = self._shard(nodes, shard, frames[shard], stamp, clocks)
                result.add(produced)
                self._pass_on(produced, frames)
        return result

    def settle(
        self, result: BatchResult, stamp: Stamp, stream_times: dict[int, datetime], clocks: Mapping[int, Clock]
    ) -> BatchResult:
        """Fire timers until no stream time advances; return the batch's merged result.

        Args:
            result: of the batch itself.
            stamp: of the batch itself.
            stream_times: of the timed nodes, by number; advanced in place.
            clocks: of the batch.
        """
        seen, step = result.seen, stamp.step
        while self._advance(seen, stream_times, clocks):
            step += 1
            moved = {
                number: replace(clocks.get(number, Clock()), stream_time=at) for number, at in stream_times.items()
            }
            ticked = self._tick(Stamp(stamp.epoch, stamp.batch, step), {**clocks, **moved})
            seen = dict(ticked.seen)
            for number, frames in ticked.logged.items():
                result.logged[number].extend(frames)
        return result

    def _tick(self, stamp: Stamp, clocks: Mapping[int, Clock]) -> BatchResult:
        result, frames = BatchResult(), self._routed(StageOutput())
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
        nodes: list[GraphNode],
        shard: int,
        arrived: Mapping[Edge, list[pl.DataFrame]],
        stamp: Stamp,
        clocks: Mapping[int, Clock],
        due: Collection[GraphNode] = (),
    ) -> StageOutput:
        edges = {edge for edge in arrived if any(edge[0] == node.number for node in nodes)}
        output = StageOutput()
        if edges or due:
            inbox = {edge: pl.concat(arrived[edge]) for edge in edges}
            with self._store.transaction(shard, [node.state_id for node in nodes], stamp) as transaction:
                run_shard(nodes, inbox, transaction, clocks, output, due)
        return output

    def _routed(self, output: StageOutput) -> dict[int, Frames]:
        frames: dict[int, Frames] = defaultdict(lambda: defaultdict(list))
        self._pass_on(output, frames)
        return frames

    def _pass_on(self, output: StageOutput, frames: dict[int, Frames]) -> None:
        for (number, position), rows in output.frames.items():
            for shard, part in route(self.graph.nodes[number], position, pl.concat(rows), self._store.shards):
                frames[shard][number, position].append(part)

    def _advance(
        self, seen: Mapping[int, datetime], stream_times: dict[int, datetime], clocks: Mapping[int, Clock]
    ) -> bool:
        """Advance stream times and return True if any changed.

        Each advances to the newest row, or to the watermark for nodes with results that wait for it.
        """
        moved = {node.number: _reached(node, seen, clocks.get(node.number, Clock())) for node in self._timed}
        later = {
            number: at
            for number, at in moved.items()
            if at is not None and (number not in stream_times or at > stream_times[number])
        }
        stream_times.update(later)
        return bool(later)


def _reached(node: GraphNode, seen: Mapping[int, datetime], clock: Clock) -> datetime | None:
    operator = node.operator
    waits = isinstance(operator, Keyed) and operator.is_final and clock.waits
    return clock.watermark if waits else seen.get(node.number)
