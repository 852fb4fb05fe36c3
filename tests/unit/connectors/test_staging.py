"""Staged rows are found again as they were written, or reported as damaged."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from umbel.connectors import staging
from umbel.connectors.sql.rows import AT, OP, START
from umbel.connectors.staged_source import IDENTITY
from umbel.connectors.staging import Stage, folder_of
from umbel.errors import Damaged

ROWS = pl.DataFrame({"a": ["x", None, "y"]})


def test_parts_are_numbered_and_so_are_rows(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.last() is None
    for _ in range(3):
        stage.append(ROWS, {"high": "5"})
    assert [stage.part(number).first for number in Stage(tmp_path).numbers()] == [0, 3, 6]
    assert Stage(tmp_path).read(2).equals(ROWS)
    assert Stage(tmp_path).part(3).facts == {"high": "5"}


def test_numbers_go_on_after_parts_expired(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for _ in range(3):
        stage.append(ROWS, {})
    stage.expire(3)
    assert stage.numbers() == [1, 2, 3]  # too young
    for path in tmp_path.glob("*.rows"):
        os.utime(path, (0, 0))
    stage.expire(2)
    assert stage.numbers() == [2, 3]
    stage.expire(99)
    assert stage.numbers() == [3]
    assert Stage(tmp_path).append(ROWS, {}).number == 4
    assert Stage(tmp_path).part(4).first == 9


@pytest.mark.parametrize("at", [9, 14, 30, -3])
def test_a_changed_byte_is_damage(tmp_path: Path, at: int) -> None:
    Stage(tmp_path).append(ROWS, {})
    (path,) = tmp_path.glob("*.rows")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=r"part 1 .* cannot be read"):
        Stage(tmp_path).read(1)


def test_a_missing_part_is_damage(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="it is missing"):
        Stage(tmp_path).read(1)


def test_state_is_replaced(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.state() == {}
    stage.save({"a": 1})
    stage.save({"b": 2})
    assert Stage(tmp_path).state() == {"b": 2}


def test_sources_have_folders_of_their_own(tmp_path: Path) -> None:
    assert folder_of(tmp_path, "A@1/0#x") != folder_of(tmp_path, "A@1/0#y")
    assert folder_of(tmp_path, "A@1/0#x").name.startswith("A-1-0-")


@pytest.mark.parametrize("gone", [[True, False, True, False], [True] * 4, [False, False, False, True]])
def test_redacted_values_are_in_no_buffer(tmp_path: Path, gone: list[bool]) -> None:
    """Columns of texts share buffers with what they were made of; so the values were still in the file."""
    words = [f"word {n} is longer than twelve bytes" for n in range(4)]
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "text": words,
            "bytes": [word.upper().encode() for word in words],
            "list": [[f"in list {word}", None] for word in words],
            "struct": [{"a": f"in struct {word}", "b": [n]} for n, word in enumerate(words)],
            "number": [1_234_567_890_123 + n for n in range(4)],
            "at": pl.Series([at + timedelta(microseconds=n) for n in range(4)]).cast(pl.Datetime("ns", "UTC")),
            "some": [1.5, None, 2.5, None],
        }
    )
    stage = Stage(tmp_path / "staged")
    stage.append(rows, {})
    assert stage.redact(lambda _: pl.Series(gone)) == sum(gone)
    found = stage.read(1)
    assert found.schema == rows.schema
    nothing = dict.fromkeys(rows.columns)
    assert found.to_dicts() == [nothing if out else row for out, row in zip(gone, rows.to_dicts(), strict=True)]
    content = next((tmp_path / "staged").glob("*.rows")).read_bytes()
    for n, word in enumerate(words):
        for value in (word, word.upper(), f"in list {word}", f"in struct {word}"):
            assert (value.encode() in content) <= (not gone[n]), value
        assert ((1_234_567_890_123 + n).to_bytes(8, "little") in content) <= (not gone[n])
    assert stage.redact(lambda _: pl.Series(gone)) == 0


def test_a_changed_byte_of_a_state_is_damage_wherever_it_is(tmp_path: Path) -> None:
    """A digit of an offset: rows were read twice, or never."""
    stage = Stage(tmp_path)
    stage.save({"offsets": {"a": 1200, 7: [1, None, "é"]}, "polled_at": 1234.5, "loaded": True})
    saved, path = stage.state(), tmp_path / "state.json"
    assert saved == {"offsets": {"a": 1200, "7": [1, None, "é"]}, "polled_at": 1234.5, "loaded": True}
    whole = path.read_bytes()
    for place in range(len(whole)):
        for change in (1, 4, 128):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
            with suppress(Damaged):  # unless it is in the name of the checksum itself
                found = Stage(tmp_path).state()
                assert {name: found[name] for name in saved} == saved
    for text in (b"", b"[]", b"5", whole[:-9]):
        path.write_bytes(text)
        with pytest.raises(Damaged, match=r"state\.json of"):
            Stage(tmp_path).state()
    path.write_text('{"part": 4}')  # as older versions wrote it
    assert Stage(tmp_path).state() == {"part": 4}


def test_a_state_that_must_have_been_there_is_damage(tmp_path: Path) -> None:
    """Where parts were deleted, a state said how far they were read: without it a source began anew."""
    stage = Stage(tmp_path)
    for _ in range(3):
        stage.append(ROWS, {})
    assert Stage(tmp_path).state() == {}
    (tmp_path / "000000000001.rows").unlink()
    with pytest.raises(Damaged, match="it is missing"):
        Stage(tmp_path).state()


def test_parts_of_older_versions_have_the_names_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of the table may have had one of them."""
    stage = Stage(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(staging, "FORM", 1)
        stage.append(pl.DataFrame({"_identity": ["x"], "_op": ["i"], "_committed": [1], "_start": [2]}), {})
        stage.append(pl.DataFrame({"_committed": ["x"], "_identity": [1]}), {})
    stage.append(pl.DataFrame({"_op": ["x"], "_committed": [1], "_start": [2], IDENTITY: [3]}), {})
    names = [Stage(tmp_path).read(number).columns for number in (1, 2, 3)]
    assert names == [
        ["_identity", OP, AT, START],
        ["_committed", IDENTITY],
        ["_op", "_committed", "_start", IDENTITY],
    ]
    assert Stage(tmp_path).read(2, [IDENTITY]).to_dict(as_series=False) == {IDENTITY: [1]}


def test_a_part_that_is_missing_behind_others_is_damage(tmp_path: Path) -> None:
    """Those that expired are not."""
    stage = Stage(tmp_path)
    for _ in range(4):
        stage.append(ROWS, {})
    stage.save({"offset": 4})
    for path in tmp_path.glob("*.rows"):
        os.utime(path, (0, 0))
    stage.expire(2)
    Stage(tmp_path).check()
    assert Stage(tmp_path).state() == {"offset": 4}
    (tmp_path / "000000000003.rows").unlink()
    with pytest.raises(Damaged, match=r"part 3 of .* is missing"):
        Stage(tmp_path).check()
    stage.expire(99)
    Stage(tmp_path).check()
    assert Stage(tmp_path).numbers() == [4]
    assert Stage(tmp_path).state() == {"offset": 4}
    (tmp_path / "000000000004.rows").unlink()
    with pytest.raises(Damaged, match=r"part 4 of .* is missing"):
        Stage(tmp_path).state()


def test_a_part_that_is_written_while_the_folder_is_listed_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of a large folder may have a file that is newer than one it lacks."""
    stage, listings = Stage(tmp_path), [[1, 3], [1, 2, 3]]
    for _ in range(3):
        stage.append(ROWS, {})
    monkeypatch.setattr(os, "listdir", lambda _: [f"{number:012d}.rows" for number in listings.pop(0)])
    assert stage.numbers() == [1, 2, 3]


def test_parts_are_listed_once_to_know_how_much_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of ten minutes were listed for each new one: 3,000 pages took ten seconds, and the next 3,000 thirty."""
    listings = list[Path]()
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: listings.append(folder) or listdir(folder))
    stage, rows = Stage(tmp_path), pl.DataFrame({"a": [1]})
    sizes = [stage.append(rows, {"n": "x" * number}).size for number in range(20)]
    stage = Stage(tmp_path)
    assert stage.size_after(3) == sum(sizes[3:])
    listings.clear()
    for number in range(20, 40):
        sizes.append(stage.append(rows, {"n": "x" * number}).size)
        assert stage.size_after(number - 10) == sum(sizes[number - 10 :])
    assert len(listings) <= 1
    assert stage.size_after(40) == 0
    assert Stage(tmp_path).size_after(0) == sum(sizes)
