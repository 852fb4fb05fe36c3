"""LMDB files with a changed byte, too short or gone: nothing is read but what was written, and the damage is told."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from umbel.errors import Damaged
from umbel.state.environments import Options
from umbel.state.lmdb import LmdbStore
from umbel.state.port import LAST, Stamp

FAST = Options(sync=False, map_size=1 << 26)
KEYS = [b"%04d" % number for number in range(0, 1600, 2)]
ABSENT = [b"%04d" % number for number in range(1, 1600, 64)]


def value(key: bytes) -> bytes:
    return key * (int(key) % 23)


def filled(folder: Path) -> bytes:
    """Return the bytes of a shard that was written in several batches."""
    store = LmdbStore(folder, 1, FAST)
    for batch in range(3):
        with store.transaction(0, ["a", "b"], Stamp(1, batch)) as tx:
            tx.put("a", "t", KEYS[batch::3], list(map(value, KEYS[batch::3])))
            tx.put("b", "t", KEYS[:50], [b"x"] * 50)
    store.close()
    return (folder / "shard-000" / "data.mdb").read_bytes()


def look(store: LmdbStore) -> bool:
    """Read everything in every way; return whether damage was told."""
    report = False
    for key in [*KEYS, *ABSENT]:
        try:
            with store.snapshot(0) as reader:
                assert reader.get("a", "t", [key]) == [value(key) if key in KEYS else None]
        except Damaged:
            report = True
    for low, high in ((b"", LAST), (KEYS[9], KEYS[333]), (b"05", b"06")):
        due = [(key, value(key)) for key in KEYS if low <= key < high]
        for reverse in (False, True):
            try:
                with store.snapshot(0) as reader:
                    assert reader.scan("a", "t", [(low, high)], reverse=reverse) == [due[::-1] if reverse else due]
            except Damaged:
                report = True
    return report


@pytest.mark.parametrize("seed", range(3))
def test_a_changed_byte_is_never_served(tmp_path: Path, seed: int) -> None:
    whole, chance, report = filled(tmp_path / "db"), random.Random(seed), 0
    path = tmp_path / "db" / "shard-000" / "data.mdb"
    for _ in range(12):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        store = LmdbStore(tmp_path / "db", 1, FAST)
        report += look(store)
        store.close()
    assert report


def test_a_key_that_changed_is_no_key_that_is_missing(tmp_path: Path) -> None:
    whole = filled(tmp_path / "db")
    path = tmp_path / "db" / "shard-000" / "data.mdb"
    path.write_bytes(whole.replace(b"da\0t\x000500", b"da\0t\x000508"))  # 0508 is there, too
    store = LmdbStore(tmp_path / "db", 1, FAST)
    with pytest.raises(Damaged, match="state db/shard-000 is damaged"), store.snapshot(0) as reader:
        reader.get("a", "t", [b"0500"])
    with store.transaction(0, ["a"], Stamp(1, 9)) as tx:
        assert tx.get("a", "t", [b"0500"]) == [None]  # the neighbours of what a writer does not find are not verified
    with pytest.raises(Damaged):
        store.check(0)
    store.close()


def test_a_file_that_was_cut_is_told_and_ends_no_process(tmp_path: Path) -> None:
    whole = filled(tmp_path / "db")
    path = tmp_path / "db" / "shard-000" / "data.mdb"
    for size in (len(whole) - 4096, len(whole) // 2, 8192, 100):
        path.write_bytes(whole[:size])
        store = LmdbStore(tmp_path / "db", 1, FAST)
        with pytest.raises(Damaged), store.snapshot(0) as reader:
            reader.get("a", "t", KEYS)
        store.close()


def test_a_shard_that_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "db", 3, FAST)
    with store.transaction(1, ["a"], Stamp(1, 1)) as tx:
        tx.put("a", "t", [b"k"], [b"v"])
    for again in (False, True):
        if again:
            store = LmdbStore(tmp_path / "db", 3, FAST)
        shutil.rmtree(tmp_path / "db" / "shard-001", ignore_errors=True)
        with pytest.raises(Damaged, match="shard-001 is missing"), store.snapshot(1) as reader:
            reader.get("a", "t", [b"k"])
        with pytest.raises(Damaged, match="shard-001 is missing"), store.transaction(1, ["a"], Stamp(1, 2)):
            pass
        with store.snapshot(2) as reader:
            assert reader.get("a", "t", [b"k"]) == [None]
        store.close()
    assert not (tmp_path / "db" / "shard-001").exists()


def test_another_store_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    filled(tmp_path / "two")
    one, two = LmdbStore(tmp_path / "one", 1, FAST), LmdbStore(tmp_path / "two", 1, FAST)
    assert one.identity
    two.must_be(one.identity)
    with pytest.raises(Damaged, match="not the one that the catalog tells of"), two.snapshot(0):
        pass
    one.close()
    two.close()
