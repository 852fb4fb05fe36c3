"""The in-process runner: the whole graph in the caller's thread, one shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from datetime import datetime

import polars as pl

from umbel.changes.change_filter import ChangeFilter
from umbel.definitions.records import DatasetDefinition
from umbel.graph.execution import InProcess
from umbel.graph.graph import Graph, GraphNode
from umbel.graph.stages import StageOutput, due, emit
from umbel.operators.index import Index
from umbel.operators.operator import Clock
from umbel.query.history import LogPart, replay
from umbel.query.lookups import Lookups
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.types.schema import AT, SEQ, WEIGHT


class LocalRunner:
    """Runs the pipelines of a set of datasets in process, without a JVM.

    Results are those of the streaming job without a watermark: late rows are always applied.

    Args:
        datasets: their definitions.
        direct: keyed datasets computed by pipelines that are also fed rows directly.
    """

    def __init__(self, datasets: Iterable[DatasetDefinition], direct: Container[str] = ()) -> None:
        self.graph = Graph(datasets, direct=direct)
        store = MemoryStore(shards=1)
        self._execution = InProcess(self.graph, store)
        self._logs: dict[int, list[pl.DataFrame]] = defaultdict(list)
        self._stream_times: dict[int, datetime] = {}
        self._batch = 0
        self._rows = 0
        self.store = store
        self.lookups = Lookups(self.graph, store, self._history)

    def ingest(self, dataset: str, rows: pl.DataFrame) -> None:
        """Ingest rows into a dataset and run everything that depends on it.

        Args:
            dataset: its name; one computed by a pipeline may be fed directly, but if it has keys it must be among `direct`.
            rows: validated rows in storage types; with `_at` and `_weight` if some are deletes.
        """
        node = self.graph.entries.get(dataset, self.graph.outputs[dataset])
        changes, output = self._as_changes(node, rows), StageOutput()
        if isinstance(node.operator, Index):
            output.frames[node.number, 0].append(changes)
        else:
            emit(node, changes, output)
        self._run(output)

    def changes(self, dataset: str) -> pl.DataFrame:
        """Return the changelog of a dataset so far."""
        return self._logged(self.graph.outputs[dataset])

    def history(self, dataset: str) -> pl.DataFrame:
        """Return all changes consumed by the dataset's terminal aggregate."""
        return replay(self.graph.outputs[dataset], self.part)

    def _as_changes(self, node: GraphNode, rows: pl.DataFrame) -> pl.DataFrame:
        schema = node.operator.schema
        numbers = pl.int_range(self._rows, self._rows + len(rows), dtype=pl.Int64).alias(SEQ)
        self._rows += len(rows)
        plain = {AT: pl.col(schema.timestamp), WEIGHT: pl.lit(1, pl.Int64)}
        missing = [value.alias(name) for name, value in plain.items() if name not in rows.columns]
        return rows.with_columns(*missing, numbers).select(list(schema.changes()))

    def _run(self, output: StageOutput) -> None:
        self._batch += 1
        stamp = Stamp(0, self._batch)
        clocks = {number: Clock(stream_time=stream_time) for number, stream_time in self._stream_times.items()}
        result = self._execution.run(output, stamp, clocks)
        self._stream_times.update(due(self.graph.nodes, result.seen, clocks))
        for number, frames in result.logged.items():
            self._logs[number].extend(frames)

    def _logged(self, node: GraphNode) -> pl.DataFrame:
        frames = self._logs[node.number]
        return pl.concat(frames) if frames else node.operator.schema.empty()

    def part(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        """Return a part of the changes of a logged node so far."""
        return part.taken(self._logged(node))

    def _history(self, node: GraphNode, changes: ChangeFilter) -> pl.DataFrame:
        return replay(node, self.part, changes)
