"""Stage 0: opening a split, judging its rows, and running what is row-wise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import polars as pl

from umbel.catalog.catalog import RAW_LIMIT, DeadLetter
from umbel.connectors.rawbatch import RawBatch
from umbel.plan.definitions import DatasetDefinition
from umbel.plan.flow import Outbox, spread
from umbel.plan.ingest import prepare, wanted
from umbel.runtime.deployment import Deployment
from umbel.runtime.erasures import erased_everywhere
from umbel.runtime.plans import PlannedSplit
from umbel.runtime.sources import OpenedSource, open_sources
from umbel.types.schema import AT, SEQ, WEIGHT

ROWS_AT_ONCE = 1_000_000
DEAD_AT_ONCE = 10_000


@dataclass(slots=True)
class Intake:
    """What came of some rows of a split.

    Args:
        name: tells it apart from others of the batch; the same at each run.
        source: the key of the source.
        dataset: its dataset.
        outbox: changes for later stages.
        counts: rows taken, refused and too late.
        dead: the refused ones.
        newest: the largest event time taken.
    """

    name: str
    source: str
    dataset: str
    outbox: Outbox = field(default_factory=Outbox)
    counts: Counter[str] = field(default_factory=Counter)
    dead: list[DeadLetter] = field(default_factory=list)
    newest: datetime | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """What the driver needs to know of it."""
        return {
            "source": self.source,
            "dataset": self.dataset,
            "counts": dict(self.counts),
            "dead": self.dead,
            "newest": self.newest,
        }


def take_in(
    deployment: Deployment, revision: int, split: PlannedSplit, watermarks: Mapping[str, datetime]
) -> Iterator[Intake]:
    """Read a split; yield what comes of it, some rows at a time.

    Args:
        deployment: where things are.
        revision: whose definitions apply.
        split: what to read.
        watermarks: of each source as of the batch before; older rows are too late.
    """
    graph = deployment.graph(revision)
    dataset = graph.datasets[split.dataset]
    source = _sources(deployment, revision)[split.dataset, split.source]
    entry, oldest = graph.entries[split.dataset], watermarks.get(source.key)
    intake, number = _fresh(source, split, 0), 0
    erased = erased_everywhere(deployment, revision)
    for batch in source.open(split.split, wanted(source.definition, dataset)):
        changes = _judged(dataset, source, batch, intake, oldest)
        kept = erased.without(split.dataset, changes)
        intake.counts["erased"] += changes.height - kept.height
        intake.counts["rows"] -= changes.height - kept.height
        changes = kept
        spread(entry, changes, intake.outbox)
        if intake.counts["rows"] >= ROWS_AT_ONCE or len(intake.dead) >= DEAD_AT_ONCE:
            yield intake
            number += 1
            intake = _fresh(source, split, number)
    yield intake


def _fresh(source: OpenedSource, split: PlannedSplit, number: int) -> Intake:
    from umbel.operators.fingerprint import fingerprint

    return Intake(
        f"{fingerprint(source.key, sorted(map(str, split.split.items())))}-{number}", source.key, source.dataset
    )


def _judged(
    dataset: DatasetDefinition, source: OpenedSource, batch: RawBatch, intake: Intake, oldest: datetime | None
) -> pl.DataFrame:
    """Return the good rows of a batch as changes; note the others."""
    validated = prepare(batch.raw, source.definition, dataset)
    timestamp = pl.col(dataset.schema.timestamp)
    numbers = (validated.kept.cast(pl.Int64) + batch.first).alias(SEQ)
    plain = {AT: timestamp, WEIGHT: pl.lit(1, pl.Int64)}
    missing = [value.alias(name) for name, value in plain.items() if name not in validated.frame.columns]
    changes = validated.frame.with_columns(*missing, numbers).select(list(dataset.schema.changes()))
    if oldest is not None:
        in_time = changes.filter(pl.col(AT) >= oldest)
        intake.counts["late"] += changes.height - in_time.height
        changes = in_time
    _bury(source, batch, validated.rejects, intake)
    intake.counts["rows"] += changes.height
    latest = changes[AT].max()
    if isinstance(latest, datetime):
        intake.newest = latest if intake.newest is None else max(latest, intake.newest)
    return changes


def _bury(source: OpenedSource, batch: RawBatch, rejects: pl.DataFrame, intake: Intake) -> None:
    intake.counts["dead"] += rejects["row"].n_unique()
    for row, at_field, reason in rejects.iter_rows():
        raw = batch.text(row)
        place = batch.where(row)
        letter = DeadLetter(source.dataset, source.source, place, reason, raw[:RAW_LIMIT], len(raw), at_field)
        intake.dead.append(letter)


@lru_cache(maxsize=4)
def _sources(deployment: Deployment, revision: int) -> dict[tuple[str, int], OpenedSource]:
    opened = open_sources(deployment.directory, deployment.graph(revision))
    return {(each.dataset, each.source): each for each in opened}
