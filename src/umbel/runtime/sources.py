"""The reading side of committed sources: planning new splits and opening them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from umbel.connectors.lag import SourceLag
from umbel.connectors.package_errors import transient_of
from umbel.connectors.splits import Found, Position, SplitSource
from umbel.definitions.arguments import ReadOptions
from umbel.definitions.preproc import ReferenceColumn
from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.errors import NotSupported, Transient, UmbelError
from umbel.formats.raw_batch import RawBatch
from umbel.graph.graph import Graph
from umbel.ingestion.rows import requested
from umbel.runtime.silence import SilentSystems
from umbel.types.dtype import DType

LONGEST_WAIT = 10.0
"""Seconds between two attempts to reach a source that does not answer."""
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
        silent: the systems that keep requests waiting, of all sources that are read together.
        trouble: why it does not answer; empty if it does.
    """

    dataset: str
    source: int
    reading: SplitSource
    definition: SourceDefinition
    key: str
    silent: SilentSystems = field(default_factory=SilentSystems, repr=False)
    trouble: str = ""
    _failures: int = 0
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
    def is_loading(self) -> bool:
        """True while rows that exist already are still being read for the first time."""
        return self.reading.is_loading

    @property
    def loads_unordered(self) -> bool:
        """True if rows that exist already are read in no order of event time."""
        return self.reading.loads_unordered

    def unread_partitions(self, position: Any) -> Collection[str]:
        """Return the partitions with rows beyond a position, as of the last `plan`."""
        return self.reading.unread_partitions(position)

    @property
    def has_ended(self) -> bool:
        """True if it is bounded and has been idle for its `idleness`."""
        idleness, since = self.definition.idleness, self._idle_since
        return idleness is not None and since is not None and time.monotonic() - since >= idleness / 1e6

    def lag(self, position: Any) -> SourceLag:
        """Return what the source has beyond a position, as of the last `plan`."""
        return self.reading.lag(position)

    @property
    def title(self) -> str:
        """The description of its connector, for messages."""
        return self.definition.connector.title

    def read_ahead(self) -> None:
        """Begin to read beside other sources."""
        if time.monotonic() >= self._rest_until:
            self.reading.read_ahead()

    @contextmanager
    def requesting(self) -> Iterator[None]:
        """Request something inside the block, which fails at once while the system is silent.

        Raises:
            Transient: it does not answer, or the code of its connector raises an error that is not umbel's.
        """
        with self.silent.noted(self.reading.failure_domain), self._reported("cannot be read: "):
            yield

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        """Raise errors of the connector's code inside the block as transient ones."""
        try:
            yield
        except (UmbelError, KeyboardInterrupt, MemoryError, GeneratorExit):
            raise
        except BaseException as error:  # of another package's code, and panics of Polars
            raise transient_of(error, f"{self.title}: {what}", type(self.reading).__module__) from error

    def requested_plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return new splits with their sizes, and the position after them.

        Raises:
            Transient: the source does not answer, or returns something else.
        """
        with self.requesting():
            planned: object = self.reading.plan(position, budget)
            return _checked(planned)

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return new splits with their sizes, and the position after them.

        A source that does not answer has none; it is asked again after a while, so that the others go on.
        """
        if time.monotonic() < self._rest_until:
            return (), position
        try:
            self.reading.tend()
            found, reached = self.requested_plan(position, budget)
        except Transient as error:
            self.trouble, self._failures = str(error), self._failures + 1
            self._rest_until = time.monotonic() + min(LONGEST_WAIT, 0.25 * 2 ** min(self._failures, 10))
            return (), position
        self.trouble, self._failures = "", 0
        self._idle_since = None if found or self.is_loading else self._idle_since or time.monotonic()
        is_polled = not self.definition.connector.is_stream and not self.reading.paces_itself
        if not found and is_polled and not self.reading.is_listing:
            self._rest_until = time.monotonic() + self.definition.every / 1e6
        return found, reached

    def open_all(self, splits: Sequence[Mapping[str, Any]], requested: Mapping[str, DType]) -> Iterator[RawBatch]:
        """Yield the rows of splits, numbered among all rows of the dataset."""
        made = self.definition
        exact = not made.preproc and made.where is None and made.transform is None
        with self._reported("a split cannot be read: "):
            batches: Iterable[object] = self.reading.open_all(splits, requested, exact=exact)
            for batch in batches:
                if not isinstance(batch, RawBatch):
                    raise TypeError(f"open() yielded {type(batch).__name__}, not a RawBatch")
                yield replace(batch, first=(self.source << SOURCE_SHIFT) + batch.first)

    def check(self, position: Any) -> None:
        """Check that reading can resume at a position, if the source can check it.

        Raises:
            Damaged: data read up to there is gone.
        """
        self.reading.check(position)


def _checked(planned: object) -> tuple[Sequence[Found], Position]:
    """Return splits and a position as a connector has planned them.

    Raises:
        TypeError: they have another form, or cannot be stored.
    """
    reason = ""
    if not isinstance(planned, tuple | list) or len(planned) != 2 or not isinstance(planned[0], Sequence):
        reason = "not a sequence of splits and a position"
    elif not all(_is_split(each) for each in planned[0]):
        reason = "not pairs of a split, a dictionary, and its size in bytes"
    elif planned[0]:  # without splits the position is not stored
        try:
            json.dumps((list(planned[0]), planned[1]))
        except (TypeError, ValueError, RecursionError) as error:
            reason = f"which is no plain data: {error}"
    if reason:
        raise TypeError(f"plan() returned {planned!r:.150}, {reason}")
    return planned[0], planned[1]  # type: ignore[index]


def _is_split(found: object) -> bool:
    is_pair = isinstance(found, tuple | list) and len(found) == 2
    return is_pair and isinstance(found[0], Mapping) and isinstance(found[1], int | float)  # type: ignore[index]


def open_sources(directory: Path, graph: Graph) -> Iterator[OpenedSource]:
    """Yield every source of the datasets of a graph.

    Raises:
        NotSupported: this version cannot read such a connector.
    """
    silent = SilentSystems()
    for each in graph.sources():
        try:
            options = read_options(directory, graph.datasets[each.dataset], each.key, each.definition)
            reading = each.definition.connector.reader_of(options)
        except NotSupported as error:
            raise NotSupported(f"dataset '{each.dataset}': {error.message}", hint=error.hint) from None
        yield OpenedSource(each.dataset, each.ordinal, reading, each.definition, each.key, silent)


def read_options(directory: Path, dataset: DatasetDefinition, key: str, source: SourceDefinition) -> ReadOptions:
    """Return the part of a source's definition that its reader needs."""
    is_exact = not source.preproc and source.where is None
    columns = tuple(requested(source, dataset)) if is_exact else ()
    keys = [column_of(name, source) for name in dataset.schema.key_names]
    return ReadOptions(
        directory=directory,
        key=key,
        dataset=dataset.name,
        cdc=source.cdc,
        every=source.every,
        disorder=source.disorder,
        columns=columns or None,
        keys=None if None in keys else tuple(filter(None, keys)),
        is_keyed=dataset.schema.is_keyed,
        timestamp=None if source.transform else column_of(dataset.schema.timestamp, source),
        references=tuple(how.path[0] for _, how in source.preproc if isinstance(how, ReferenceColumn)),
    )


def column_of(name: str, source: SourceDefinition) -> str | None:
    """Return the column that a field is read from, None if it is computed."""
    made = dict(source.preproc).get(name)
    if made is None:
        return name
    return made.path[0] if isinstance(made, ReferenceColumn) and len(made.path) == 1 else None
