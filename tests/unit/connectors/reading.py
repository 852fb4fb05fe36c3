"""Reads a source whole, as the job does: plan by plan, split by split, judged against a schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import polars as pl

from tests.deployed import wait_until
from umbel.connectors.splits import SplitSource
from umbel.errors import Transient
from umbel.types.dtype import DType
from umbel.types.validate import validate


@dataclass
class Read:
    """What came of a source.

    Args:
        rows: the good rows as dictionaries, by their number.
        dead: (place, reason, bytes) of the others, by their number.
        position: where the plans ended.
        counts: further counts of the source.
        places: where the good rows are, by their number.
        landmarks: from which positions are counted: the number of each by its text.
    """

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    dead: dict[int, tuple[str, str, bytes]] = field(default_factory=dict)
    position: Any = None
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[int, str] = field(default_factory=dict)
    landmarks: dict[str, int] = field(default_factory=dict)

    def locations(self, source: SplitSource) -> dict[int, str]:
        """Return where a source says that the good rows are, by numbers and landmarks alone."""
        known = sorted((number, text) for text, number in self.landmarks.items())
        before = {row: [each for each in known if each[0] <= row] for row in self.rows}
        return {row: source.location_of(row, each[-1] if each else None) for row, each in before.items()}

    def values(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for _, row in sorted(self.rows.items())]

    def reasons(self) -> list[str]:
        return [reason for _, (_, reason, _) in sorted(self.dead.items())]


def read(
    source: SplitSource,
    schema: Mapping[str, DType],
    *,
    budget: int | Sequence[int] = 1 << 40,
    exact: bool = True,
    into: Read | None = None,
) -> Read:
    """Read everything that is new; no number may come twice. Of several budgets, each plan has the next."""
    found = into or Read()
    for each in cycle((budget,) if isinstance(budget, int) else budget):
        splits, found.position = source.plan(found.position, each)
        for split, weight in splits:
            assert weight >= 0
            _take(source, split, schema, found, exact=exact)
        if not splits:
            break
    return found


def read_until(
    source: SplitSource, schema: Mapping[str, DType], found: Read, condition: Callable[[], bool], within: float
) -> None:
    """Read what is new until a condition is true; a source that does not answer is asked again, as the job does."""

    def is_true() -> bool:
        with suppress(Transient):
            read(source, schema, into=found)
        return condition()

    wait_until(is_true, lambda: (found.position, found.reasons()), within)


def _take(source: SplitSource, split: Any, schema: Mapping[str, DType], found: Read, *, exact: bool) -> None:
    if (landmark := source.landmark_of(split)) is not None:
        number, text = landmark
        found.landmarks[text] = min(number, found.landmarks.get(text, number))
    for batch in source.open(split, schema, exact=exact):
        found.counts.update(batch.counts)
        judged = validate(batch.raw.frame, schema, refused=batch.raw.rejects)
        for number, row in zip(batch.numbers(judged.accepted), judged.frame.iter_rows(named=True), strict=True):
            assert number not in found.rows, number
            assert number not in found.dead, number
            found.rows[number], found.places[number] = row, batch.where(batch.row(number))
        for row, at_field, reason in judged.rejects.iter_rows():
            number = batch.numbers(pl.Series([row]))[0]
            assert batch.row(number) == row
            assert number not in found.rows
            text = f"{at_field}: {reason}" if at_field else reason
            found.dead.setdefault(number, (batch.where(row), text, batch.text(row)))
