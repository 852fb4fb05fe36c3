"""Orders of rows, and equal rows among those of one position, also where they share a hash."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from umbel.changes.numbered import LOWEST, identities, order_by_sequence

ROWS = pl.DataFrame({"v": [1, 2, 1, None, None, 2, 1], "f": [0.0, 1.0, -0.0, float("nan"), float("nan"), 1.0, 0.5]})
SAME = np.zeros(7, np.int64)


def distinct(position: np.ndarray) -> list[list[int]]:
    order, starts = identities(ROWS, ROWS.columns, np.arange(7), position, SAME)
    return sorted(sorted(each.tolist()) for each in np.split(order, starts[1:]))


@pytest.mark.parametrize("collides", [False, True])
def test_equal_rows_are_found_whatever_their_hashes(collides: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if collides:
        monkeypatch.setattr(pl.DataFrame, "hash_rows", lambda frame: pl.Series(np.zeros(frame.height, np.uint64)))
    assert distinct(SAME) == [[0, 2], [1, 5], [3, 4], [6]]
    assert distinct(np.arange(7) % 2) == [[0, 2], [1, 5], [3], [4], [6]]


def test_no_rows_have_no_identities() -> None:
    nothing = np.zeros(0, np.int64)
    order, starts = identities(ROWS.clear(), ROWS.columns, nothing, nothing, nothing)
    assert (len(order), len(starts)) == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 7, 5_000])
def test_rows_at_one_position_are_in_order_of_their_sequence(size: int) -> None:
    random = np.random.default_rng(size)
    owners, times = random.integers(0, size // 3 + 1, size), random.integers(0, 3, size)
    for sequence in (np.arange(size), random.integers(0, 4, size), random.choice([LOWEST, 0, 2**62], size)):
        expected = np.lexsort((sequence, times, owners))
        assert order_by_sequence(sequence, owners, times).tolist() == expected.tolist()
