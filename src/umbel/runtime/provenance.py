"""Provenance in a deployment: its change logs, and the positions of rows in its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from umbel.functions.guarding import guarded
from umbel.graph.graph import GraphNode
from umbel.log.change_tail import BATCH
from umbel.query.history import LogPart
from umbel.runtime.deployment import Deployment
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.intake import sources_of
from umbel.runtime.replays import LAST_NUMBERS
from umbel.runtime.sources import SOURCE_SHIFT
from umbel.types.schema import SEQ


@dataclass(frozen=True)
class DeploymentProvenance:
    """Reads the rows behind values.

    Args:
        deployment: the deployment.
        revision: the commit whose sources the rows are of.
    """

    deployment: Deployment
    revision: int

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

    def positions(self, leaf: GraphNode, numbers: Sequence[int]) -> Sequence[str]:
        """Return the positions in their source of rows of a dataset that has sources."""
        found = list[str]()
        for ordinal, group in groupby(numbers, key=lambda number: number >> SOURCE_SHIFT):
            own = [number - (ordinal << SOURCE_SHIFT) for number in group]
            found += self._in_source(leaf, ordinal, own)
        return found

    def _in_source(self, leaf: GraphNode, ordinal: int, numbers: Sequence[int]) -> Iterator[str]:
        """Yield the positions of rows of one source of a dataset."""
        graph = self.deployment.graph(self.revision)
        name = next(name for name, entry in graph.entries.items() if entry.state_id == leaf.state_id)
        source = sources_of(self.deployment, self.revision).get((name, ordinal))
        if source is None:
            yield from (f"row {number} of a source that is not committed any more" for number in numbers)
            return
        landmarks = self.deployment.landmarks.before(source.key, numbers)
        for number in numbers:
            if number >= LAST_NUMBERS:
                yield f"{source.title}: dead letter {number - LAST_NUMBERS}, processed again"
            else:
                yield f"{source.title}: {source.reading.location_of(number, landmarks[number])}"
