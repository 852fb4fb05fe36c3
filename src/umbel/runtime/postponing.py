"""Batches without the sources that stop answering while they are read.

A plan says what a batch reads, also when it is run again. If a source does not answer any more, the batch would hold up all
datasets until it does. Of a batch that has never come further than reading, nothing is stored yet: its plan is written anew
without that source, which is planned again later, from the position before.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from umbel.catalog.catalog import JobEpoch
from umbel.connectors.package_errors import ReaderFailed
from umbel.errors import Transient
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.intake import source_of
from umbel.runtime.plans import PlannedSplit

if TYPE_CHECKING:
    from umbel.runtime.batch import BatchReport, MicroBatch
    from umbel.runtime.sources import OpenedSource

T = TypeVar("T")

_TEXT = re.compile(r"SourceAway: (.+) \(source (\d+) of dataset '(\w+)'\)")
"""Matches the error in the text of another process."""

log = logging.getLogger("umbel.work")


class SourceAway(Transient):
    """A source does not answer that may be planned again.

    Args:
        message: why.
        dataset: of the source.
        source: its ordinal among the dataset's sources.
        hint: the remedy.
    """

    def __init__(self, message: str, dataset: str, source: int, hint: str | None = None) -> None:
        super().__init__(f"{message} (source {source} of dataset '{dataset}')", hint=hint)
        self.dataset, self.source = dataset, source

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """Return the error that the text of another error has, if any."""
        found = _TEXT.search(text)
        return None if found is None else cls(found[1], found[3], int(found[2]))


def answered(deployment: Deployment, revision: int, split: PlannedSplit, rows: Iterator[T]) -> Iterator[T]:
    """Yield what is read from a split.

    Raises:
        SourceAway: its source does not answer, and may be planned again.
    """
    try:
        yield from rows
    except Transient as error:
        domain = source_of(deployment, revision, split).reading.failure_domain
        if split.is_replay or (domain is None and not isinstance(error, ReaderFailed)):
            raise
        raise SourceAway(error.message, split.dataset, split.source, error.hint) from error


def run(batch: MicroBatch, how: Callable[[MicroBatch], BatchReport], *, is_new: bool) -> tuple[MicroBatch, BatchReport]:
    """Run a batch, without sources that do not answer.

    Returned are the batch as it ran, and its report.

    Args:
        batch: the batch.
        how: runs it.
        is_new: whether it is run for the first time, so that nothing of it is stored.

    Raises:
        SourceAway: it is run again, and what it is to read must be there.
    """
    while True:
        try:
            return batch, how(batch)
        except SourceAway as error:
            if not is_new:
                raise
            batch = _without(batch, error)


def _without(batch: MicroBatch, error: SourceAway) -> MicroBatch:
    """Return a batch without the sources of a failure domain, its plan written anew."""
    deployment, failed = batch.deployment, (error.dataset, error.source)
    away = next(
        each.reading.failure_domain for each, split in _planned(batch) if (split.dataset, split.source) == failed
    )
    sources, partitions = planned_parts(
        batch,
        lambda source: (source.dataset, source.source) == failed or source.reading.failure_domain == away is not None,
    )
    with deployment.catalog.without_successor(JobEpoch(JOB, batch.stamp.epoch)):  # one may have begun this batch
        plan = deployment.plans().postpone(batch.plan, sources, partitions)
    text = f"batch {batch.stamp.batch} goes on without {len(sources)} sources: {error.message}"
    log.warning(text)
    if not batch.plan.away.keys() & partitions:  # not each time that they are tried again
        deployment.catalog.record_event("work", "warning", text)
    return batch.planned_anew(plan)


def planned_parts(
    batch: MicroBatch, selects: Callable[[OpenedSource], bool] = lambda _: True
) -> tuple[set[tuple[str, int]], Mapping[str, set[str]]]:
    """Return the sources that a batch reads, and their partitions.

    Sources are by dataset and ordinal, partitions by the key of the source.

    Args:
        batch: the batch.
        selects: whether a source counts.
    """
    sources, partitions = set[tuple[str, int]](), defaultdict[str, set[str]](set)
    for source, split in _planned(batch):
        if selects(source):
            sources.add((split.dataset, split.source))
            partition = source.reading.partition_of(split.split)
            partitions[source.key] |= set() if partition is None else {partition}
    return sources, partitions


def _planned(batch: MicroBatch) -> Iterator[tuple[OpenedSource, PlannedSplit]]:
    """Yield the splits of a plan that are of sources, not replayed dead letters."""
    for split in batch.plan.splits:
        if not split.is_replay:
            yield source_of(batch.deployment, batch.plan.revision, split), split
