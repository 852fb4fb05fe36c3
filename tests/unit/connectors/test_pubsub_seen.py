"""Ids of messages are known for two hours of reading, whatever happens to the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from umbel.connectors.pubsub.seen import BUCKET, BUCKETS, CLOCK, SeenIds
from umbel.log.environments import HARM, erase_environment


@contextmanager
def opened(folder: Path) -> Iterator[SeenIds]:
    seen = SeenIds(folder)
    try:
        yield seen
    finally:
        seen.close()


def test_ids_are_known_again_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as seen:
        seen.add(["1", "2", "ä"], 7, 0.0)
    with opened(tmp_path) as seen:
        assert seen.part == 7
        assert seen.known(["2", "3", "ä", "x"]) == {"2", "ä"}


def test_ids_are_forgotten_by_the_time_of_reading(tmp_path: Path) -> None:
    for hour in range(12):
        with opened(tmp_path) as seen:
            seen.add([str(hour), "again"], hour, BUCKET * 2)
            found = seen.known([*map(str, range(12)), "again"])
            assert "again" in found
            assert {str(each) for each in range(max(0, hour - 1), hour + 1)} <= found
            assert len(found) <= 1 + BUCKETS
    with opened(tmp_path) as seen:  # any time may have passed: nobody read
        assert str(hour) in seen.known([str(hour)])


def test_the_last_part_does_not_go_back(tmp_path: Path) -> None:
    with opened(tmp_path) as seen:
        seen.add(["1"], 7, 0.0)
        seen.add(["1"], 5, 0.0)
        assert seen.part == 7


@pytest.mark.parametrize("content", [b"", b"garbage" * 5000, None])
def test_a_damaged_file_is_an_error_and_no_crash(tmp_path: Path, content: bytes | None) -> None:
    with opened(tmp_path / "seen") as seen:
        seen.add(map(str, range(10_000)), 1, 0.0)
    file = tmp_path / "seen" / "data.mdb"
    file.write_bytes(file.read_bytes()[:20_000] if content is None else content)
    try:
        with opened(tmp_path / "seen") as seen:
            assert seen.is_new, "an empty file is a new one"
    except HARM:
        erase_environment(tmp_path / "seen")
        with opened(tmp_path / "seen") as seen:
            assert seen.known(["1"]) == set()


@pytest.mark.parametrize("size", [None, 0, 8192])
def test_a_file_that_is_cut_while_it_is_used_is_an_error_and_no_crash(tmp_path: Path, size: int | None) -> None:
    with opened(tmp_path) as seen:
        seen.add(map(str, range(10_000)), 1, 0.0)
        if size is None:
            (tmp_path / "data.mdb").unlink()
        else:
            os.truncate(tmp_path / "data.mdb", size)
        with pytest.raises(HARM):
            seen.known(["1"])


def lets_none_in(folder: Path, ids: list[str]) -> bool:
    """Return whether all ids are known, or the damage is seen."""
    try:
        with opened(folder) as seen:
            return all(seen.known([each]) == {each} for each in ids)
    except HARM:
        return True


def test_a_flipped_bit_makes_no_delivered_message_new(tmp_path: Path) -> None:
    ids = [f"{number:016}" for number in range(500)]
    with opened(tmp_path) as seen:
        seen.add(ids, 7, 0.0)
        seen.add(["later"], 8, BUCKET)
    file = tmp_path / "data.mdb"
    whole = file.read_bytes()
    flips = [(each.encode(), byte, bit) for each in ids[::50] for byte, bit in ((0, 8), (15, 1), (16, 4))]
    for key, byte, bit in [*flips, (CLOCK, 0, 1), (CLOCK, 12, 4), (CLOCK, 13, 1), (b"%012d" % 0, 11, 4)]:
        data = bytearray(whole)
        at = data.find(key)
        assert at > 0
        while at > 0:  # parents of pages, and earlier pages, have some, too
            data[at + byte] ^= bit
            at = data.find(key, at + 1)
        file.write_bytes(data)
        assert lets_none_in(tmp_path, ids)
    file.write_bytes(whole)
    with opened(tmp_path) as seen:
        assert seen.known([*ids, "0", "no"]) == set(ids)


def test_ids_of_an_older_version_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, opened(tmp_path) as seen:
        patch.setattr("umbel.connectors.pubsub.seen.sealed", lambda _, value: value)
        seen.add(map(str, range(100)), 7, BUCKET * 3)
    with opened(tmp_path) as seen:
        assert (seen.part, seen.is_new) == (7, False)
        assert seen.known(["7", "99", "100"]) == {"7", "99"}
        seen.add(["100"], 8, 1.0)
    with opened(tmp_path) as seen:
        assert (seen.part, seen.known(["7", "99", "100", "101"])) == (8, {"7", "99", "100"})
