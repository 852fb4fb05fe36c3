"""Ranges of a number of bytes, whatever the sizes of a partition's records do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from umbel.connectors.kafka import record_sizes
from umbel.connectors.kafka.fetching import OutOfRange
from umbel.connectors.kafka.record_sizes import GUESS, LONG, MEASURED, fitting
from umbel.errors import Transient

BUDGET = 1_000_000
PARTITION = ("id", "topic", 0)


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_sizes, "_sizes", {})


def measuring(sizes: Sequence[int], calls: list[int]) -> Callable[[int], int]:
    def measure(offset: int) -> int:
        calls.append(offset)
        found = sizes[offset : offset + MEASURED]
        return sum(found) // len(found)

    return measure


def ranges(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the ranges of all records, and how often sizes were measured for each."""
    found, begin = list[tuple[int, int, int]](), 0
    while begin < len(sizes):
        calls = list[int]()
        end, _ = fitting(PARTITION, begin, len(sizes), BUDGET, measuring(sizes, calls))
        assert begin < end <= len(sizes)
        found.append((begin, end, len(calls)))
        begin = end
    return found


def test_equal_records_are_measured_once_a_range() -> None:
    found = ranges([100] * 100_000)
    assert [end for _, end, _ in found] == [*range(10_000, 100_001, 10_000)]
    assert [calls for *_, calls in found] == [2] + [1] * 9


@pytest.mark.parametrize("first", [0, 1, 201, 2_500, 30_000])
@pytest.mark.parametrize("small", [60, 1_000])
def test_larger_ones_later_make_shorter_ranges(first: int, small: int) -> None:
    sizes = [small] * first + [100_000] * 5_000
    found = ranges(sizes)
    large = [each for begin, end, _ in found if (each := sum(sizes[begin:end])) > 2 * BUDGET]
    assert len(large) <= 4  # those that begin with small ones
    assert max(large, default=0) <= LONG * 100_000
    assert len(found) < 500 + 30
    assert max(calls for *_, calls in found) < 20


def test_smaller_ones_later_make_longer_ranges() -> None:
    sizes = [100_000] * 1_000 + [60] * 50_000
    found = ranges(sizes)
    assert len(found) < 100 + 30
    assert max(sum(sizes[begin:end]) for begin, end, _ in found) < 2 * BUDGET


def test_sizes_that_grow_slowly() -> None:
    sizes = [100 + number // 20 for number in range(40_000)]
    found = ranges(sizes)
    assert max(sum(sizes[begin:end]) for begin, end, _ in found) <= 2 * BUDGET
    assert len(found) < 100


def test_any_sizes_end() -> None:
    chance = Random(7)
    for _ in range(50):
        sizes = [each for _ in range(20) for each in [chance.choice([1, 40, 900, 70_000])] * chance.randrange(1, 900)]
        assert ranges(sizes)[-1][1] == len(sizes)


def test_a_short_rest_is_not_measured() -> None:
    assert fitting(PARTITION, 5, 5 + MEASURED, BUDGET, lambda _: 1 // 0) == (5 + MEASURED, GUESS)
    assert fitting(PARTITION, 5, 5 + MEASURED, 1, lambda _: 1 // 0) == (6, GUESS)


@pytest.mark.parametrize("error", [OutOfRange("gone"), Transient("no answer")])
def test_sizes_that_cannot_be_measured_are_guessed(error: Exception) -> None:
    def measure(_: int) -> int:
        raise error

    assert fitting(PARTITION, 0, 100_000, BUDGET, measure) == (BUDGET // GUESS, GUESS)
