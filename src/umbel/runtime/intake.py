"""Stage 0: opens a split, validates its rows and runs row-wise operators."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import polars as pl

from umbel.catalog.catalog import RAW_LIMIT, DeadLetter
from umbel.catalog.late_records import LATE
from umbel.catalog.replays import Replays
from umbel.connectors.splits import Landmark
from umbel.definitions.records import DatasetDefinition
from umbel.formats.raw_batch import RawBatch, joined_batches
from umbel.functions.guarding import guarded
from umbel.graph.stages import StageOutput, emit
from umbel.ingestion.isolation import RowIsolation
from umbel.ingestion.rows import prepare, requested
from umbel.runtime.dead_letters import DROPPED, by_kind
from umbel.runtime.deployment import Deployment
from umbel.runtime.erasures import erased_everywhere
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.limits import Limits
from umbel.runtime.plans import BatchPlan, PlannedSplit
from umbel.runtime.progress import EPOCH, Taken
from umbel.runtime.replays import origin_of, replayed
from umbel.runtime.sources import OpenedSource, open_sources
from umbel.types.dtype import DType
from umbel.types.raw import Raw, rejects
from umbel.types.schema import AT, SEQ, WEIGHT
from umbel.types.validate import Validated

ROWS_AT_ONCE = 1_000_000
DEAD_AT_ONCE = 10_000
SMALL_SPLIT = 128 << 10
"""Bytes of a split that may be read together with those beside it: each read alone costs as much as a thousand rows."""
TOGETHER = 1 << 20
"""Bytes of the splits that are read together."""


@dataclass(slots=True)
class Intake:
    """The result of some rows of a split, or of a group of them.

    Args:
        name: unique in the batch; the same at each run.
        source: the key of the source.
        partition: of the source, None if it has none.
        dataset: its dataset.
        output: changes for later stages.
        counts: rows taken, refused and too late.
        dead: the refused rows, and some of the late ones.
        taken: the event times of the rows taken, by partition.
    """

    name: str
    source: str
    partition: str | None
    dataset: str
    output: StageOutput = field(default_factory=StageOutput)
    counts: Counter[str] = field(default_factory=Counter)
    dead: list[DeadLetter] = field(default_factory=list)
    taken: dict[str | None, Taken] = field(default_factory=dict)

    def took(self, changes: pl.DataFrame, batch: RawBatch) -> None:
        """Note the event times of changes that a batch has."""
        if batch.partitions is None:
            found: Iterable[Any] = [(self.partition, changes[AT].min(), changes[AT].max())]
        else:
            partitions = batch.partitions.gather(batch.rows(changes[SEQ]))
            times = pl.col(AT).min().alias("oldest"), pl.col(AT).max().alias("newest")
            found = changes.group_by(pl.lit(partitions).alias("partition")).agg(*times).iter_rows()
        for name, oldest, newest in found:
            known = self.taken.get(name, Taken(self.source, name, oldest, newest))
            self.taken[name] = replace(known, oldest=min(oldest, known.oldest), newest=max(newest, known.newest))

    @property
    def summary(self) -> dict[str, Any]:
        """The part of it that the driver needs."""
        return {
            "source": self.source,
            "dataset": self.dataset,
            "counts": dict(self.counts),
            "dead": self.dead,
            "taken": list(self.taken.values()),
        }


def take_in(
    deployment: Deployment,
    plan: BatchPlan,
    group: Sequence[PlannedSplit],
    watermarks: Mapping[str, datetime],
    guard: WorkerGuard,
    waiting: frozenset[str] = frozenset(),
) -> Iterator[Intake]:
    """Read a group of splits; yield the result of some rows at a time.

    Args:
        deployment: the deployment.
        plan: has the revision of the definitions, and the latest event time of live sources.
        group: the splits to read, as of `groups_of`.
        watermarks: of each source as of the batch before; older rows are too late.
        guard: calls user functions.
        waiting: the state ids of the operators that do not run yet.
    """
    graph, split = deployment.graph(plan.revision, waiting), group[0]
    dataset = graph.datasets[split.dataset]
    source = source_of(deployment, plan.revision, split)
    latest = None if plan.latest is None or not source.is_live else EPOCH + timedelta(microseconds=plan.latest)
    entry, bounds = graph.entries[split.dataset], Bounds(watermarks.get(source.key), latest, deployment.late)
    intake, number = _fresh(source, group, 0), 0
    erased = erased_everywhere(deployment, plan.revision)
    for batch in _opened(deployment, source, group, requested(source.definition, dataset)):
        with guarded(guard):
            changes = _judged(dataset, source, batch, intake, bounds)
        accepted = erased.without(split.dataset, changes)
        intake.counts["erased"] += changes.height - accepted.height
        intake.counts["rows"] -= changes.height - accepted.height
        changes, before = accepted, len(guard.rejected)
        with guarded(guard):
            emit(entry, changes, intake.output)
        guard.location(before, batch)
        if intake.counts["rows"] >= ROWS_AT_ONCE or len(intake.dead) >= DEAD_AT_ONCE:
            yield intake
            number += 1
            intake = _fresh(source, group, number)
    yield intake


def groups_of(deployment: Deployment, plan: BatchPlan) -> list[Sequence[PlannedSplit]]:
    """Return the splits of a plan in groups, the same at each run.

    Small ones of a source that follow each other are read together.
    """
    groups, size = list[list[PlannedSplit]](), 0
    for split in plan.splits:
        size += split.size
        if groups and size <= TOGETHER and _may_follow(deployment, plan.revision, groups[-1][-1], split):
            groups[-1].append(split)
        else:
            groups.append([split])
            size = split.size
    return list(groups)


def _may_follow(deployment: Deployment, revision: int, before: PlannedSplit, split: PlannedSplit) -> bool:
    return (
        max(before.size, split.size) <= SMALL_SPLIT
        and (before.dataset, before.source, before.is_replay) == (split.dataset, split.source, False)
        and may_open_at_once(deployment, revision, split)
    )


def may_open_at_once(deployment: Deployment, revision: int, split: PlannedSplit) -> bool:
    """Return whether a split may be read in a thread beside others."""
    return source_of(deployment, revision, split).reading.opens_at_once and not split.is_replay


def source_of(deployment: Deployment, revision: int, split: PlannedSplit) -> OpenedSource:
    """Return the source that a split is of."""
    return sources_of(deployment, revision)[split.dataset, split.source]


def landmarks(deployment: Deployment, plan: BatchPlan) -> dict[str, list[Landmark]]:
    """Return the landmarks of the splits of a plan, by the keys of their sources."""
    found = defaultdict[str, list[Landmark]](list)
    for split in plan.splits:
        source = source_of(deployment, plan.revision, split)
        landmark = None if split.is_replay else source.reading.landmark_of(split.split)
        if landmark is not None:
            found[source.key].append(landmark)
    return found


def _opened(
    deployment: Deployment, source: OpenedSource, group: Sequence[PlannedSplit], columns: Mapping[str, DType]
) -> Iterator[RawBatch]:
    """Return the rows of splits of a source, or of its dead letters."""
    if group[0].is_replay:
        return replayed(Replays(deployment.catalog), source, group[0].split, columns)
    opened = source.open_all([each.split for each in group], columns)
    return opened if len(group) == 1 else joined_batches(opened)


def _fresh(source: OpenedSource, group: Sequence[PlannedSplit], number: int) -> Intake:
    from umbel.functions.fingerprint import fingerprint

    name = f"{fingerprint(source.key, *(sorted(map(str, each.split.items())) for each in group))}-{number}"
    partition = None if group[0].is_replay else source.reading.partition_of(group[0].split)
    return Intake(name, source.key, partition, source.dataset)


@dataclass(slots=True)
class Bounds:
    """The bounds of the event times of a split's rows.

    Args:
        oldest: the watermark, older rows are too late; None for any.
        latest: later rows are refused; None for any.
        late_bytes: bytes of late rows that may still be stored.
    """

    oldest: datetime | None
    latest: datetime | None
    late_bytes: int


def _judged(
    dataset: DatasetDefinition, source: OpenedSource, batch: RawBatch, intake: Intake, bounds: Bounds
) -> pl.DataFrame:
    """Return the accepted rows of a batch as changes; record the others."""
    plain = {AT: pl.col(dataset.schema.timestamp), WEIGHT: pl.lit(1, pl.Int64)}

    def prepared(raw: Raw) -> Validated:
        found = prepare(raw, source.definition, dataset)
        missing = [value.alias(name) for name, value in plain.items() if name not in found.frame.columns]
        return replace(found, frame=found.frame.with_columns(missing).select(*dataset.schema.dtypes, *plain))

    validated = RowIsolation(prepared).applied(batch.raw)
    numbers = batch.numbers(validated.accepted).alias(SEQ)
    changes = validated.frame.with_columns(numbers).select(list(dataset.schema.changes()))
    intake.counts.update(batch.counts)
    _bury(source, batch, validated.rejects, intake)
    changes = _in_time(changes, dataset, source, batch, intake, bounds)
    intake.counts["rows"] += changes.height
    if changes.height:
        intake.took(changes, batch)
    return changes


def _in_time(
    changes: pl.DataFrame,
    dataset: DatasetDefinition,
    source: OpenedSource,
    batch: RawBatch,
    intake: Intake,
    bounds: Bounds,
) -> pl.DataFrame:
    """Return the changes within the bounds of event time.

    Rows after the latest are refused; rows before the watermark are set aside as late. An update of a row without a key is two
    changes of one number, which go together: half an update counts the row twice or not at all.
    """
    if not changes.height:
        return changes
    least, most = changes[AT].min(), changes[AT].max()
    assert isinstance(least, datetime)
    assert isinstance(most, datetime)
    if bounds.latest is not None and most > bounds.latest:
        ahead = changes.filter(pl.col(AT) > bounds.latest)
        why = f"is ahead of {_shown(bounds.latest)}, the latest a live source may have when it is processed"
        errors = {batch.row(seq): f"event time {_shown(at)} {why}" for seq, at in ahead.select(SEQ, AT).iter_rows()}
        _bury(source, batch, rejects(errors, dataset.schema.timestamp), intake)
        changes = changes.filter(~pl.col(SEQ).is_in(ahead[SEQ].implode()))
    if bounds.oldest is not None and least < bounds.oldest:
        late = changes.filter(pl.col(AT) < bounds.oldest)
        in_time = changes.filter(~pl.col(SEQ).is_in(late[SEQ].implode()))
        intake.counts["late"] += changes.height - in_time.height
        for seq, at in late.select(SEQ, AT).iter_rows():
            if bounds.late_bytes <= 0:
                break
            reason = f"{LATE}event time {_shown(at)} is before the watermark {_shown(bounds.oldest)}"
            letter = _letter(source, batch, batch.row(seq), dataset.schema.timestamp, reason)
            bounds.late_bytes -= len(letter.raw)
            intake.dead.append(letter)
        changes = in_time
    return changes


def _shown(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _bury(source: OpenedSource, batch: RawBatch, refused: pl.DataFrame, intake: Intake) -> None:
    if not refused.height:
        return
    intake.counts["dead"] += refused["row"].n_unique()
    intake.counts.update(by_kind(refused))
    intake.counts["damaged"] += batch.is_damage * refused["row"].n_unique()
    limits, stored = Limits.from_environment(), Counter[int]()
    per_request = limits.dead_letters_per_request if batch.request is not None else limits.dead_letters_per_batch
    for row, at_field, reason in refused.iter_rows():
        request = 0 if batch.request is None else batch.request(row)
        stored[request] += 1
        if stored[request] > per_request:
            intake.counts[DROPPED] += 1
            continue
        intake.dead.append(_letter(source, batch, row, at_field, reason))


def _letter(source: OpenedSource, batch: RawBatch, row: int, at_field: str, reason: str) -> DeadLetter:
    raw = batch.text(row)
    return DeadLetter(
        source.dataset,
        source.source,
        batch.where(row),
        reason,
        raw[:RAW_LIMIT],
        len(raw),
        at_field,
        origin=origin_of(source),
    )


@lru_cache(maxsize=4)
def sources_of(deployment: Deployment, revision: int) -> dict[tuple[str, int], OpenedSource]:
    """Return the sources of a revision, by their datasets and ordinals."""
    opened = open_sources(deployment.directory, deployment.graph(revision))
    return {(each.dataset, each.source): each for each in opened}
