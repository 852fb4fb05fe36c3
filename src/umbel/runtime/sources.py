"""The reading side of committed sources: planning new splits and opening them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umbel.connectors.splits import SplitSource
from umbel.definitions.records import SourceDefinition
from umbel.errors import NotSupported
from umbel.formats.raw_batch import RawBatch
from umbel.graph.graph import Graph
from umbel.types.dtype import DType

SOURCE_SHIFT = 56
"""Rows are numbered by source, then by position in it: of two with one key and instant, the later source's wins."""


@dataclass
class OpenedSource:
    """A source of a dataset, ready to be read.

    A source that is no stream is polled for new data once per `every`.

    Args:
        dataset: the dataset of its rows.
        source: its ordinal among the dataset's sources.
        reading: its reading side.
        definition: as committed.
    """

    dataset: str
    source: int
    reading: SplitSource
    definition: SourceDefinition
    key: str
    _rest_until: float = 0.0
    _idle_since: float | None = None

    @property
    def is_bounded(self) -> bool:
        """True if it comes to an end."""
        return self.definition.is_bounded

    @property
    def is_live(self) -> bool:
        """True if its rows arrive as they happen, so none can be far ahead."""
        return self.definition.connector.is_stream and not self.is_bounded

    @property
    def has_ended(self) -> bool:
        """True if it is bounded and has been idle for its `idleness`."""
        idleness, since = self.definition.idleness, self._idle_since
        return idleness is not None and since is not None and time.monotonic() - since >= idleness / 1e6

    def plan(self, position: Any, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], Any]:
        """Return new splits with their sizes, and the position after them."""
        if time.monotonic() < self._rest_until:
            return (), position
        found, reached = self.reading.plan(position, budget)
        self._idle_since = None if found else self._idle_since or time.monotonic()
        if not found and not self.definition.connector.is_stream:
            self._rest_until = time.monotonic() + self.definition.every / 1e6
        return found, reached

    def open(self, split: Mapping[str, Any], requested: Mapping[str, DType]) -> Iterator[RawBatch]:
        """Yield the rows of a split, numbered among all rows of the dataset."""
        made = self.definition
        exact = not made.preproc and made.where is None and made.transform is None
        for batch in self.reading.open(split, requested, exact=exact):
            yield replace(batch, first=(self.source << SOURCE_SHIFT) + batch.first)

    def check(self, position: Any) -> None:
        """Check that reading can resume at a position, if the source can check it.

        Raises:
            Damaged: data read up to there is gone.
        """
        self.reading.check(position)


def open_sources(directory: Path, graph: Graph) -> Iterator[OpenedSource]:
    """Yield every source of the datasets of a graph.

    Raises:
        NotSupported: this version cannot read such a connector.
    """
    for each in graph.sources():
        try:
            reading = each.definition.connector.reader(directory)
        except NotSupported as error:
            raise NotSupported(f"dataset '{each.dataset}': {error.message}", hint=error.hint) from None
        yield OpenedSource(each.dataset, each.ordinal, reading, each.definition, each.key)
