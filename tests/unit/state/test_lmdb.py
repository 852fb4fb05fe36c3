"""What is special about the LMDB store; the rest is in the contract suite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from umbel.errors import Damaged, InvalidValue, Terminal
from umbel.state.environments import Options
from umbel.state.lmdb import LmdbStore
from umbel.state.port import Stamp

FAST = Options(sync=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    opened = LmdbStore(tmp_path / "db", 4, FAST)
    yield opened
    opened.close()


def put(store: LmdbStore, batch: int, value: bytes, shard: int = 0) -> None:
    with store.transaction(shard, ["o"], Stamp(1, batch)) as tx:
        tx.put("o", "t", [b"k"], [value])


def held(store: LmdbStore, shard: int = 0) -> bytes | None:
    with store.snapshot(shard) as reader:
        return reader.get("o", "t", [b"k"])[0]


def test_reading_makes_no_files(store: LmdbStore, tmp_path: Path) -> None:
    assert held(store) is None
    assert store.state_ids(3) == []
    assert store.stamp(2, "o") is None
    assert [(size.entries, size.size) for size in store.sizes()] == [(0, 0)] * 4
    store.drop("o")
    assert not (tmp_path / "db").exists()


def test_all_shards_are_made_at_the_first_write(store: LmdbStore, tmp_path: Path) -> None:
    put(store, 1, b"1", shard=2)
    shards = [f"shard-{number:03d}" for number in range(4)]
    assert sorted(file.name for file in (tmp_path / "db").iterdir()) == [*shards, "store.json"]
    report = json.loads((tmp_path / "db" / "store.json").read_text())
    assert report == {"format": 3, "shards": 4, "identity": store.identity}


def test_stores_of_one_directory_share_its_files(store: LmdbStore, tmp_path: Path) -> None:
    other = LmdbStore(tmp_path / "x" / ".." / "db", 4, FAST)
    assert held(other) is None
    put(store, 1, b"1")
    assert held(other) == b"1"
    put(other, 2, b"2")
    other.close()
    other.close()
    assert held(store) == b"2"


def test_the_number_of_shards_is_fixed(store: LmdbStore, tmp_path: Path) -> None:
    put(store, 1, b"1")
    with pytest.raises(InvalidValue, match="has 4 shards"):
        LmdbStore(tmp_path / "db", 5, FAST)


def test_two_stores_cannot_make_one_directory_with_different_shards(tmp_path: Path) -> None:
    one, other = LmdbStore(tmp_path / "db", 1, FAST), LmdbStore(tmp_path / "db", 2, FAST)
    put(one, 1, b"1")
    with pytest.raises(InvalidValue, match="has 1 shards"):
        put(other, 1, b"1")
    one.close()
    other.close()


def test_a_directory_that_was_removed_and_made_again_is_opened_again(store: LmdbStore, tmp_path: Path) -> None:
    put(store, 1, b"old")
    assert held(store) == b"old"
    shutil.rmtree(tmp_path / "db")
    with pytest.raises(Damaged, match="shard-000 is missing"):
        held(store)
    other = LmdbStore(tmp_path / "db", 4, FAST)
    put(other, 1, b"new")
    assert held(store) == b"new"
    other.close()


def test_a_full_shard_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "db", 1, Options(map_size=1 << 20, sync=False))
    put(store, 1, b"1")
    with pytest.raises(Terminal, match="map_size"):
        put(store, 2, b"x" * (2 << 20))
    assert held(store) == b"1"
    store.close()
    larger = LmdbStore(tmp_path / "db", 1, Options(map_size=8 << 20, sync=False))
    put(larger, 2, b"x" * (2 << 20))
    larger.close()


def test_undo_in_many_parts(store: LmdbStore) -> None:
    keys = [b"%05d" % number for number in range(3000)]
    before = [b"%d" % number * 500 for number in range(3000)]
    with store.transaction(0, ["o"], Stamp(1, 1)) as tx:
        tx.put("o", "t", keys, before)
    for _ in range(2):
        with store.transaction(0, ["o"], Stamp(1, 2)) as tx:
            assert tx.get("o", "t", keys) == before
            tx.put("o", "t", keys[:2000], [b""] * 2000)
            tx.delete("o", "t", keys[1000:])
    with store.transaction(0, ["o"], Stamp(1, 3)):
        assert store.sizes()[0].entries < 1000 + 20


def test_what_was_read_before_a_change_is_not_saved_as_old(store: LmdbStore) -> None:
    put(store, 1, b"1")
    with store.transaction(0, ["o"], Stamp(1, 2)) as tx:
        assert tx.get("o", "t", [b"k", b"x"]) == [b"1", None]
        tx.delete("o", "t", [b"k"])
        tx.put("o", "t", [b"k", b"x"], [b"2", b"2"])
        assert tx.get("o", "t", [b"k"]) == [b"2"]
        tx.put("o", "t", [b"k"], [b"3"])
        tx.get("o", "t", [b"x"])
        tx.put("o", "t", [b"x", b"y"], [b"3", b"3"])
    with store.transaction(0, ["o"], Stamp(1, 2)) as tx:
        assert tx.get("o", "t", [b"k", b"x", b"y"]) == [b"1", None, None]


def test_pages_of_dropped_state_are_used_again(store: LmdbStore) -> None:
    for epoch in range(6):
        with store.transaction(0, ["o"], Stamp(epoch, 0)) as tx:
            tx.put("o", "t", [b"%d" % number for number in range(500)], [b"x" * 2000] * 500)
        store.drop("o")
    assert store.sizes()[0].size < 3 * 500 * 4096
