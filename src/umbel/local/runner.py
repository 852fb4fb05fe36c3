"""The in-process runner: the whole graph in the caller's thread, one shard, no JVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import polars as pl

from umbel.operators.index import Index
from umbel.operators.operator import Clock
from umbel.plan.definitions import DatasetDefinition
from umbel.plan.execute import InProcess
from umbel.plan.flow import Outbox, spread
from umbel.plan.graph import Graph, Node
from umbel.query.history import replay
from umbel.query.lookups import Lookups
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp, Store
from umbel.types.schema import AT, SEQ, WEIGHT


class Runner:
    """Run the pipelines of some datasets in process.

    Results are those of the streaming job without a watermark: late rows are always applied.

    Args:
        datasets: their definitions.
        store: where state is kept; in memory when None.
    """

    def __init__(self, datasets: Iterable[DatasetDefinition], store: Store | None = None) -> None:
        self.graph = Graph(datasets)
        store = store or MemoryStore(shards=1)
        self._execution = InProcess(self.graph, store)
        self._logs: dict[int, list[pl.DataFrame]] = defaultdict(list)
        self._frontiers: dict[int, datetime] = {}
        self._batch = 0
        self._rows = 0
        self.lookups = Lookups(self.graph, store, self._history)

    def ingest(self, dataset: str, rows: pl.DataFrame) -> None:
        """Feed rows to a dataset and run everything that depends on it.

        Args:
            dataset: its name; also one made by a pipeline may be fed directly.
            rows: validated rows in storage types; with `_at` and `_weight` if some are deletes.
        """
        node = self.graph.entries.get(dataset, self.graph.outputs[dataset])
        changes, outbox = self._as_changes(node, rows), Outbox()
        if isinstance(node.operator, Index):
            outbox.frames[node.number, 0].append(changes)
        else:
            spread(node, changes, outbox)
        self._run(outbox)

    def changes(self, dataset: str) -> pl.DataFrame:
        """Return every change of a dataset so far."""
        return self._logged(self.graph.outputs[dataset])

    def history(self, dataset: str) -> pl.DataFrame:
        """Return every change the aggregate that answers for a dataset has consumed."""
        return self._history(self.graph.outputs[dataset])

    def _as_changes(self, node: Node, rows: pl.DataFrame) -> pl.DataFrame:
        schema = node.operator.schema
        numbers = pl.int_range(self._rows, self._rows + len(rows), dtype=pl.Int64).alias(SEQ)
        self._rows += len(rows)
        plain = {AT: pl.col(schema.timestamp), WEIGHT: pl.lit(1, pl.Int64)}
        missing = [value.alias(name) for name, value in plain.items() if name not in rows.columns]
        return rows.with_columns(*missing, numbers).select(list(schema.changes()))

    def _run(self, outbox: Outbox) -> None:
        self._batch += 1
        stamp = Stamp(0, self._batch)
        clocks = {number: Clock(frontier=frontier) for number, frontier in self._frontiers.items()}
        result = self._execution.run(outbox, stamp, clocks)
        for number, frames in self._execution.settle(result, stamp, self._frontiers, clocks).logged.items():
            self._logs[number].extend(frames)

    def _logged(self, node: Node) -> pl.DataFrame:
        frames = self._logs[node.number]
        return pl.concat(frames) if frames else node.operator.schema.empty()

    def _history(self, node: Node) -> pl.DataFrame:
        return replay(node, self._logged)
