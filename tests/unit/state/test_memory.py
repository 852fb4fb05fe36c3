"""What is special about the memory store; the rest is in the contract suite."""

from __future__ import annotations

import threading

import pytest

from umbel.state import failpoints
from umbel.state.memory import MemoryStore
from umbel.state.port import LAST, Stamp

ALL = [(b"", LAST)]


def put(store: MemoryStore, batch: int, **entries: bytes) -> None:
    with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
        tx.put("o", "t", [key.encode() for key in entries], list(entries.values()))


def test_many_snapshots_of_many_moments() -> None:
    store = MemoryStore(1)
    views = []
    for batch in range(5):
        put(store, batch, a=b"%d" % batch, **{f"k{batch}": b""})
        manager = store.snapshot(0)
        views.append((manager, manager.__enter__()))
    store.drop("o")
    for batch, (manager, view) in enumerate(views):
        assert view.get("o", "t", [b"a"]) == [b"%d" % batch]
        assert [key for key, _ in view.scan("o", "t", ALL)[0]] == [b"a", *[b"k%d" % n for n in range(batch + 1)]]
        manager.__exit__(None, None, None)
    put(store, 0, a=b"new")
    with store.snapshot(0) as after:
        assert after.scan("o", "t", ALL) == [[(b"a", b"new")]]


def test_a_reader_never_sees_half_a_commit() -> None:
    store = MemoryStore(1)
    keys = [b"%03d" % number for number in range(200)]
    torn: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with store.snapshot(0) as view:
                if len(set(view.get("o", "t", keys))) > 1 or len({v for _, v in view.scan("o", "t", ALL)[0]}) > 1:
                    torn.append(view)

    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(100):
        with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
            tx.put("o", "t", keys, [b"%d" % batch] * len(keys))
    done.set()
    reader.join(30)
    assert not torn


def test_an_interrupted_commit_that_was_done_is_taken_back_by_the_next_run() -> None:
    store = MemoryStore(1)
    put(store, 1, a=b"1")

    def stop() -> None:
        raise KeyboardInterrupt

    with failpoints.armed("committed", 1, stop), pytest.raises(KeyboardInterrupt):
        put(store, 2, a=b"2")
    assert store.stamp(0, "o") == Stamp(1, 2)
    with store.transaction(0, ["o"], Stamp(1, 2)) as tx:
        assert tx.get("o", "t", [b"a"]) == [b"1"]


def test_sizes_are_lengths_of_keys_and_values() -> None:
    store = MemoryStore(2)
    put(store, 1, a=b"123", bc=b"")
    assert [(size.shard, size.entries, size.size) for size in store.sizes()] == [(0, 2, 6), (1, 0, 0)]
