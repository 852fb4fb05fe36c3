"""What is special about the memory store; the rest is in the contract suite."""

from __future__ import annotations

import threading

import polars as pl
import pytest

from tests.contracts.store_entries import VALUE, Entries
from umbel.state import failpoints
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State


def put(store: MemoryStore, batch: int, **entries: bytes) -> None:
    with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
        Entries(tx, "o").put([key.encode() for key in entries], list(entries.values()))


def test_many_snapshots_of_many_moments() -> None:
    store = MemoryStore(1)
    views = []
    for batch in range(5):
        put(store, batch, a=b"%d" % batch, **{f"k{batch}": b""})
        manager = store.snapshot(0)
        views.append((manager, Entries(manager.__enter__(), "o")))
    store.drop("o")
    for batch, (manager, view) in enumerate(views):
        assert view.get([b"a"]) == [b"%d" % batch]
        assert list(view.all()) == [b"a", *[b"k%d" % n for n in range(batch + 1)]]
        manager.__exit__(None, None, None)
    put(store, 0, a=b"new")
    with store.snapshot(0) as after:
        assert Entries(after, "o").all() == {b"a": b"new"}


def test_a_reader_never_sees_half_a_commit() -> None:
    store = MemoryStore(1)
    keys = [b"%03d" % number for number in range(200)]
    torn: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with store.snapshot(0) as view:
                found = Entries(view, "o").all()
                if len(set(found.values())) > 1 or len(found) not in (0, 200):
                    torn.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(50):
        with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
            Entries(tx, "o").put(keys, [b"%d" % batch] * len(keys))
    done.set()
    reader.join(300)
    assert not torn


def test_an_interrupted_commit_that_was_done_is_rolled_back_by_the_next_run() -> None:
    store = MemoryStore(1)
    put(store, 1, a=b"1")

    def stop() -> None:
        raise KeyboardInterrupt

    with failpoints.armed("committed", 1, stop), pytest.raises(KeyboardInterrupt):
        put(store, 2, a=b"2")
    assert store.stamp(0, "o") == Stamp(1, 2)
    with store.transaction(0, ["o"], Stamp(1, 2)) as tx:
        assert Entries(tx, "o").get([b"a"]) == [b"1"]


def test_sizes_are_of_rows_and_their_bytes() -> None:
    store = MemoryStore(2)
    put(store, 1, a=b"x" * 1000, bc=b"")
    filled, empty = store.sizes()
    assert (filled.shard, filled.entries, empty.shard, empty.entries, empty.size) == (0, 4, 1, 0, 0)
    assert 2000 < filled.size < 4000


def test_what_is_removed_does_not_stay_in_memory() -> None:
    """A table whose rows come and go has no more rows than are there, apart from the last ones."""
    store = MemoryStore(1)
    for batch in range(200):
        with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
            table = State(tx, "o").table("t", VALUE)
            keys = pl.Series("_key", [b"%d" % batch, b"%d" % (batch - 1)], dtype=pl.Binary)
            table.replace(keys, pl.DataFrame({"_key": keys[:1], "value": [b"x"]}))
    (size,) = store.sizes()
    assert size.entries < 20
