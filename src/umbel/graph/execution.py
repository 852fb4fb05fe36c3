"""Batch execution in one process.

The stages of a graph run one after the other; within a stage, the shards of a store run in threads, as many as there are cores.

The in-process runner uses it with one shard in memory; the Spark driver uses it for batches too small to justify tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import pairwise

import numpy as np
import polars as pl

from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import Edge, Moved, StageOutput, add_moved, add_seen, define_folded, due, run_shard
from umbel.graph.threads import in_threads
from umbel.operators.operator import Clock, Keyed
from umbel.state.keys import shard_of_columns
from umbel.state.port import Stamp, Store
from umbel.state.runs.sorting import gathered
from umbel.types.schema import TRUNCATION, WEIGHT

Frames = dict[Edge, list[pl.DataFrame]]
Part = tuple[int, Edge, pl.DataFrame]
"""Rows of an edge for a shard."""
Writer = Callable[[int, Sequence[pl.DataFrame]], None]
"""Begins to write changes of a node, by its number."""


@dataclass(slots=True)
class BatchResult:
    """The outputs of a batch besides state.

    Args:
        logged: changes for the change logs, by node number.
        seen: the largest event time among the rows for each timed node, by node number.
        moved: how far back operators have moved rows, by node number.
        made: the rows that operators have made, by node number.
    """

    logged: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[int, datetime] = field(default_factory=dict)
    moved: dict[int, Moved] = field(default_factory=dict)
    made: Counter[int] = field(default_factory=Counter)

    def add(self, output: StageOutput) -> None:
        """Merge what a stage output has besides frames."""
        for number, frames in output.logged.items():
            self.logged[number].extend(frames)
        add_seen(self.seen, output.seen)
        add_moved(self.moved, output.moved)
        self.made.update(output.made)


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
    shard = shard_of_columns(rows, operator.exchange()[position], shards).to_numpy()
    ordered = gathered(rows, shard.astype(np.uint16).argsort(kind="stable"))
    bounds = np.append(0, np.bincount(shard, minlength=shards).cumsum()).tolist()
    return [(each, ordered[low:high]) for each, (low, high) in enumerate(pairwise(bounds)) if high > low]


class InProcess:
    """Run batches in this process.

    Args:
        graph: the graph to run.
        store: the state store.
        only: the state ids of the nodes to run; None for all.
    """

    def __init__(self, graph: Graph, store: Store, only: Container[str] | None = None) -> None:
        self.graph, self._store, self._only = graph, store, only

    def run(
        self,
        output: StageOutput,
        stamp: Stamp,
        clocks: Mapping[int, Clock],
        write: Writer | None = None,
    ) -> BatchResult:
        """Run all stages after stage 0, and fire the timers that are due.

        Args:
            output: of stage 0; its frames are taken out of it, so that their memory is free once they have been processed.
            stamp: of the batch.
            clocks: as of the batch before, by node number.
            write: gets the changes that a stage computed of each logged node, before the next stage runs.
        """
        result = BatchResult()
        result.add(output)
        frames = self._taken_out(output)
        for number in range(1, self.graph.depth + 1):
            nodes = self.graph.stage(number, self._only)
            fired = due(nodes, result.seen, clocks)
            run = partial(self._shard, nodes, frames, stamp, clocks, fired)
            before = {each: len(changes) for each, changes in result.logged.items()}
            for produced, parts in in_threads(run, range(self._store.shards) if fired else sorted(frames)):
                result.add(produced)
                _pass_on(parts, frames)
            for each, changes in result.logged.items():
                if write is not None and (computed := changes[before.get(each, 0) :]):
                    write(each, computed)
        return result

    def _taken_out(self, output: StageOutput) -> dict[int, Frames]:
        """Return the frames of an output by shard; it has none afterwards."""
        frames = defaultdict[int, Frames](lambda: defaultdict(list))
        for parts in in_threads(self._routed, output.frames.items()):
            _pass_on(parts, frames)
        output.frames.clear()
        return frames

    def _shard(
        self,
        nodes: list[GraphNode],
        frames: Mapping[int, Frames],
        stamp: Stamp,
        clocks: Mapping[int, Clock],
        fired: Mapping[int, datetime],
        shard: int,
    ) -> tuple[StageOutput, list[Part]]:
        arrived = frames.get(shard, {})
        edges = {edge for edge in arrived if any(edge[0] == node.number for node in nodes)}
        output = StageOutput()
        if edges or fired:
            inbox = {edge: pl.concat(arrived.pop(edge)) for edge in edges}  # their memory is free after this stage
            with self._store.transaction(shard, [node.state_id for node in nodes], stamp) as transaction:
                define_folded(self.graph.nodes, transaction)
                run_shard(nodes, inbox, transaction, clocks, output, fired)
        return output, [part for each in output.frames.items() for part in self._routed(each)]

    def _routed(self, emitted: tuple[Edge, list[pl.DataFrame]]) -> list[Part]:
        (number, position), rows = emitted
        parts = route(self.graph.nodes[number], position, pl.concat(rows), self._store.shards)
        return [(shard, (number, position), part) for shard, part in parts]


def _pass_on(parts: Iterable[Part], frames: dict[int, Frames]) -> None:
    for shard, edge, part in parts:
        frames[shard][edge].append(part)
