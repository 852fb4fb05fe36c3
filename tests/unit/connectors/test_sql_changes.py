"""Deletions of rows that are inserted again, also where several transactions have one instant."""

from __future__ import annotations

import random

import pytest

from umbel.connectors.sql.changes import Deletions

KEY = (1,)


def test_a_row_begins_after_its_deletion() -> None:
    deletions = Deletions()
    assert deletions.undone(KEY, 10) is None
    assert deletions.add(KEY, 10) == 10
    assert deletions.undone(KEY, 20) == 11
    assert deletions.undone(KEY, 30) is None


@pytest.mark.parametrize("clock", [1, 7, 1000])
def test_changes_of_one_instant_keep_their_order(clock: int) -> None:
    chance, deletions, last, is_there = random.Random(clock), Deletions(), -1, False
    for step in range(300):
        now = step // clock * clock
        if not is_there:
            at, is_there = max(deletions.undone(KEY, now) or now, now), True
        elif chance.random() < 0.4:
            at, is_there = deletions.add(KEY, now), False
        else:
            at = max(deletions.undone(KEY, now) or now, now)
        assert at >= last, step
        last = at


def test_the_oldest_is_forgotten_first() -> None:
    deletions = Deletions(limit=2)
    for key in range(3):
        deletions.add((key,), key)
    assert [deletions.undone((key,), 9) for key in range(3)] == [None, 2, 3]
