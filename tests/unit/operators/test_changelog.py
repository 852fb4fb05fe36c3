"""Changelog: inserts and deletes of a table as rows, in any batches and whenever rows take effect."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import polars as pl
import pytest

from tests.aggregating import Job
from tests.unit.operators.frames import EPOCH, changes, day, leaf, schema
from umbel.operators.changelog import Changelog
from umbel.types.dtypes import Bool, Int

TABLE = schema({"k": int}, v=int)
Row = tuple[int, int, float, float, int]
"""Key, value, timestamp, effect, weight."""

REPLACED: tuple[Row, ...] = ((1, 2, 0, 0, 1), (1, 2, 0, 1, -1), (1, 1, 1, 1, 1))
LATE: tuple[Row, ...] = ((1, 2, 0, 0, 1), (1, 2, 0, 1, -1), (1, 1, 0, 1, 1))
"""The second row has the timestamp of the first: it was made then, and written a day later."""


def job(*, marks_deletes: bool = True) -> Job:
    table = leaf(TABLE, appends=False)
    return Job(Changelog(parents=(table,), marker="m", marks_deletes=marks_deletes))


def frame(*rows: Row) -> pl.DataFrame:
    """Return changes; the place of a row in its source is its value."""
    return changes(TABLE, *rows).with_columns(pl.col("v").alias("_seq"))


def events(found: Job) -> list[tuple[int, int, bool, float, int]]:
    """Return the net events: key, value, marker, day, weight."""
    net = pl.concat(found.emitted).group_by("k", "v", "m", "t", "_at", "_seq").agg(pl.col("_weight").sum())
    assert (net["t"] == net["_at"]).all()
    days = ((pl.col("_at") - EPOCH) / timedelta(days=1)).alias("_at")
    return sorted(net.filter(pl.col("_weight") != 0).with_columns(days).select("k", "v", "m", "_at", "_weight").rows())


@pytest.mark.parametrize("rows", [REPLACED, LATE])
@pytest.mark.parametrize("marks_deletes", [True, False])
def test_events_of_inserts_and_deletes_in_any_batches(rows: tuple[Row, ...], marks_deletes: bool) -> None:
    expected = sorted((k, v, (w < 0) is marks_deletes, at, 1) for k, v, _, at, w in rows)
    for order in permutations(rows):
        one, many = job(marks_deletes=marks_deletes), job(marks_deletes=marks_deletes)
        one.feed(frame(*order))
        for row in order:
            many.feed(frame(row))
        assert events(one) == events(many) == expected
    assert one.operator.schema.keys == ()
    assert dict(one.operator.schema.values) == {"k": Int(), "v": Int(), "m": Bool()}


@pytest.mark.parametrize("rows", [REPLACED, LATE])
def test_corrections_revoke_events(rows: tuple[Row, ...]) -> None:
    """Also of a row that took effect after its timestamp: its begin looked like the correction of an end."""
    found = job()
    found.feed(frame(*rows))
    found.feed(frame(*((*row[:4], -row[4]) for row in rows[1:])))
    assert events(found) == [(1, 2, False, 0, 1)]
    found.feed(frame(*((*row[:4], -row[4]) for row in rows[:1])))
    assert events(found) == []


def test_what_is_final_is_forgotten() -> None:
    found = job()
    found.feed(frame(*LATE), watermark=day(1))
    assert len(found.table("later")) == 1
    found.feed(frame((2, 1, 3, 3, 1)), watermark=day(2))
    assert found.table("later") == []
    assert len(events(found)) == 4
