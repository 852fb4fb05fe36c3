"""Folding ranges of states: one state for each question, from the states in its range."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from umbel.operators import runs
from umbel.operators.partials import Partials
from umbel.operators.runs import Flags, Ints
from umbel.types.schema import WEIGHT

PAIRS = 4_000_000
"""How many pairs of a question and a state are looked at together."""
ASKER = "_key_asker"

Counted = Callable[[Ints, Ints], Flags]
"""Says of pairs, given as positions of the questions and of the states, which ones count."""


def fold(
    states: pl.DataFrame, low: Ints, high: Ints, partials: Partials, counted: Counted | None = None
) -> pl.DataFrame:
    """Return for each range [low, high) of states their merge: `_weight` and the state columns, null where there is none.

    Args:
        states: with `_weight`.
        low: one for each question.
        high: one for each question.
        partials: the states that are merged.
        counted: which states of a range count; all when None.
    """
    columns = states.select(WEIGHT, *partials.columns)
    asker = pl.lit(0, pl.Int64).alias(ASKER)
    found = [columns.clear().with_columns(asker)]
    for part in _parts(high - low):
        owner, entry = runs.expand(low[part], high[part])
        owner = owner + part.start
        if counted is not None:
            wanted = counted(owner, entry)
            owner, entry = owner[wanted], entry[wanted]
        if len(owner):
            pairs = columns[entry].with_columns(pl.Series(ASKER, owner))
            found.append(partials.merge(pairs, runs.changes(owner), [pl.col(ASKER).first(), pl.col(WEIGHT).sum()]))
    merged = pl.concat(found, rechunk=True)
    place = np.full(len(low), -1)
    place[merged[ASKER].to_numpy()] = np.arange(len(merged))
    index = pl.Series(place).set(pl.Series(place < 0), None)
    return merged.select(pl.all().gather(index)).with_columns(pl.col(WEIGHT).fill_null(0))


def _parts(sizes: Ints) -> Iterator[slice]:
    """Yield slices of the questions that have a bounded number of pairs each."""
    total = np.cumsum(np.maximum(sizes, 0))
    start = 0
    while start < len(sizes):
        done = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + PAIRS, "right")))
        yield slice(start, stop)
        start = stop
