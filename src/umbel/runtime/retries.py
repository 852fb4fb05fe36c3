"""Batches that end the worker each time are taken back, and read in parts.

A plan says what a batch reads, also when it is run again. If that takes more memory than there is, the batch would end the worker
again and again. So one that has done so twice is taken back: what it stored is undone, it is run without input, and what it
was to read is planned anew, an eighth of it at a time. An error that the worker reports has another cause, such as a bucket that
is away: a smaller batch would fail as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from umbel.catalog.catalog import Catalog, JobEpoch
from umbel.graph.threads import in_threads
from umbel.runtime.batch_sizes import GROWTH
from umbel.runtime.deployment import JOB
from umbel.runtime.postponing import planned_parts
from umbel.runtime.reporting import report_event

if TYPE_CHECKING:
    from umbel.graph.graph import Graph
    from umbel.runtime.batch import MicroBatch
    from umbel.state.port import Stamp, Store

RETRIED = "retried plan"
"""The setting with the number of the plan that was run again last, and how often it has ended the worker."""
EXCUSED = "excused worker"
"""The setting with the epoch of the last worker whose batch failed with an error."""
LOST = ("MemoryError", "ExecutorLostFailure", "exited unexpectedly")
"""What the errors say of batches that took too much, in this process or in another one: Java's, Python's and Spark's words."""
ENDED = 2
"""How often a batch has ended the worker before it is taken back."""
BOUND = 4
"""The batches after one that is taken back have at most one part in so many of its size."""
LEAST = 1 << 10
"""Bytes of input that are not divided further: some rows, each of which may make hundreds of windows."""
SLOWLY = 64
"""By one part in so many the largest size of a batch grows with each large one, after one has ended the worker."""


def smaller(batch: MicroBatch, *, is_new: bool) -> MicroBatch:
    """Return a batch, without input if it has ended the worker twice.

    Args:
        batch: the batch.
        is_new: whether it is run for the first time.
    """
    if is_new or _is_finished(batch):
        return batch
    ended, limit = _noted(batch), _limit(batch)
    has_parts = limit < batch.plan.size and not all(split.is_replay for split in batch.plan.splits)
    if ended < ENDED or not has_parts or _is_logged(batch):
        return batch
    ends = f"batch {batch.stamp.batch} has ended the worker {ended} times"
    warn(batch.deployment.catalog, ends, f"{batch.plan.size:,} bytes of input", limit)
    _undo(batch)
    parts = planned_parts(batch)
    with batch.deployment.catalog.without_successor(JobEpoch(JOB, batch.stamp.epoch)):
        plan = batch.deployment.plans().take_out(batch.plan, *parts)
    return replace(batch.planned_anew(plan), limit=limit, most=max(limit, _read(batch) // BOUND))


def warn(catalog: Catalog, ends: str, content: str, limit: int) -> None:
    """Report that something is read in smaller parts, in the log and to `umbel status`.

    Args:
        catalog: of the deployment.
        ends: says what has ended the worker, and how often.
        content: what it was to read.
        limit: about how much of it is read at a time.
    """
    text = f"{ends}; its {content} are read again, about {limit:,} at a time. If memory was short, give the worker more of it"
    report_event(catalog, text)


@contextmanager
def excusing(catalog: Catalog, epoch: int) -> Iterator[None]:
    """Note errors of batches in a block that smaller ones would have, too.

    Args:
        catalog: of the deployment.
        epoch: of the worker.
    """
    try:
        yield
    except Exception as error:
        if not has_lost(error):
            excuse(catalog, epoch)
        raise


def excuse(catalog: Catalog, epoch: int) -> None:
    """Note that what a worker runs is no reason for its end."""
    with suppress(Exception):  # the catalog may be what failed
        catalog.note(EXCUSED, epoch)


def has_lost(error: BaseException) -> bool:
    """Return whether an error tells of short memory or a lost process."""
    text = f"{type(error).__name__}: {error}"  # Spark's are long, and say it at their end
    return any(each in text for each in LOST)


def most_after(batch: MicroBatch) -> int | None:
    """Return the most bytes of a batch after this one, None without a bound."""
    return None if batch.most is None else grown(batch.most, batch.plan.size, batch.deployment.budget)


def grown(most: int, size: int, full: int) -> int | None:
    """Return the largest size after something of a size was run; None without a bound.

    It grows with each that had nearly as much: the worker may have more memory by now.

    Args:
        most: the largest size before.
        size: of what was run.
        full: the largest size where nothing has ended the worker.
    """
    if 2 * size < most:
        return most
    larger = most + max(1, most // SLOWLY)
    return larger if larger < full else None


def _noted(batch: MicroBatch) -> int:
    """Note that a batch is run again; return how often it has ended the worker."""
    catalog, number = batch.deployment.catalog, batch.plan.number
    plan, begun = catalog.noted(RETRIED) or (0, 0)
    is_excused = catalog.noted(EXCUSED) == batch.stamp.epoch - 1
    begun = (begun if plan == number else 0) + (not is_excused)
    catalog.note(RETRIED, [number, begun], JobEpoch(JOB, batch.stamp.epoch))
    return int(begun)


def _limit(batch: MicroBatch) -> int:
    """Return about how many bytes the next batches may read instead."""
    return max(LEAST, _read(batch) // GROWTH)


def _read(batch: MicroBatch) -> int:
    """Return about how many bytes a batch was to read.

    A packed file may be larger than the limit.
    """
    return min(batch.limit, batch.plan.size)


def _is_finished(batch: MicroBatch) -> bool:
    """Return whether the batch was finished, which Spark has not noted: sinks may have it."""
    last = batch.deployment.catalog.progress(JOB, sys.maxsize)
    return last is not None and last.number >= batch.stamp.batch


def _is_logged(batch: MicroBatch) -> bool:
    """Return whether the table of a change log has the batch."""
    changes, number = batch.deployment.changes, batch.stamp.batch
    return any(changes.has(node, number) for node in batch.graph.nodes if node.is_logged)


def _undo(batch: MicroBatch) -> None:
    """Replace what the batch stored by nothing, in all shards and change logs.

    Tasks of an earlier worker that still run are refused from now on.
    """
    store, graph = batch.deployment.store, batch.graph
    for node in graph.nodes:
        if node.is_logged:
            batch.deployment.changes.undo(node, batch.stamp.batch)
    undo(store, graph, batch.stamp)


def undo(store: Store, graph: Graph, stamp: Stamp, state_ids: AbstractSet[str] | None = None) -> None:
    """Replace what was stored with a batch number by nothing, in all shards.

    Args:
        store: of the deployment.
        graph: the operators.
        stamp: the number, and the epoch of this worker.
        state_ids: those of the operators that stored it; None for all.
    """
    for number in range(1, graph.depth + 1):
        stored = [each.state_id for each in graph.stage(number) if state_ids is None or each.state_id in state_ids]
        if stored:
            in_threads(partial(_emptied, store, stamp, stored), range(store.shards))


def _emptied(store: Store, stamp: Stamp, state_ids: list[str], shard: int) -> None:
    with store.transaction(shard, state_ids, stamp):
        pass
