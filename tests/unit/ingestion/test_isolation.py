"""Rows at which validation raises are rejected, and no others."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from tests.seeds import new_seed
from umbel.errors import InvalidValue
from umbel.ingestion import isolation
from umbel.ingestion.isolation import RowIsolation
from umbel.types.raw import Raw, from_records, rejects
from umbel.types.validate import Validated

HEIGHT = 1000


def applied_to(raw: Raw, poison: set[int], error: BaseException) -> Validated:
    """Return the even rows accepted and the odd ones rejected; raises at poison."""

    def apply(part: Raw) -> Validated:
        numbers = part.frame["n"].to_list()
        if poison & set(numbers):
            raise error
        odd = {row: "odd" for row, number in enumerate(numbers) if number % 2}
        good = [row for row in range(len(numbers)) if row not in odd]
        return Validated(part.frame[good], pl.Series(good, dtype=pl.UInt32), rejects(odd, "n"))

    return RowIsolation(apply).applied(raw)


@pytest.mark.parametrize(
    "error", [TypeError("unhashable"), OverflowError(), pl.exceptions.PanicException("no")], ids=repr
)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_only_the_rows_that_raise_are_lost(error: BaseException, count: int) -> None:
    poison = set(random.Random(new_seed()).sample(range(HEIGHT), count))
    found = applied_to(from_records([{"n": number} for number in range(HEIGHT)]), poison, error)
    assert found.accepted.to_list() == found.frame["n"].to_list() == [n for n in range(0, HEIGHT, 2) if n not in poison]
    refused = dict(found.rejects.select("row", "reason").iter_rows())
    assert refused.keys() == set(range(1, HEIGHT, 2)) | poison
    assert all(refused[row].startswith(type(error).__name__) for row in poison)


def test_when_all_raise_the_tries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "TRIES", 20)
    found = applied_to(from_records([{"n": number} for number in range(HEIGHT)]), set(range(HEIGHT)), ValueError("no"))
    assert found.accepted.is_empty()
    assert found.rejects["row"].sort().to_list() == [*range(HEIGHT)]


@pytest.mark.parametrize("error", [InvalidValue("a definition"), OSError("a file"), MemoryError(), KeyboardInterrupt()])
def test_other_errors_are_those_of_the_batch(error: BaseException) -> None:
    with pytest.raises(type(error)):
        applied_to(from_records([{"n": 1}, {"n": 2}]), {1}, error)


def test_parts_of_rows() -> None:
    frame = pl.DataFrame({"n": [*range(10)]})
    errors, deletions, late = rejects({2: "a", 5: "b"}), {3: None, 6: None}, frame["n"] > 4
    raw = Raw(frame, errors, deletions, frame["n"], late, {}, [*range(10)], is_sparse=True)
    part: Any = isolation.part_of(raw, 3, 4)
    assert part.replaces.to_list() == [False, False, True, True]
    assert part.frame["n"].to_list() == part.starts.to_list() == part.objects == [3, 4, 5, 6]
    assert (part.rejects["row"].to_list(), part.deletions, part.is_sparse) == ([2], {0: None, 3: None}, True)
