"""Extractors that follow each other, called together.

They take one message to another process instead of one each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import polars as pl

from umbel.query.functions import FunctionStep
from umbel.query.rows import QueryRows
from umbel.query.session import QuerySession
from umbel.query.steps import Step

MOST_ROWS = 100
"""Rows up to which extractors are called together; with more, what counts is their own time."""


@dataclass(frozen=True, slots=True)
class GroupCall:
    """The arguments of a call of several extractors.

    Args:
        at: the instant of each row.
        columns: the columns that are read, but for those that an extractor of the group returns.
        requested: for each extractor, the features that are not known already.
    """

    at: pl.Series
    columns: Mapping[str, pl.Series]
    requested: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ExtractorGroup(Step):
    """The calls of extractors, one after the other.

    Args:
        steps: the calls; later ones may read what earlier ones return.
    """

    steps: tuple[FunctionStep, ...]

    is_rowwise: ClassVar[bool] = False

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        caller = session.caller
        is_small = 0 < rows.height <= MOST_ROWS
        found = caller.compute_group(self, self._call(rows), session) if caller is not None and is_small else None
        if found is None:
            for step in self.steps:
                step.run(rows, session)
            return
        rows.add_computed(found)

    def _call(self, rows: QueryRows) -> GroupCall:
        requested = tuple(step.requested(rows) for step in self.steps)
        made = {fqn for names in requested for fqn in names}
        read = {each.source for step in self.steps for each in step.arguments} - made
        return GroupCall(rows.at, {name: rows.series(name) for name in read}, requested)


def grouped(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps, with the calls of extractors that follow each other as one step."""
    for are_calls, run in groupby(steps, lambda step: isinstance(step, FunctionStep)):
        found = list(run)
        if are_calls and len(found) > 1:
            yield ExtractorGroup(tuple(step for step in found if isinstance(step, FunctionStep)))
        else:
            yield from found
