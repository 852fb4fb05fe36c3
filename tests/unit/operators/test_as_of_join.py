"""The as-of join at its bounds, and the left rows that wait for the right side's watermark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from umbel.operators.index import Index, IndexMode
from umbel.operators.join import AsOfJoin
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Clock
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.dtypes import Int
from umbel.types.schema import Schema

LEFT = Schema((), (("k", Int()), ("v", Int())), "t")
RIGHT = Schema((("k", Int()),), (("r", Int()),), "rt")
MINUTE, TICK = timedelta(minutes=1), timedelta(microseconds=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Job:
    """A join over one store in memory."""

    def __init__(self, *, back: timedelta | None = None, ahead: timedelta = timedelta(0)) -> None:
        sides = tuple(Leaf(dataset=name, version=1, columns=schema) for name, schema in (("L", LEFT), ("R", RIGHT)))
        self.index = Index(parents=(sides[1],), dataset="R", mode=IndexMode.UPSERT)
        self.join = AsOfJoin(
            parents=sides,
            on=(("k", "k"),),
            inner=False,
            back=None if back is None else back // TICK,
            ahead=ahead // TICK,
            fields=("r",),
        )
        self.store, self.batch = MemoryStore(shards=1), 0

    def step(
        self, left: list[datetime], right: list[tuple[datetime, int]], watermark: datetime | None = None
    ) -> list[tuple[datetime, int | None, int]]:
        """Return the changes of a batch: the left row's instant, what it matches, and the weight."""
        self.batch += 1
        sides = self.join.parents[1].id, self.join.id
        with self.store.transaction(0, sides, Stamp(0, self.batch)) as tx:
            versions = self.index.step(
                (_changes(RIGHT, [(1, r, at) for at, r in right]),), State(tx, sides[0]), Clock()
            )
            rows = _changes(LEFT, [(1, 0, at) for at in left])
            clock = Clock() if watermark is None else Clock(parents=(None, watermark))
            found = self.join.step((rows, versions), State(tx, sides[1]), clock)
        return sorted(found.select("t", "r", "_weight").rows(), key=repr)


def _changes(schema: Schema, rows: list[tuple[int, int, datetime]]) -> pl.DataFrame:
    names = [*schema.names]
    numbered = [
        {**dict(zip(names, row, strict=True)), "_weight": 1, "_at": row[-1], "_seq": number}
        for number, row in enumerate(rows)
    ]
    return pl.DataFrame(numbered, schema=schema.changes(), orient="row")


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (NOON - 1 * MINUTE - TICK, None),
        (NOON - 1 * MINUTE, 7),  # the right row may start so far ahead
        (NOON + 2 * MINUTE, 7),  # and be so old
        (NOON + 2 * MINUTE + TICK, None),
    ],
)
def test_a_match_is_within_its_bounds_and_at_them(at: datetime, found: int | None) -> None:
    job = Job(back=2 * MINUTE, ahead=MINUTE)
    assert job.step([at], [(NOON, 7)]) == [(at, found, 1)]
    late = Job(back=2 * MINUTE, ahead=MINUTE)
    assert late.step([at], []) == [(at, None, 1)]
    corrected = [] if found is None else sorted([(at, None, -1), (at, found, 1)], key=repr)
    assert late.step([], [(NOON, 7)]) == corrected


@pytest.mark.parametrize(("behind", "is_corrected"), [(TICK, False), (timedelta(0), True), (-TICK, True)])
def test_a_left_row_waits_until_the_watermark_is_past_its_match(behind: timedelta, is_corrected: bool) -> None:
    job, at = Job(ahead=MINUTE), NOON
    assert job.step([at], []) == [(at, None, 1)]
    assert job.step([], [(NOON, 7)], watermark=at + MINUTE + behind) == [(at, 7, 1), (at, None, -1)]
    assert job.step([], [(NOON, 8)]) == ([(at, 7, -1), (at, 8, 1)] if is_corrected else [])


@pytest.mark.parametrize(("behind", "is_corrected"), [(TICK, False), (timedelta(0), True), (-TICK, True)])
def test_a_left_row_that_arrives_at_the_watermark_waits(behind: timedelta, is_corrected: bool) -> None:
    job, at = Job(ahead=MINUTE), NOON
    assert job.step([at], [], watermark=at + MINUTE + behind) == [(at, None, 1)]
    assert job.step([], [(NOON, 7)]) == ([(at, 7, 1), (at, None, -1)] if is_corrected else [])


def test_a_left_row_behind_the_watermark_is_joined_and_does_not_wait() -> None:
    job = Job()
    assert job.step([NOON], [], watermark=NOON + MINUTE) == [(NOON, None, 1)]
    assert job.step([], [(NOON, 7)]) == []
