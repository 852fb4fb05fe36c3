"""Orders of rows are those of a stable sort, whatever the order they come in."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from umbel.log.change_files import in_order
from umbel.state.runs import sorting
from umbel.state.runs.sorting import COMPARED, MANY, SHARE, gathered, order_of, order_of_numbers
from umbel.types.schema import AT, SEQ

SIZE = 9 * COMPARED
RANDOM = np.random.default_rng(7)


def _late(share: float) -> np.ndarray:
    numbers = np.arange(SIZE) * 1_000 + (1 << 40)
    late = RANDOM.random(SIZE) < share
    numbers[late] -= RANDOM.integers(0, 1 << 40, late.sum())
    return numbers


NUMBERS = {
    "sorted": np.arange(SIZE),
    "equal": np.zeros(SIZE, np.int64),
    "reversed": np.arange(SIZE)[::-1].copy(),
    "sorted first": np.concatenate([np.arange(SIZE // 3), RANDOM.integers(0, 1 << 62, SIZE - SIZE // 3)]),
    "a few sorted sequences": np.sort(RANDOM.integers(0, 1 << 62, (3, SIZE // 3))).ravel(),
    "sorted but for the last": np.append(np.arange(1, SIZE), 0),
    "5 % late": _late(0.05),
    "half late": _late(0.5),
    "random": RANDOM.integers(0, 1 << 62, SIZE),
    "few distinct": RANDOM.integers(0, 3, SIZE),
    "few distinct and large": RANDOM.integers(0, 3, SIZE) << 61,
    "hashes": RANDOM.integers(0, 1 << 64, SIZE, dtype=np.uint64),
    "equal hashes": RANDOM.integers((1 << 64) - 3, 1 << 64, SIZE, dtype=np.uint64),
    "as many bits as have room": RANDOM.integers(0, 1 << (63 - (SIZE - 1).bit_length()), SIZE),
    "one bit more": RANDOM.integers(0, 1 << (64 - (SIZE - 1).bit_length()), SIZE),
    "some share their first bits": np.where(
        RANDOM.random(SIZE) < 0.2, RANDOM.integers(0, 1 << 10, SIZE), _late(1) << 21
    ),
    "all share their first bits": RANDOM.integers(0, 3, SIZE) << 61 | RANDOM.integers(0, 1 << 10, SIZE),
    "none": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("sort", sorting.SORTS)
def test_orders_are_stable(kind: str, sort: sorting.Sort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_fastest", lambda: sort)
    numbers = NUMBERS[kind]
    assert order_of_numbers(numbers).tolist() == numbers.argsort(kind="stable").tolist()


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("first", ["few distinct", "random", "of both signs"])
def test_orders_by_several_columns_are_stable(kind: str, first: str) -> None:
    second = NUMBERS[kind].astype(np.int64)  # hashes wrap around: they are of both signs
    signed = RANDOM.integers(-(1 << 63), (1 << 63) - 1, 5)[RANDOM.integers(0, 5, len(second))]
    columns = (signed if first == "of both signs" else NUMBERS[first][: len(second)], second)
    for each in (columns, columns[::-1], (*columns, columns[0] >> 60)):
        assert order_of(*each).tolist() == np.lexsort(each[::-1]).tolist()


@pytest.mark.parametrize("kind", NUMBERS)
def test_changes_are_in_order_of_instants_and_numbers(kind: str) -> None:
    instants = pl.Series(AT, NUMBERS[kind].astype(np.int64) >> 1).cast(pl.Datetime("us", "UTC"))
    for numbers in (np.arange(len(instants)), np.arange(len(instants))[::-1].copy()):
        changes = pl.DataFrame({AT: instants, SEQ: numbers})
        assert in_order(changes).equals(changes.sort(AT, SEQ, maintain_order=True))


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("as many bits as have room", [SIZE]),
        ("hashes", [SIZE]),
        ("few distinct and large", [SIZE]),
        ("some share their first bits", [SIZE, -1]),
        ("all share their first bits", [SIZE, SIZE, SIZE]),
    ],
)
def test_numbers_are_sorted_by_their_last_bits_where_the_first_are_equal(
    kind: str, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, by_digits = list[int](), sorting._order_of_digits

    def noted(numbers: np.ndarray, begin: int, bits: int) -> np.ndarray:
        sizes.append(len(numbers))
        return by_digits(numbers, begin, bits)

    monkeypatch.setattr(sorting, "_order_of_digits", noted)
    order_of_numbers(NUMBERS[kind])
    assert [size if size == SIZE else -1 for size in sizes] == passes


@pytest.mark.parametrize("share", [1, SHARE, 2 * SHARE])
def test_many_rows_are_gathered_from_one_chunk(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = share * MANY // 2
    numbers = pl.Series("number", RANDOM.integers(0, 1 << 40, size))
    part = pl.DataFrame([numbers, numbers.cast(pl.String).set(numbers % 3 == 0, None).alias("text")])
    rows = pl.DataFrame([pl.Series("first", np.arange(2 * size)), *pl.concat([part, part]).iter_columns()])
    places = RANDOM.permutation(2 * size)[:MANY]
    chunks, select = list[int](), pl.DataFrame.__getitem__

    def noted(frame: pl.DataFrame, key: Any) -> Any:
        chunks.append(max(frame.n_chunks("all")))
        return select(frame, key)

    monkeypatch.setattr(pl.DataFrame, "__getitem__", noted)
    found = gathered(rows, places)
    assert set(chunks) == ({1} if share <= SHARE else {2})
    monkeypatch.undo()
    assert found.equals(rows.rechunk()[places])


def test_no_columns_are_gathered() -> None:
    assert gathered(pl.DataFrame(), np.zeros(0, np.int64)).shape == (0, 0)
