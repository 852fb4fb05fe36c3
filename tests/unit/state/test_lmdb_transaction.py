"""The stored form of a shard: it must not change without a new format."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from umbel.state import lmdb_checks
from umbel.state.environments import Environment, Options
from umbel.state.lmdb_checks import sealed
from umbel.state.lmdb_transaction import (
    LmdbReader,
    LmdbWriter,
    forget,
    progress_of,
    rewind,
    state_ids,
    write_stamps,
)
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
        entries = dict(tx.cursor().iternext())
    assert entries.pop(b"e", None) in (sealed(b"e", b""), None)
    assert all(value == sealed(key, value[:-4]) for key, value in entries.items())
    return {key: value[:-4] for key, value in entries.items()}


def test_what_is_stored(shard: Environment) -> None:
    write(shard, Stamp(1, 1), {b"k": b"old"})
    write(shard, Stamp(2, 3, 1), {b"k": b"new", b"": b""})
    found = raw(shard)
    undo = found.pop(b"uop\0" + struct.pack(">IQ", 1, 0))
    assert msgspec.msgpack.decode(undo) == ["t", [b"k", b""], [sealed(b"dop\0t\0k", b"old"), None]]
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
    assert [value for _, _, values in saved for value in values] == [sealed(b"dop\0t\0a", b"1"), None, None, None, None]


def test_owners_whose_names_begin_alike_are_apart(shard: Environment) -> None:
    for owner in ("a", "ab", "b"):
        write(shard, Stamp(1, 1), {b"k": owner.encode()}, owner)
    with shard.writing() as tx:
        assert state_ids(tx) == ["a", "ab", "b"]
        forget(tx, "a")
    with shard.reading() as tx:
        assert tx is not None
        assert state_ids(tx) == ["ab", "b"]
        assert progress_of(tx, "a") is None
        reader = LmdbReader(tx)
        assert [reader.get(owner, "t", [b"k"]) for owner in ("a", "ab", "b")] == [[None], [b"ab"], [b"b"]]
        assert reader.scan("a", "t", [(b"", LAST)]) == [[]]
        assert reader.scan("a", "t", [(b"", LAST)], reverse=True, limit=1) == [[]]
        assert reader.scan("b", "u", [(b"", LAST)], limit=1) == [[]]


def test_a_large_neighbour_of_many_ranges_is_verified_once(shard: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of ranges meet the same entry again and again; its checksum must not be computed for each of them."""
    with shard.writing() as tx:
        writer = LmdbWriter(tx, ["a", "b"], None)
        writer.put("a", "t", [b"last"], [b"x" * 100_000])
        writer.put("b", "t", [b"%06d" % number for number in range(0, 2_000, 2)], [b"y"] * 1_000)
    read = [0]
    crc32 = zlib.crc32

    def counted(data: bytes, value: int = 0) -> int:
        read[0] += len(data)
        return crc32(data, value)

    monkeypatch.setattr(lmdb_checks.zlib, "crc32", counted)
    with shard.reading() as tx:
        ranges = [(b"%06d" % number, b"%06d" % (number + 1)) for number in range(1, 2_000, 2)]
        found = LmdbReader(tx).scan("b", "t", [(b"", b"0"), *ranges])
        assert [len(each) for each in found] == [0] * 1_001
        assert LmdbReader(tx).scan("b", "t", [(b"", b"0")] * 1_000) == [[]] * 1_000
    assert read[0] < 10 * 100_000
