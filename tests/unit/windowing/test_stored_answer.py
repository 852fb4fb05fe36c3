"""The entries that points lie in."""

from __future__ import annotations

import random
import time

import polars as pl

from umbel.windowing.points import TIME
from umbel.windowing.stored_answer import cut_entries
from umbel.windowing.tiling import BASE, FIRST, ID, LAST, WINDOW


def entries(spans: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    types = {ID: pl.UInt32, WINDOW: pl.Int16, FIRST: pl.Int64, LAST: pl.Int64}
    return pl.DataFrame(spans, schema=types, orient="row")


def points(at: list[tuple[int, int]]) -> pl.DataFrame:
    types = {ID: pl.UInt32, TIME: pl.Int64}
    return pl.DataFrame(at, schema=types, orient="row").with_columns(pl.col(TIME).cast(pl.Datetime("us", "UTC")))


def test_an_entry_is_cut_by_a_point_from_its_first_change_to_before_its_last() -> None:
    chance = random.Random(3)
    for _ in range(200):
        spans = list[tuple[int, int, int, int]]()
        for key in range(3):
            for first in chance.sample(range(0, 60, 10), chance.randint(0, 5)):
                spans.append((key, chance.choice((BASE, 0, 1)), first, first + chance.randint(0, 9)))
        at = [(chance.randrange(3), chance.randrange(-2, 64)) for _ in range(chance.randint(1, 6))]
        found = cut_entries(entries(spans), points(at)).select(ID, WINDOW, FIRST, LAST).sort(pl.all()).rows()
        expected = {
            each
            for each in spans
            if each[1] != BASE and any(each[0] == key and each[2] <= t < each[3] for key, t in at)
        }
        assert found == sorted(expected)


def test_many_entries_and_points_of_one_key_are_not_compared_one_by_one() -> None:
    """That would be ten thousand million pairs."""
    many = 100_000
    found = entries([(0, 0, 10 * n, 10 * n + 5) for n in range(many)])
    begun = time.monotonic()
    assert cut_entries(found, points([(0, 10 * n + 2) for n in range(many)])).height == many
    assert cut_entries(found, points([(0, 10 * n + 5) for n in range(many)])).height == 0
    assert time.monotonic() - begun < 30
