"""Pieces of compressed text: the same rows and dead letters, whatever the sizes are from plan to plan."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.connectors.reading import Read, read
from umbel.connectors import file_source
from umbel.connectors.file_source import FileSource
from umbel.connectors.files import Files
from umbel.connectors.packed_names import pack
from umbel.formats import chunks, files, unpacking
from umbel.formats.declarations import CSV
from umbel.formats.stored import LocalFile, stamp_of
from umbel.formats.unpacking import Unpacked
from umbel.types.dtypes import Int, Optional, Str

SCHEMA = {"user": Int(), "note": Optional(Str())}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
}
BUDGETS = st.lists(st.integers(1, 3000), min_size=1, max_size=6)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_source, "LEAST_SPLIT", 1)
        for module in (unpacking, files):
            patch.setattr(module, "UNPACKED_BYTES", 100)
        patch.setattr(unpacking, "_PACKED_BYTES", 50)
        patch.setattr(unpacking, "_ZSTD_BYTES", 64)
        patch.setattr(chunks, "CHUNK_BYTES", 150)
        yield


def source(folder: Path, form: Any = "json") -> FileSource:
    return Files(name="f", folder=str(folder)).path("*", form).reader(folder)


def json_line(number: int, random_: random.Random) -> bytes:
    return random_.choice(
        [
            *[json.dumps({"user": number, "note": "x" * random_.randrange(80)}).encode() + b"\n"] * 5,
            b"\n",
            b" \r\n",
            b'{"user": broken\n',
            b'{"user":"no number"}\n',
        ]
    )


def csv_line(number: int, random_: random.Random) -> bytes:
    note = random_.choice([b"plain", b'"with\n a ""break"", and\n\n more"', b"", b'""', b"x" * random_.randrange(80)])
    return random_.choice([*[b"%d,%b\n" % (number, note)] * 5, b"\n", b"1,2,3\n", b"no number,a\r\n"])


def content(form: Any, seed: int, count: int) -> bytes:
    chooser = random.Random(seed)
    made = csv_line if isinstance(form, CSV) else json_line
    lines = b"".join(made(number, chooser) for number in range(count))
    head = b"user,note\n" if isinstance(form, CSV) else b""
    return chooser.choice([b"", b"\xef\xbb\xbf"]) + head + chooser.choice([lines, lines[:-1]])


def packed(data: bytes, seed: int, suffix: str) -> bytes:
    """Return data compressed in one or several members, some of them empty."""
    cuts = sorted(random.Random(seed).randrange(len(data) + 1) for _ in range(random.Random(seed).randrange(4)))
    return b"".join(PACKINGS[suffix](data[begin:end]) for begin, end in zip([0, *cuts], [*cuts, None], strict=True))


def outcome(found: Read) -> tuple[Any, Any]:
    return found.values(), [found.dead[number] for number in sorted(found.dead)]


def places(found: Read) -> list[str]:
    return [found.places[number] for number in sorted(found.places)]


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("form", ["json", CSV()], ids=["json", "csv"])
@given(seed=st.integers(0, 1 << 30), count=st.integers(0, 60), budgets=BUDGETS, in_one_process=st.booleans())
@examples(60)
def test_plans_of_any_sizes_read_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    form: Any,
    seed: int,
    count: int,
    budgets: list[int],
    in_one_process: bool,
) -> None:
    folder, data = tmp_path_factory.mktemp("files"), content(form, seed, count)
    (folder / "a").write_bytes(data)
    plain = read(source(folder, form), SCHEMA)
    (folder / "a").rename(folder / f"a.{suffix}")
    (folder / f"a.{suffix}").write_bytes(packed(data, seed, suffix))
    with pytest.MonkeyPatch.context() as patch:
        if not in_one_process:
            patch.setattr(unpacking.IdleFiles, "take", lambda *_: None)
        at_once, in_pieces = (read(source(folder, form), SCHEMA, budget=each) for each in (1 << 40, budgets))
    assert outcome(in_pieces) == outcome(at_once)
    assert places(in_pieces) == places(at_once)
    assert [place.replace(f"a.{suffix}", "a") for place in places(at_once)] == places(plain)
    assert at_once.values() == plain.values()


@pytest.mark.parametrize("suffix", PACKINGS)
@given(seed=st.integers(0, 1 << 30), budgets=BUDGETS, at=st.floats(0, 1), is_cut=st.booleans())
@examples(60)
def test_damage_is_the_same_dead_letter_in_plans_of_any_sizes(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, seed: int, budgets: list[int], at: float, is_cut: bool
) -> None:
    folder, data = tmp_path_factory.mktemp("files"), content("json", seed, 60)
    whole = packed(data, seed, suffix)
    place = int(at * (len(whole) - 1))
    harmed = whole[:place] if is_cut else whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
    (folder / f"a.{suffix}").write_bytes(harmed)
    at_once, in_pieces = (read(source(folder), SCHEMA, budget=each) for each in (1 << 40, budgets))
    assert outcome(in_pieces) == outcome(at_once)


def lines(count: int) -> bytes:
    chooser = random.Random(count)
    return b"".join(b'{"user":%d,"note":"%x"}\n' % (number, chooser.getrandbits(200)) for number in range(count))


@pytest.mark.parametrize("suffix", PACKINGS)
def test_a_plan_is_bounded_by_the_decompressed_bytes(tmp_path: Path, suffix: str) -> None:
    data = lines(500)
    (tmp_path / f"a.{suffix}").write_bytes(PACKINGS[suffix](data))
    reading, position, sizes = source(tmp_path), None, list[int]()
    while found := (planned := reading.plan(position, 2000))[0]:
        ((_, size),), position = found, planned[1]
        sizes.append(size)
    assert sum(sizes) == len(data)
    assert max(sizes) < 2000 + 100


@pytest.mark.parametrize("suffix", PACKINGS)
def test_each_piece_goes_on_where_the_one_before_ends(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Unpacked]()

    class Counted(Unpacked):
        def __init__(self, stored: Any) -> None:
            super().__init__(stored)
            opened.append(self)

    monkeypatch.setattr(unpacking, "Unpacked", Counted)
    (tmp_path / f"a.{suffix}").write_bytes(PACKINGS[suffix](lines(200)))
    assert len(read(source(tmp_path), SCHEMA, budget=500).rows) == 200
    assert len(opened) == 2  # the planner's, and the reader's
    assert all(each._file.closed for each in opened)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    path = tmp_path / f"a.{suffix}"
    with unpacking.unpacked(LocalFile(path, stamp_of(path.stat())), 0) as file:
        file.read(10)
    monkeypatch.undo()
    assert unpacking._IDLE.take(file.identity, 1 << 40) is None  # it is of another process


def test_files_whose_next_piece_does_not_come_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, opened, now = unpacking.IdleFiles(), list[Unpacked](), [0.0]
    monkeypatch.setattr(unpacking, "MOST_IDLE", 2)
    monkeypatch.setattr(unpacking.time, "monotonic", lambda: now[0])

    def add(name: str) -> None:
        (tmp_path / name).write_bytes(gzip.compress(b"a\n"))
        opened.append(Unpacked(LocalFile(tmp_path / name, stamp_of((tmp_path / name).stat()))))
        idle.add(opened[-1])

    for number in range(3):
        add(f"{number}.gz")
    assert [each._file.closed for each in opened] == [True, False, False]
    now[0] = unpacking.IDLE_SECONDS + 1
    add("3.gz")
    assert [each._file.closed for each in opened] == [True, True, True, False]
    assert idle.take(opened[3].identity, 0) is opened[3]


@pytest.mark.parametrize("suffix", PACKINGS)
def test_what_is_left_of_a_begun_file_is_estimated_by_its_compressed_bytes(tmp_path: Path, suffix: str) -> None:
    """The offset in its content, which is larger than the file, was taken off: nothing was left soon."""
    (tmp_path / f"a.{suffix}").write_bytes(PACKINGS[suffix](lines(10_000)))
    reading, whole = source(tmp_path), (tmp_path / f"a.{suffix}").stat().st_size
    left, position = list[int](), None
    while (planned := reading.plan(position, 20_000))[0]:
        position = planned[1]
        left.append(reading.measure(position).bytes or 0)
        assert (reading.lag(position).bytes or 0) == left[-1]
    assert left == sorted(left, reverse=True)
    assert whole > left[0] > whole * 0.75
    assert all(left[:-1])
    assert left[-1] == 0
    assert left[len(left) // 2] == pytest.approx(whole / 2, abs=whole / 4)


@pytest.mark.parametrize("suffix", PACKINGS)
def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path, suffix: str) -> None:
    path, reading = tmp_path / f"a.{suffix}", source(tmp_path)
    path.write_bytes(PACKINGS[suffix](lines(200)))
    found = Read()
    for _ in range(2):
        splits, found.position = reading.plan(found.position, 500)
        read_split(reading, splits, found)
    before = dict(found.rows)
    splits, later = reading.plan(found.position, 500)
    (tmp_path / "new.tmp").write_bytes(PACKINGS[suffix](lines(300)))
    (tmp_path / "new.tmp").rename(path)
    read_split(reading, splits, found)
    assert found.rows == before
    assert ["the file was changed before it was read" in reason for reason in found.reasons()] == [True]
    found.position = later
    read(reading, SCHEMA, into=found)
    assert found.rows == before
    assert ["the file was changed while it was read" in reason for reason in found.reasons()[1:]] == [True]
    assert read(reading, SCHEMA, into=found).rows == before


def read_split(reading: FileSource, splits: Any, found: Read) -> None:
    """Read planned splits, as another process does that has them as JSON."""
    planned = replace(reading)
    for split, _ in splits:
        for batch in planned.open(json.loads(json.dumps(split)), SCHEMA, exact=True):
            refused = batch.raw.rejects["row"].to_list()
            for row, values in enumerate(batch.raw.frame.iter_rows(named=True)):
                number = batch.first + row
                if row in refused:
                    found.dead[number] = (batch.where(row), batch.raw.rejects["reason"][0], b"")
                else:
                    found.rows[number] = values


@pytest.mark.parametrize("suffix", PACKINGS)
def test_plans_and_positions_of_older_versions(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(PACKINGS[suffix](lines(20)))
    stamp = stamp_of(path.stat())
    split = {"file": path.name, "number": 3, "begin": 0, "end": None, "stamp": list(stamp)}
    (batch,) = source(tmp_path).open(split, SCHEMA, exact=True)
    assert (batch.first, batch.raw.frame.height) == (3 << 36, 20)
    position = {"done": pack([path.name]), "begun": None, "count": 1, "newest": ""}
    assert source(tmp_path).plan(position, 10)[0] == []


@pytest.mark.parametrize("suffix", PACKINGS)
def test_an_empty_file_has_no_rows(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(b"")
    (tmp_path / f"b.{suffix}").write_bytes(PACKINGS[suffix](b""))
    for budget in (1, 1 << 40):
        found = read(source(tmp_path), SCHEMA, budget=budget)
        assert (found.rows, found.dead) == ({}, {})


@pytest.mark.parametrize("suffix", PACKINGS)
def test_a_file_that_ends_before_a_piece_is_a_dead_letter(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(PACKINGS[suffix](lines(20)))
    split = {"file": f"a.{suffix}", "number": 0, "begin": 10_000, "end": None}
    (batch,) = source(tmp_path).open(split, SCHEMA, exact=True)
    size = len(lines(20))
    reason = f"the file ends at byte {size} of its content, and was planned from byte 10000 on"
    assert batch.raw.rejects["reason"].to_list() == [reason]
