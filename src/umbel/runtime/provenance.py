"""Provenance in a deployment: its change logs, and the positions of rows in its sources."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from umbel.functions.guarding import guarded
from umbel.graph.graph import Graph, GraphNode
from umbel.log.change_tail import BATCH
from umbel.query.history import LogPart
from umbel.runtime.deployment import Deployment
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.replays import LAST_NUMBERS
from umbel.runtime.sources import SOURCE_SHIFT, OpenedSource, open_sources
from umbel.types.schema import SEQ


@dataclass(frozen=True)
class DeploymentProvenance:
    """Reads the rows behind values of a branch.

    Args:
        deployment: the deployment.
        graph: its operators.
    """

    deployment: Deployment
    graph: Graph

    def read(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        """Return logged changes of a node."""
        return self.deployment.changes.part(node, part)

    def guarding(self) -> AbstractContextManager[None]:
        """Return a context in which user functions reject the rows that they rejected before."""
        return guarded(WorkerGuard(self.deployment, is_marked=False))

    def arrivals(self, node: GraphNode, numbers: pl.Series) -> Mapping[int, int | None]:
        """Return the micro-batches in which rows of a logged node arrived, by `_seq`."""
        found = self.deployment.changes.read(node, pl.col(SEQ).is_in(numbers.implode()), columns=[SEQ, BATCH])
        return dict(found.group_by(SEQ).agg(pl.col(BATCH).min()).iter_rows())

    def position(self, leaf: GraphNode, number: int) -> str:
        """Return the position in its source of a row of a dataset that has sources."""
        name = next(name for name, entry in self.graph.entries.items() if entry.state_id == leaf.state_id)
        own, source = number & ((1 << SOURCE_SHIFT) - 1), self._sources.get((name, number >> SOURCE_SHIFT))
        if source is None:
            return f"row {own} of a source that is not committed any more"
        if own >= LAST_NUMBERS:
            return f"{source.title}: dead letter {own - LAST_NUMBERS}, processed again"
        landmark = self.deployment.landmarks.before(source.key, own)
        return f"{source.title}: {source.reading.location_of(own, landmark)}"

    @cached_property
    def _sources(self) -> dict[tuple[str, int], OpenedSource]:
        return {(each.dataset, each.source): each for each in open_sources(self.deployment.directory, self.graph)}
