"""Runs and ranges of sorted arrays, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from umbel.changes import runs


def test_changes_and_numbers() -> None:
    ids, at = np.array([1, 1, 1, 2, 2]), np.array([5, 5, 6, 6, 6])
    begins = runs.changes(ids, at)
    assert begins.tolist() == [True, False, True, True, False]
    assert runs.numbers(begins).tolist() == [0, 0, 1, 2, 2]
    assert runs.lengths(begins).tolist() == [2, 1, 2]
    assert runs.lengths(runs.changes(np.array([], np.int64))).tolist() == []


def test_key_changes_sees_every_column_and_null() -> None:
    rows = pl.DataFrame({"a": [1, 1, 1, None, None], "b": ["x", "x", "y", "y", "y"]})
    assert runs.key_changes(rows, ["a", "b"]).tolist() == [True, False, True, True, False]
    assert runs.key_changes(rows.clear(), ["a"]).tolist() == []


def test_expand() -> None:
    owner, place = runs.expand(np.array([3, 7, 0]), np.array([5, 7, 1]))
    assert owner.tolist() == [0, 0, 2]
    assert place.tolist() == [3, 4, 0]


def test_search_agrees_with_a_loop() -> None:
    rng = np.random.default_rng(1)
    slots = np.sort(rng.integers(0, 5, 60))
    instants = rng.integers(-20, 20, 60)
    instants = instants[np.lexsort((instants, slots))]
    search = runs.Sorted(slots, instants)
    slots_requested, requested = rng.integers(0, 6, 200), rng.integers(-25, 25, 200)
    pairs = list(zip(slots, instants, strict=True))
    for slot, at, found, after in zip(
        slots_requested,
        requested,
        search.first_at_or_after(slots_requested, requested),
        search.first_after(slots_requested, requested),
        strict=True,
    ):
        assert found == sum(pair < (slot, at) for pair in pairs)
        assert after == sum(pair <= (slot, at) for pair in pairs)


def test_search_in_nothing_finds_its_begin() -> None:
    nothing = np.array([], np.int64)
    search = runs.Sorted(nothing, nothing)
    assert search.first_at_or_after(np.array([0, 3]), np.array([1, 1])).tolist() == [0, 0]
    assert search.first_after(np.array([0, 3]), np.array([1, 1])).tolist() == [0, 0]


@pytest.mark.parametrize("span", [1, 20, 2**50, 2**61])
def test_pairs_are_sorted_whatever_their_span(span: int) -> None:
    rng = np.random.default_rng(2)
    slots, instants = rng.choice([0, 3, 4, 9], 300), rng.integers(-span, span, 300)
    expected = sorted(zip(slots.tolist(), instants.tolist(), strict=True))
    found = runs.sorted_pairs(slots, instants)
    assert list(zip(*(each.tolist() for each in found), strict=True)) == expected


def test_no_pairs_are_sorted() -> None:
    nothing = np.array([], np.int64)
    assert [each.tolist() for each in runs.sorted_pairs(nothing, nothing)] == [[], []]


@pytest.mark.parametrize(
    "texts", [["b", "", "Z", "ä", "bb"], ["b", None, "a"], [str(number) for number in range(9_000)]]
)
def test_rows_are_ordered_by_texts(texts: list[str | None]) -> None:
    rng = np.random.default_rng(4)
    rows = pl.DataFrame({"text": rng.choice(np.array(texts, object), 9_000), "at": rng.integers(0, 1 << 40, 9_000)})
    rows = rows.cast({"text": pl.String}).unique(["text", "at"]).with_row_index("row")
    assert runs.ordered(rows, ["text", "at"]).equals(rows.sort("text", "at"))


@pytest.mark.parametrize("span", [1, 20, 2**50, 2**62])
def test_the_maximum_begins_anew_with_each_slot(span: int) -> None:
    rng = np.random.default_rng(3)
    slots, values = np.sort(rng.choice([0, 3, 4, 9], 300)).astype(np.uint32), rng.integers(-span, span, 300)
    expected = [int(values[: row + 1][slots[: row + 1] == slots[row]].max()) for row in range(300)]
    assert runs.running_maximum(slots, values).tolist() == expected
    assert runs.running_maximum(slots[:0], values[:0]).tolist() == []


def test_rows_in_order_are_returned_as_they_are() -> None:
    frame = pl.DataFrame({"a": [1, 1, 2], "b": [0, 0, -5]})
    assert runs.ordered(frame, ["a", "b"]) is frame


@pytest.mark.parametrize("numbers", [range(300), [0] * 300, [5, 3] * 150])
def test_rows_in_the_order_of_their_last_columns_are_sorted_by_the_first(numbers: Any) -> None:
    rng = np.random.default_rng(5)
    frame = pl.DataFrame({"a": rng.integers(0, 9, 300), "b": list(numbers), "c": range(300)})
    expected = frame.sort("a", "b", "c", maintain_order=True)
    assert runs.ordered(frame, ["a", "b", "c"]).equals(expected)
    assert runs.ordered(frame[::-1], ["a", "b", "c"]).equals(expected)


def test_nulls_and_texts_are_no_columns_in_order() -> None:
    frame = pl.DataFrame({"a": [2, 1, 1], "b": [1, None, 3], "c": ["x", "y", "z"]})
    assert runs.ordered(frame, ["a", "b"])["b"].to_list() == [None, 3, 1]
    assert runs.ordered(frame, ["a", "c"])["c"].to_list() == ["y", "z", "x"]
