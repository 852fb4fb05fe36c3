"""The choice among rows does not depend on the order in which they are read, on batches, or on hashes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.unit.operators.frames import changes, day, leaf, schema
from umbel.operators import choice
from umbel.operators.choice import last_of_instant
from umbel.operators.dedup import Dedup
from umbel.operators.first import First
from umbel.operators.operator import Clock
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.windows import Tumbling

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_of_rows_that_are_alike_in_key_time_and_position_one_is_chosen_by_its_values() -> None:
    rows = pl.DataFrame(
        {
            "_key": [b"a", b"a", b"b"],
            "_time": [NOON] * 3,
            "_seq": [5, 5, 5],
            "_at": [NOON] * 3,
            "_weight": [1, 1, 1],
            "value": ["x", "y", "z"],
        }
    )
    chosen = last_of_instant(rows)
    assert chosen["value"].to_list() == ["y", "z"]
    assert last_of_instant(rows.reverse()).equals(chosen)


CLICKS = schema(click=int, page=int)


def _net(operator: Any, *batches: list[tuple[int, int, float]]) -> list[tuple[Any, ...]]:
    """Return the rows that are left of what an operator emits for batches of (click, page, day)."""
    store, emitted, seq = MemoryStore(shards=1), [], 0
    for number, batch in enumerate(batches):
        rows = changes(CLICKS, *((click, page, at, at, 1) for click, page, at in batch))
        rows = rows.with_columns((pl.col("_seq") + seq).alias("_seq"))
        seq += rows.height
        with store.transaction(0, ["op"], Stamp(0, number)) as transaction:
            emitted.append(operator.step((rows,), State(transaction, "op"), Clock()))
    columns = [name for name in emitted[0].columns if name != "_weight"]
    left = pl.concat(emitted).group_by(columns).agg(pl.col("_weight").sum()).filter(pl.col("_weight") != 0)
    assert (left["_weight"] == 1).all()
    return sorted(left.select("click", "page", "t").rows())


@pytest.mark.parametrize("hashes", [0, 3, None], ids=["one hash for all keys", "three hashes", "hashes"])
@pytest.mark.parametrize("size", [1, 7, 400])
@pytest.mark.parametrize("kind", [Dedup, First])
def test_the_row_chosen_of_each_key_is_that_of_a_loop(
    kind: Any, size: int, hashes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hashes is not None:
        monkeypatch.setattr(choice, "hash_keys", lambda keys: np.arange(len(keys), dtype=np.uint64) % (hashes + 1) // 2)
    rng = np.random.default_rng(size)
    drawn = list(
        zip(rng.integers(0, 60, 120).tolist(), range(120), (rng.integers(0, 16, 120) / 8).tolist(), strict=True)
    )
    chosen: dict[Any, tuple[int, int, float]] = {}
    for row in drawn:
        key = (row[0], int(row[2])) if kind is Dedup else row[0]
        known = chosen.setdefault(key, row)
        if (row[2] >= known[2]) if kind is Dedup else (row[2] < known[2]):
            chosen[key] = row
    options = {"by": ("click",), "window": Tumbling("1d")} if kind is Dedup else {"keys": ("click",)}
    operator = kind(parents=(leaf(CLICKS),), **options)
    batches = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    found = _net(operator, *batches)
    assert found == sorted((click, page, day(at)) for click, page, at in chosen.values())


def test_a_row_that_is_not_chosen_changes_nothing() -> None:
    operator = Dedup(parents=(leaf(CLICKS),), by=("click",), window=Tumbling("1d"))
    store = MemoryStore(shards=1)
    emitted = []
    for number, at in enumerate((0.5, 0.25)):
        rows = changes(CLICKS, (7, number, at, at, 1))
        with store.transaction(0, ["op"], Stamp(0, number)) as transaction:
            emitted.append(operator.step((rows,), State(transaction, "op"), Clock()).height)
    assert emitted == [1, 0]
