"""Provenance in process: the runner's logs, and the numbers of logged rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import polars as pl

from umbel.graph.graph import GraphNode
from umbel.local.runner import LocalRunner
from umbel.query.history import LogPart
from umbel.types.schema import SEQ


@dataclass(frozen=True)
class LocalProvenance:
    """Reads the rows behind values of a runner.

    Args:
        runner: the runner.
    """

    runner: LocalRunner

    def read(self, node: GraphNode, part: LogPart) -> pl.DataFrame:
        """Return logged changes of a node."""
        return self.runner.part(node, part)

    def arrivals(self, node: GraphNode, numbers: pl.Series) -> Mapping[int, int | None]:
        """Return None for each row of a node that has one of the numbers."""
        there = self.runner.part(node, LogPart(pl.col(SEQ).is_in(numbers.implode())))
        return dict.fromkeys(there[SEQ])

    def positions(self, leaf: GraphNode, numbers: Sequence[int]) -> Sequence[str]:
        """Return the numbers of rows among those that the runner has ingested, from 0."""
        del leaf
        return [f"row {number}" for number in numbers]

    def guarding(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: in process no row is rejected alone."""
        return nullcontext()
