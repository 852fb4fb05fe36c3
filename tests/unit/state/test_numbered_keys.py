"""Numbers of keys in stored order, keys that share a hash included, and the orders of whole numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from umbel.errors import InvalidValue
from umbel.state import numbered_keys
from umbel.state.collected import TIME
from umbel.state.memory import MemoryStore
from umbel.state.numbered_keys import KeyRanges, NumberedKeys
from umbel.state.port import Stamp
from umbel.state.runs.addresses import hash_key, hash_keys
from umbel.state.runs.sorting import order_of, order_of_numbers
from umbel.state.tables import State

VALUES = {"v": pl.Int64()}


@pytest.mark.parametrize("rows", [0, 1, 2, 5_000, 20_000])
def test_keys_are_numbered_in_stored_order(rows: int) -> None:
    random = np.random.default_rng(rows)
    keys = pl.Series([b"\x01%d" % number for number in random.integers(0, max(1, rows // 3), rows)], dtype=pl.Binary)
    found, numbers = NumberedKeys.of(keys)
    assert found.keys.gather(numbers).to_list() == keys.to_list()
    assert found.keys.n_unique() == len(found.keys)
    assert found.hashes.tolist() == hash_keys(found.keys).tolist() == sorted(found.hashes.tolist())


def test_keys_that_share_a_hash_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_keys, "hash_keys", lambda keys: np.array([len(key) for key in keys], np.uint64))
    keys = pl.Series([b"bb", b"aa", b"c", b"bb", b"aa"])
    found, numbers = NumberedKeys.of(keys)
    assert found.keys.to_list() == [b"c", b"aa", b"bb"]
    assert numbers.tolist() == [2, 1, 0, 2, 1]


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 17])
def test_keys_of_one_width_have_the_hashes_of_single_ones(width: int) -> None:
    keys = [bytes([number]) * width for number in range(9)]
    assert hash_keys(pl.Series(keys)[3:]).tolist() == [int(hash_key(key)) for key in keys[3:]]


@pytest.mark.parametrize("highest", [1, 1 << 15, 1 << 16, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("rows", [0, 100, 20_000])
def test_orders_by_digits_are_stable(rows: int, highest: int) -> None:
    random = np.random.default_rng(1)
    numbers = random.integers(0, highest, rows, endpoint=True) if rows else np.zeros(0, np.int64)
    assert order_of_numbers(numbers).tolist() == numbers.argsort(kind="stable").tolist()
    assert order_of(numbers % 7, -numbers).tolist() == np.lexsort((-numbers, numbers % 7)).tolist()


def test_rows_out_of_order_are_refused() -> None:
    keys, _ = NumberedKeys.of(pl.Series([b"a", b"b"]))
    times = pl.Series(TIME, [2, 1]).cast(pl.Datetime("us", "UTC"))
    rows = pl.DataFrame([times, pl.Series("v", [1, 2])])
    with MemoryStore(shards=1).transaction(0, ["op"], Stamp(0, 0)) as transaction:
        table = State(transaction, "op").timed("t", VALUES)
        with pytest.raises(InvalidValue, match="not in the order"):
            table.write_numbered(keys, np.array([0, 0]), rows)
        table.write_numbered(keys, np.array([0, 1]), rows)
        number, found = table.entries(keys, KeyRanges(np.array([0, 1]), np.array([0, 0]), np.array([3, 1])))
    assert (number.tolist(), found["v"].to_list()) == ([0], [1])
