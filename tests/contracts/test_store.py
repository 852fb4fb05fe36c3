"""What every store must do within and between transactions. Batches that run again: `test_store_undo`."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import TypeVar

import polars as pl
import pytest

from tests.contracts.store_entries import SHARDS, A, B, everything, held, put
from umbel.errors import InvalidValue
from umbel.state.keys import encode_keys
from umbel.state.port import LAST, MAX_KEY, Stamp, Store

T = TypeVar("T")


# reading and writing


def test_an_empty_store_answers(store: Store) -> None:
    with store.snapshot(1) as reader:
        assert reader.get(A, "t", [b"x", b""]) == [None, None]
        assert reader.scan(A, "t", [(b"", LAST), (b"a", b"b")]) == [[], []]
    assert store.stamp(1, A) is None
    assert store.state_ids(1) == []
    store.drop(A)


def test_values_come_back_in_the_order_asked_for(store: Store) -> None:
    put(store, Stamp(1, 1), {b"b": b"2", b"a": b"1", b"": b"0", b"c": b""})
    with store.snapshot(0) as reader:
        assert reader.get(A, "t", [b"c", b"x", b"", b"a", b"a"]) == [b"", None, b"0", b"1", b"1"]
        assert reader.get(A, "other", [b"a"]) == [None]
        assert reader.get(B, "t", [b"a"]) == [None]
        assert reader.get(A, "t", []) == []


def test_the_last_value_of_a_key_given_twice_stays(store: Store) -> None:
    with store.transaction(0, [A], Stamp(1, 1)) as tx:
        tx.put(A, "t", [b"a", b"b", b"a"], [b"1", b"2", b"3"])
        tx.delete(A, "t", [b"b", b"b", b"nothing"])
    assert held(store) == {b"a": b"3"}


def test_scans_agree_with_a_sorted_list(store: Store) -> None:
    chance = random.Random(1)
    model = {_key(chance): b"%d" % number for number in range(400)}
    put(store, Stamp(1, 1), dict(model))
    put(store, Stamp(1, 1), {b"between": b"owners"}, owner=B)
    ranges = [(_key(chance), _key(chance)) for _ in range(200)] + [(b"", LAST), (LAST, b""), (b"\xff" * 500, LAST)]
    with store.snapshot(0) as reader:
        for limit in (None, 0, 1, 3):
            found = reader.scan(A, "t", ranges, limit=limit)
            assert found == [_between(model, low, high)[:limit] for low, high in ranges]
            found = reader.scan(A, "t", ranges, limit=limit, reverse=True)
            assert found == [_between(model, low, high)[::-1][:limit] for low, high in ranges]


def _key(chance: random.Random) -> bytes:
    return bytes(chance.choice([0, 1, 97, 254, 255]) for _ in range(chance.randrange(5)))


def _between(model: dict[bytes, bytes], low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
    return sorted((key, value) for key, value in model.items() if low <= key < high)


def test_a_transaction_reads_its_own_writes(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1", b"c": b"3"})
    with store.transaction(0, [A], Stamp(1, 2)) as tx:
        tx.put(A, "t", [b"b", b"a"], [b"2", b"one"])
        tx.delete(A, "t", [b"c"])
        assert tx.get(A, "t", [b"a", b"b", b"c"]) == [b"one", b"2", None]
        assert tx.scan(A, "t", [(b"", LAST)], reverse=True) == [[(b"b", b"2"), (b"a", b"one")]]
        assert tx.scan(A, "t", [(b"", LAST)], limit=1) == [[(b"a", b"one")]]
        tx.put(A, "t", [b"c"], [b"three"])
        assert everything(tx) == {b"a": b"one", b"b": b"2", b"c": b"three"}
    assert held(store) == {b"a": b"one", b"b": b"2", b"c": b"three"}


def test_shards_owners_and_tables_do_not_mix(store: Store) -> None:
    owners = [f"{number:016x}" for number in range(50)]
    for shard in range(SHARDS):
        with store.transaction(shard, owners, Stamp(1, 1)) as tx:
            for owner in owners:
                for table in ("t", "t2", "tt"):
                    tx.put(owner, table, [b"k", b""], [f"{shard} {owner} {table}".encode(), b"e"])
    for shard in range(SHARDS):
        assert store.state_ids(shard) == owners
        for owner in owners:
            for table in ("t", "t2", "tt"):
                assert held(store, owner, table, shard) == {b"": b"e", b"k": f"{shard} {owner} {table}".encode()}


def test_large_values_and_the_longest_keys(store: Store) -> None:
    large, longest = os.urandom(10_000_000), b"\xff" * MAX_KEY
    put(store, Stamp(1, 1), {b"large": large, longest: b"1"})
    put(store, Stamp(1, 2), {b"large": b"small", longest: None})
    assert held(store) == {b"large": b"small"}
    put(store, Stamp(1, 2), {})
    assert held(store) == {b"large": large, longest: b"1"}
    with store.snapshot(0) as reader:
        assert reader.get(A, "t", [b"x" * 5000, b"large"]) == [None, large]
        assert reader.scan(A, "t", [(b"\xff" * 5000, LAST), (longest, b"\xff" * 5000)]) == [[], [(longest, b"1")]]


def test_keys_over_the_limit_are_refused_and_encoded_keys_never_are(store: Store) -> None:
    with pytest.raises(InvalidValue, match="600 bytes"):
        put(store, Stamp(1, 1), {b"x" * 600: b"1"})
    assert store.stamp(0, A) is None
    keys = encode_keys(pl.DataFrame({"a": ["x" * 600, "x" * 600 + "y", "x" * 50_000, ""]})).to_list()
    put(store, Stamp(1, 1), {key: b"%d" % number for number, key in enumerate(keys)})
    with store.snapshot(0) as reader:
        assert reader.get(A, "t", keys) == [b"0", b"1", b"2", b"3"]


def test_only_the_owners_of_a_transaction_are_written(store: Store) -> None:
    with pytest.raises(InvalidValue, match=B), store.transaction(0, [A], Stamp(1, 1)) as tx:
        tx.put(B, "t", [b"a"], [b"1"])
    with pytest.raises(InvalidValue, match=B), store.transaction(0, [A], Stamp(1, 1)) as tx:
        tx.delete(B, "t", [b"a"])
    assert store.state_ids(0) == []


@pytest.mark.parametrize("owner", ["", "x" * 65, "a\0b", "ö"])
def test_names_that_cannot_be_part_of_a_key_are_refused(store: Store, owner: str) -> None:
    with pytest.raises(InvalidValue, match="operator id"), store.transaction(0, [owner], Stamp(1, 1)):
        pass
    with pytest.raises(InvalidValue, match="table name"), store.transaction(0, [A], Stamp(1, 1)) as tx:
        tx.put(A, owner, [b"a"], [b"1"])


def test_a_value_for_every_key(store: Store) -> None:
    with pytest.raises(ValueError), store.transaction(0, [A], Stamp(1, 1)) as tx:  # noqa: PT011
        tx.put(A, "t", [b"a", b"b"], [b"1"])


def test_shards_that_do_not_exist(store: Store) -> None:
    for shard in (-1, SHARDS):
        with pytest.raises(InvalidValue, match="shard"), store.snapshot(shard):
            pass
        with pytest.raises(InvalidValue, match="shard"), store.transaction(shard, [A], Stamp(1, 1)):
            pass


# transactions


def test_an_exception_leaves_nothing_behind(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    with pytest.raises(InvalidValue, match="not one"), store.transaction(0, [A, B], Stamp(1, 2)) as tx:  # noqa: PT012
        tx.put(A, "t", [b"a", b"b"], [b"9", b"9"])
        tx.put(B, "t", [b"a"], [b"9"])
        tx.put("c", "t", [b"a"], [b"9"])
    assert held(store) == {b"a": b"1"}
    assert store.state_ids(0) == [A]
    assert store.stamp(0, A) == Stamp(1, 1)


def test_a_snapshot_keeps_what_it_saw(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1", b"b": b"2"})
    with store.snapshot(0) as before:
        assert before.get(A, "t", [b"a"]) == [b"1"]
        in_a_thread(lambda: put(store, Stamp(1, 2), {b"a": b"9", b"b": None, b"c": b"3"}))
        assert before.get(A, "t", [b"a", b"b", b"c"]) == [b"1", b"2", None]
        assert everything(before) == {b"a": b"1", b"b": b"2"}
        with store.snapshot(0) as after:
            in_a_thread(lambda: store.drop(A))
            assert everything(before) == {b"a": b"1", b"b": b"2"}
            assert everything(after) == {b"a": b"9", b"c": b"3"}
    assert held(store) == {}


def test_a_transaction_is_not_seen_before_it_ends(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    with store.transaction(0, [A], Stamp(1, 2)) as tx:
        tx.put(A, "t", [b"a"], [b"2"])
        assert in_a_thread(lambda: held(store)) == {b"a": b"1"}
        assert in_a_thread(lambda: store.stamp(0, A)) == Stamp(1, 1)
    assert held(store) == {b"a": b"2"}


def test_transactions_of_a_shard_follow_each_other(store: Store) -> None:
    put(store, Stamp(1, 0), {b"n": b"0"})

    def add() -> None:
        for _ in range(50):
            with lock, store.transaction(0, [A], Stamp(1, next(batches))) as tx:
                (value,) = tx.get(A, "t", [b"n"])
                tx.put(A, "t", [b"n"], [b"%d" % (int(value or 0) + 1)])

    lock, batches = threading.Lock(), iter(range(1, 1000))
    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert held(store) == {b"n": b"150"}


def test_a_thread_has_one_transaction_of_a_shard(store: Store) -> None:
    with store.transaction(0, [A], Stamp(1, 1)):
        with pytest.raises(InvalidValue, match="this thread"), store.transaction(0, [B], Stamp(1, 1)):
            pass
        with store.transaction(1, [B], Stamp(1, 1)):
            pass
    assert store.state_ids(0) == [A]
    assert store.state_ids(1) == [B]


def in_a_thread(work: Callable[[], T]) -> T:
    """Run `work` in another thread and return what it returns."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(30)
    return results[0]
