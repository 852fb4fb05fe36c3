"""The stored form of a shard: it must not change without a new format."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from umbel.state.environments import Environment, Options
from umbel.state.lmdb_transaction import LmdbReader, LmdbWriter, forget, owners, progress_of, rewind, write_stamps
from umbel.state.port import LAST, Stamp


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Environment]:
    environment = Environment(tmp_path / "shard", Options(map_size=1 << 24, sync=False))
    yield environment
    environment.close()


def write(shard: Environment, stamp: Stamp, entries: dict[bytes, bytes], owner: str = "op") -> None:
    with shard.writing() as tx:
        before = {owner: rewind(tx, owner, stamp)}
        LmdbWriter(tx, [owner], stamp.step).put(owner, "t", list(entries), list(entries.values()))
        write_stamps(tx, before, stamp, undo=True)


def raw(shard: Environment) -> dict[bytes, bytes]:
    with shard.reading() as tx:
        assert tx is not None
        return dict(tx.cursor().iternext())


def test_what_is_stored(shard: Environment) -> None:
    write(shard, Stamp(1, 1), {b"k": b"old"})
    write(shard, Stamp(2, 3, 1), {b"k": b"new", b"": b""})
    found = raw(shard)
    undo = found.pop(b"uop\0" + struct.pack(">IQ", 1, 0))
    assert msgspec.msgpack.decode(undo) == ["t", [b"k", b""], [b"old", None]]
    assert found == {b"dop\0t\0k": b"new", b"dop\0t\0": b"", b"sop": struct.pack(">qqqq", 2, 3, 1, -1)}


def test_each_key_is_saved_once_in_a_step(shard: Environment) -> None:
    write(shard, Stamp(1, 1), {b"a": b"1"})
    with shard.writing() as tx:
        rewind(tx, "op", Stamp(1, 2))
        writer = LmdbWriter(tx, ["op"], 0)
        for turn in range(4):
            writer.put("op", "t", [b"a", b"%d" % turn], [b"x", b"y"])
        writer.delete("op", "t", [b"a", b"0", b"1", b"3"])
    saved = [msgspec.msgpack.decode(value) for key, value in sorted(raw(shard).items()) if key.startswith(b"u")]
    assert [key for _, keys, _ in saved for key in keys] == [b"a", b"0", b"1", b"2", b"3"]
    assert [value for _, _, values in saved for value in values] == [b"1", None, None, None, None]


def test_owners_whose_names_begin_alike_are_apart(shard: Environment) -> None:
    for owner in ("a", "ab", "b"):
        write(shard, Stamp(1, 1), {b"k": owner.encode()}, owner)
    with shard.writing() as tx:
        assert owners(tx) == ["a", "ab", "b"]
        forget(tx, "a")
    with shard.reading() as tx:
        assert tx is not None
        assert owners(tx) == ["ab", "b"]
        assert progress_of(tx, "a") is None
        reader = LmdbReader(tx)
        assert [reader.get(owner, "t", [b"k"]) for owner in ("a", "ab", "b")] == [[None], [b"ab"], [b"b"]]
        assert reader.scan("a", "t", [(b"", LAST)]) == [[]]
        assert reader.scan("a", "t", [(b"", LAST)], reverse=True, limit=1) == [[]]
        assert reader.scan("b", "u", [(b"", LAST)], limit=1) == [[]]
