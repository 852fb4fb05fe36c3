"""What every store must do within and between transactions. Batches that run again: `test_store_undo`."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import polars as pl
import pytest

from tests.contracts.store_entries import SHARDS, VALUE, ZERO, A, B, Entries, put, stored_entries
from umbel.errors import InvalidValue, Terminal
from umbel.state.collected import INSTANT
from umbel.state.keys import encode_keys
from umbel.state.port import ConcurrentWrite, Stamp, Store
from umbel.state.runs.points import frame_of
from umbel.state.tables import State

T = TypeVar("T")


# reading and writing


def test_an_empty_store_answers(store: Store) -> None:
    with store.snapshot(1) as reader:
        assert Entries(reader).get([b"x", b""]) == [None, None]
        assert Entries(reader).all() == {}
    assert store.stamp(1, A) is None
    assert store.state_ids(1) == []
    store.drop(A)


def test_values_come_back_in_the_order_requested(store: Store) -> None:
    put(store, Stamp(1, 1), {b"b": b"2", b"a": b"1", b"": b"0", b"c": b""})
    with store.snapshot(0) as reader:
        assert Entries(reader).get([b"c", b"x", b"", b"a", b"a"]) == [b"", None, b"0", b"1", b"1"]
        assert Entries(reader, name="other").get([b"a"]) == [None]
        assert Entries(reader, B).get([b"a"]) == [None]
        assert Entries(reader).get([]) == []


def test_the_last_value_of_a_key_stays_and_a_key_may_be_written_twice(store: Store) -> None:
    with store.transaction(0, [A], Stamp(1, 1)) as tx:
        found = Entries(tx)
        found.put([b"a", b"b"], [b"1", b"2"])
        found.put([b"a"], [b"3"])
        found.delete([b"b", b"b", b"nothing"])
    assert stored_entries(store) == {b"a": b"3"}


def test_the_rows_of_an_address_are_a_group_in_the_order_written(store: Store) -> None:
    address = {"_key": [b"a", b"b", b"a", b"a"], "_time": [ZERO] * 4}
    rows = pl.DataFrame(address, {"_key": pl.Binary, "_time": INSTANT}).with_columns(
        pl.Series("value", [b"3", b"b", None, b"1"], dtype=pl.Binary)
    )
    for batch in (1, 2):
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            entries = Entries(tx)
            entries.plain.replace(rows["_key"], rows)
            entries.timed.replace(rows, rows)
        with store.snapshot(0) as reader:
            entries = Entries(reader)
            assert entries.plain.get(rows["_key"])["value"].to_list() == [b"3", None, b"1", b"b"]
            assert entries.timed.all()["value"].to_list() == [b"3", None, b"1", b"b"]
            (group,) = entries.plain.groups([b"a"])
            (latest,) = entries.timed.latest([b"a"], [0])
            assert group is not None
            assert latest is not None
            for found in (group, latest):
                assert frame_of([found], VALUE)["value"].to_list() == [b"3", None, b"1"]


def test_ranges_of_instants_agree_with_a_sorted_list(store: Store) -> None:
    chance = random.Random(1)
    model: dict[tuple[bytes, int], bytes] = {}
    for batch in range(4):
        written = {(_key(chance), chance.randrange(20)): b"%d %d" % (batch, number) for number in range(150)}
        gone = [chance.choice(list(model)) for _ in range(30)] if model else []
        with store.transaction(0, [A], Stamp(1, batch)) as tx:
            table = State(tx, A).timed("t", VALUE)
            table.replace(_points(gone), _points([]).with_columns(pl.lit(None, pl.Binary).alias("value")))
            rows = _points(list(written)).with_columns(pl.Series("value", list(written.values()), dtype=pl.Binary))
            table.replace(rows, rows)
        model = {at: value for at, value in model.items() if at not in gone} | written
    put(store, Stamp(1, 4), {b"of another": b"operator"}, state_id=B)
    requested = [(_key(chance), *(chance.choice([None, *range(-1, 22)]) for _ in range(2))) for _ in range(300)]
    ranges = _points([(key, 0) for key, _, _ in requested]).select(
        "_key",
        *(
            pl.Series(name, [None if row[place] is None else _instant(row[place]) for row in requested], dtype=INSTANT)
            for name, place in (("_low", 1), ("_high", 2))
        ),
    )
    with store.snapshot(0) as reader:
        table = State(reader, A).timed("t", VALUE)
        for number, (key, low, high) in enumerate(requested):
            due = [(key, _instant(at), model[key, at]) for at in _between(model, key, low, high)]
            assert table.scan(ranges[number : number + 1]).rows() == due
        everything = {(key, at) for key, low, high in requested for at in _between(model, key, low, high)}
        assert table.scan(ranges).rows() == [(key, _instant(at), model[key, at]) for key, at in sorted(everything)]
        assert table.until(12).height == sum(at <= 12 for _, at in model)
        assert table.all().rows() == [(key, _instant(at), model[key, at]) for key, at in sorted(model)]


def _key(chance: random.Random) -> bytes:
    return bytes(chance.choice([0, 1, 97, 254, 255]) for _ in range(chance.randrange(3)))


def _instant(number: int) -> datetime:
    return ZERO + timedelta(microseconds=number)


def _points(addresses: Sequence[tuple[bytes, int]]) -> pl.DataFrame:
    rows = [(key, _instant(at)) for key, at in addresses]
    return pl.DataFrame(rows, {"_key": pl.Binary, "_time": INSTANT}, orient="row")


def _between(model: Iterable[tuple[bytes, int]], key: bytes, low: int | None, high: int | None) -> list[int]:
    times = sorted(at for other, at in model if other == key)
    return [at for at in times if (low is None or low <= at) and (high is None or at < high)]


def test_a_transaction_reads_its_own_writes(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1", b"c": b"3"})
    with store.transaction(0, [A], Stamp(1, 2)) as tx:
        Entries(tx).put([b"b", b"a"], [b"2", b"one"])
        Entries(tx).delete([b"c"])
        assert Entries(tx).get([b"a", b"b", b"c"]) == [b"one", b"2", None]
        assert Entries(tx).all() == {b"a": b"one", b"b": b"2"}
        Entries(tx).put([b"c"], [b"three"])
        assert Entries(tx).all() == {b"a": b"one", b"b": b"2", b"c": b"three"}
    assert stored_entries(store) == {b"a": b"one", b"b": b"2", b"c": b"three"}


def test_shards_state_ids_and_tables_do_not_mix(store: Store) -> None:
    state_ids = [f"{number:016x}" for number in range(50)]
    for shard in range(SHARDS):
        with store.transaction(shard, state_ids, Stamp(1, 1)) as tx:
            for state_id in state_ids:
                for table in ("t", "t2", "tt"):
                    Entries(tx, state_id, table).put([b"k", b""], [f"{shard} {state_id} {table}".encode(), b"e"])
    for shard in range(SHARDS):
        assert store.state_ids(shard) == state_ids
        for state_id in state_ids:
            for table in ("t", "t2", "tt"):
                assert stored_entries(store, state_id, table, shard) == {
                    b"": b"e",
                    b"k": f"{shard} {state_id} {table}".encode(),
                }


def test_large_values_and_long_keys(store: Store) -> None:
    large, longest = os.urandom(10_000_000), b"\xff" * 5000
    put(store, Stamp(1, 1), {b"large": large, longest: b"1"})
    put(store, Stamp(1, 2), {b"large": b"small", longest: None})
    assert stored_entries(store) == {b"large": b"small"}
    put(store, Stamp(1, 2), {})
    assert stored_entries(store) == {b"large": large, longest: b"1"}
    with store.snapshot(0) as reader:
        assert Entries(reader).get([b"x" * 5000, b"large", longest, longest[1:]]) == [None, large, b"1", None]


def test_encoded_keys_of_any_length_are_apart(store: Store) -> None:
    keys = encode_keys(pl.DataFrame({"a": ["x" * 600, "x" * 600 + "y", "x" * 50_000, ""]})).to_list()
    put(store, Stamp(1, 1), {key: b"%d" % number for number, key in enumerate(keys)})
    with store.snapshot(0) as reader:
        assert Entries(reader).get(keys) == [b"0", b"1", b"2", b"3"]


def test_only_the_state_ids_of_a_transaction_are_written(store: Store) -> None:
    with pytest.raises(InvalidValue, match=B), store.transaction(0, [A], Stamp(1, 1)) as tx:
        Entries(tx, B).put([b"a"], [b"1"])
    with pytest.raises(InvalidValue, match=B), store.transaction(0, [A], Stamp(1, 1)) as tx:
        Entries(tx, B).delete([b"a"])
    assert store.state_ids(0) == []


@pytest.mark.parametrize("name", ["", "x" * 65, "a\0b", "ö"])
def test_names_that_cannot_be_part_of_a_key_are_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidValue, match="operator id"), store.transaction(0, [name], Stamp(1, 1)):
        pass
    with pytest.raises(InvalidValue, match="table name"), store.transaction(0, [A], Stamp(1, 1)) as tx:
        Entries(tx, name=name).put([b"a"], [b"1"])


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"value": pl.Series(["text"])},
        {"value": pl.Series([b""]), "_time": pl.Series([None], dtype=INSTANT)},
        {"value": pl.Series([b""]), "_key": pl.Series([None], dtype=pl.Binary)},
    ],
    ids=["a column is missing", "another type", "no instant", "no key"],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(store: Store, values: dict[str, pl.Series]) -> None:
    rows = _points([(b"b", 0)]).with_columns(**values)
    with pytest.raises(InvalidValue, match=r"'t'|t at'"), store.transaction(0, [A], Stamp(1, 1)) as tx:  # noqa: PT012
        Entries(tx).put([b"a"], [b"1"])
        Entries(tx).timed.replace(rows, rows)
    assert store.state_ids(0) == []


def test_columns_that_differ_from_those_written_are_refused(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    with store.snapshot(0) as reader:
        for columns in ({"value": pl.String()}, {"values": pl.Binary()}, {}, {**VALUE, "more": pl.Int64()}):
            with pytest.raises(Terminal, match="does not have the columns it is read with"):
                State(reader, A).table("t", columns)
            with pytest.raises(Terminal, match="does not have the columns it is read with"):
                State(reader, A).timed("t at", columns)
        with pytest.raises(Terminal, match="does not have the columns it is read with"):
            State(reader, A).timed("t", VALUE)
    store.drop(A)
    with store.transaction(0, [A], Stamp(1, 1)) as tx:
        table = State(tx, A).table("t", {"n": pl.Int64})
        table.replace(pl.Series([b"a"]), pl.DataFrame({"_key": [b"a"], "n": [1]}))
        assert table.get(pl.Series([b"a"])).rows() == [(b"a", 1)]


def test_shards_that_do_not_exist(store: Store) -> None:
    for shard in (-1, SHARDS):
        with pytest.raises(InvalidValue, match="shard"), store.snapshot(shard):
            pass
        with pytest.raises(InvalidValue, match="shard"), store.transaction(shard, [A], Stamp(1, 1)):
            pass


# transactions


def test_an_exception_leaves_nothing_behind(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    with pytest.raises(InvalidValue, match="belongs to no"), store.transaction(0, [A, B], Stamp(1, 2)) as tx:  # noqa: PT012
        Entries(tx).put([b"a", b"b"], [b"9", b"9"])
        Entries(tx, B).put([b"a"], [b"9"])
        Entries(tx, "c").put([b"a"], [b"9"])
    assert stored_entries(store) == {b"a": b"1"}
    assert store.state_ids(0) == [A]
    assert store.stamp(0, A) == Stamp(1, 1)


def test_a_snapshot_keeps_what_it_saw(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1", b"b": b"2"})
    with store.snapshot(0) as before:
        assert Entries(before).get([b"a"]) == [b"1"]
        in_a_thread(lambda: put(store, Stamp(1, 2), {b"a": b"9", b"b": None, b"c": b"3"}))
        assert Entries(before).get([b"a", b"b", b"c"]) == [b"1", b"2", None]
        assert Entries(before).all() == {b"a": b"1", b"b": b"2"}
        with store.snapshot(0) as after:
            in_a_thread(lambda: store.drop(A))
            assert Entries(before).all() == {b"a": b"1", b"b": b"2"}
            assert Entries(after).all() == {b"a": b"9", b"c": b"3"}
    assert stored_entries(store) == {}


def test_a_transaction_is_not_seen_before_it_ends(store: Store) -> None:
    put(store, Stamp(1, 1), {b"a": b"1"})
    with store.transaction(0, [A], Stamp(1, 2)) as tx:
        Entries(tx).put([b"a"], [b"2"])
        assert in_a_thread(lambda: stored_entries(store)) == {b"a": b"1"}
        assert in_a_thread(lambda: store.stamp(0, A)) == Stamp(1, 1)
    assert stored_entries(store) == {b"a": b"2"}


@pytest.mark.parametrize("times", [20, pytest.param(50, marks=pytest.mark.nightly)])
def test_transactions_of_a_shard_follow_each_other(store: Store, times: int) -> None:
    put(store, Stamp(1, 0), {b"n": b"0"})

    def add() -> None:
        for _ in range(times):
            with lock, store.transaction(0, [A], Stamp(1, next(batches))) as tx:
                (value,) = Entries(tx).get([b"n"])
                Entries(tx).put([b"n"], [b"%d" % (int(value or 0) + 1)])

    lock, batches = threading.Lock(), iter(range(1, 1000))
    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert stored_entries(store) == {b"n": b"%d" % (3 * times)}


def test_a_thread_has_one_transaction_of_a_shard(store: Store) -> None:
    with store.transaction(0, [A], Stamp(1, 1)):
        with pytest.raises(InvalidValue, match="this thread"), store.transaction(0, [B], Stamp(1, 1)):
            pass
        with store.transaction(1, [B], Stamp(1, 1)):
            pass
    assert store.state_ids(0) == [A]
    assert store.state_ids(1) == [B]


def test_operators_are_written_side_by_side(store: Store) -> None:
    put(store, Stamp(1, 0), {b"a": b"0"})

    def write_others() -> None:
        for batch in range(40):
            with store.transaction(0, [B], Stamp(1, batch)) as others:
                Entries(others, B).put([b"b%d" % batch], [b"1"])

    with store.transaction(0, [A], Stamp(1, 1)) as tx:
        in_a_thread(write_others)
        assert Entries(tx).get([b"a"]) == [b"0"]
        Entries(tx).put([b"a"], [b"1"])
    put(store, Stamp(1, 2), {b"a": b"2"})
    assert stored_entries(store) == {b"a": b"2"}
    with store.snapshot(0) as reader:
        assert Entries(reader, B).get([b"b%d" % batch for batch in range(40)]) == [b"1"] * 40
    assert (store.stamp(0, A), store.stamp(0, B)) == (Stamp(1, 2), Stamp(1, 39))


@pytest.mark.parametrize("other", [Stamp(1, 1), Stamp(1, 2), Stamp(2, 1), Stamp(1, 1, 3)], ids=str)
def test_of_two_transactions_on_an_operator_the_first_one_counts(store: Store, other: Stamp) -> None:
    put(store, Stamp(1, 0), {b"a": b"0"})

    def write_late() -> None:
        with store.transaction(0, [A, B], Stamp(1, 1)) as tx:
            in_a_thread(lambda: put(store, other, {b"a": b"first"}))
            Entries(tx).put([b"a"], [b"late"])

    with pytest.raises(ConcurrentWrite, match="another process has written"):
        write_late()
    assert stored_entries(store) == {b"a": b"first"}
    assert (store.stamp(0, A), store.stamp(0, B)) == (other, None)


def test_a_transaction_does_not_bring_back_an_operator_dropped_meanwhile(store: Store) -> None:
    put(store, Stamp(1, 0), {b"a": b"0"})

    def write_late() -> None:
        with store.transaction(0, [A], Stamp(1, 1)) as tx:
            in_a_thread(lambda: store.drop(A))
            Entries(tx).put([b"a"], [b"late"])

    with pytest.raises(ConcurrentWrite):
        write_late()
    assert stored_entries(store) == {}
    put(store, Stamp(1, 1), {b"a": b"anew"})
    assert stored_entries(store) == {b"a": b"anew"}


def in_a_thread(work: Callable[[], T]) -> T:
    """Run `work` in another thread and return what it returns."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(300)
    return results[0]
