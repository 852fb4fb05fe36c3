"""The reading side of committed sources: what is new in them, and what is in a split."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umbel.connectors.files import FileSource
from umbel.connectors.ingestlog import EndpointSource
from umbel.connectors.rawbatch import RawBatch
from umbel.connectors.splits import SplitSource
from umbel.errors import NotSupported
from umbel.plan.definitions import SourceDefinition
from umbel.plan.graph import Graph
from umbel.types.dtype import DType

SOURCE_SHIFT = 56
"""Rows are numbered by source, then by place in the source: of two with one key and instant the later source's wins."""


@dataclass
class OpenedSource:
    """A source of a dataset, ready to be read. What is no stream is asked for news once per `every`.

    Args:
        dataset: whose rows it has.
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
        """Whether it comes to an end."""
        return self.definition.is_bounded

    @property
    def has_ended(self) -> bool:
        """Whether it is bounded and, as far as was looked, has had nothing new for its `idleness`."""
        idleness, since = self.definition.idleness, self._idle_since
        return idleness is not None and since is not None and time.monotonic() - since >= idleness / 1e6

    def plan(self, position: Any, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], Any]:
        """Return new splits with their sizes, and the position after them."""
        if time.monotonic() < self._rest_until:
            return (), position
        found, reached = self.reading.plan(position, budget)
        self._idle_since = None if found else self._idle_since or time.monotonic()
        if not found and self.definition.connector.kind not in STREAMS:
            self._rest_until = time.monotonic() + self.definition.every / 1e6
        return found, reached

    def open(self, split: Mapping[str, Any], wanted: Mapping[str, DType]) -> Iterator[RawBatch]:
        """Yield the rows of a split, numbered among all rows of the dataset."""
        exact = not self.definition.preproc and self.definition.where is None
        for batch in self.reading.open(split, wanted, exact=exact):
            yield RawBatch(batch.raw, (self.source << SOURCE_SHIFT) + batch.first, batch.where, batch.text)


STREAMS = frozenset({"webhook"})
Opener = Callable[[Path, Any], SplitSource]
KINDS: Mapping[str, Opener] = {
    "webhook": EndpointSource,
    "files": lambda _, connector: FileSource(connector),
}


def open_sources(directory: Path, graph: Graph) -> Iterator[OpenedSource]:
    """Yield every source of the datasets of a graph.

    Raises:
        NotSupported: this version cannot read such a connector.
    """
    for each in graph.sources():
        reading = _reading(directory, each.dataset, each.definition)
        yield OpenedSource(each.dataset, each.ordinal, reading, each.definition, each.key)


def _reading(directory: Path, dataset: str, source: SourceDefinition) -> SplitSource:
    opener = KINDS.get(source.connector.kind)
    if opener is None:
        readable = ", ".join(sorted(KINDS))
        raise NotSupported(
            f"dataset '{dataset}': a source of kind '{source.connector.kind}' cannot be read yet",
            hint=f"these can: {readable}",
        )
    return opener(directory, source.connector)
