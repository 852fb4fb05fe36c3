"""Parts of the changes for a sink: of several small batches, or a backfill step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from umbel.log.change_tail import BATCH

BACKFILL = -1
"""The batch that all steps of a backfill are for a sink; in the change log each has a number below it."""


@dataclass(frozen=True, slots=True)
class SinkRange:
    """Batches to write.

    Args:
        last: the last of them.
        is_split: whether there are several transactions; None if that depends on their size.
        is_grouped: whether one of these may be of several batches; they were not, in older versions.
    """

    last: int
    is_split: bool | None = None
    is_grouped: bool = False


@dataclass(frozen=True, slots=True)
class SinkPart:
    """Changes that are made rows of at once.

    Args:
        batch: the last batch they are of.
        is_one: whether they are of this one only.
        is_last: whether they are the last ones of it: a backfill has several parts.
        changes: the changes.
    """

    batch: int
    is_one: bool
    is_last: bool
    changes: pl.DataFrame


def sink_parts(frames: Iterable[pl.DataFrame], alone: int | None, at_once: int) -> Iterator[SinkPart]:
    """Yield the changes of each batch, or of several small ones together.

    Those of a backfill are several parts, one for each step.

    Args:
        frames: changes, in order of the batches.
        alone: a batch that is a part of its own.
        at_once: the most changes of several batches.
    """
    batch, waiting, rows = BACKFILL, list[pl.DataFrame](), 0
    for number, changes in _batches(frames):
        if waiting and (batch in {BACKFILL, alone} or rows + changes.height > at_once):
            yield SinkPart(batch, len(waiting) == 1, batch < number, pl.concat(waiting))
            waiting, rows = [], 0
        batch, rows = max(number, BACKFILL), rows + changes.height
        waiting.append(changes)
    if waiting:
        yield SinkPart(batch, len(waiting) == 1, True, pl.concat(waiting))


def _batches(frames: Iterable[pl.DataFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each number of a batch or backfill step with its changes."""
    for frame in frames:
        for (number,), changes in sorted(frame.partition_by(BATCH, as_dict=True).items()):
            yield number, changes
