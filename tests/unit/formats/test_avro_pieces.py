"""Pieces of Avro files: the same rows, numbers and dead letters, whatever the sizes are from plan to plan."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.connectors.reading import Read, read
from tests.unit.formats.avro_writing import LIST, SYNC, container, number, record, written
from umbel.connectors import file_source
from umbel.connectors.file_source import FileSource
from umbel.connectors.files import Files
from umbel.formats import avro_files
from umbel.types.dtypes import Embedding, Int, Str

VECTORS = {"n": Int(), "v": Embedding(2)}
SCHEMA = {"n": Int(), "s": Str()}
ROW = record(("n", "long"), ("s", "string"))
DAY = record(("n", "long"), ("s", "string"), ("v", {"type": "int", "logicalType": "date"}))
BUDGETS = st.lists(st.integers(1, 2000), min_size=1, max_size=6)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_source, "LEAST_SPLIT", 1)
        patch.setattr(avro_files, "ROWS", 7)
        yield


def source(folder: Path, split_bytes: int = 1 << 40) -> FileSource:
    return replace(Files(name="f", folder=str(folder)).path("*.avro", "avro").reader(folder), split_bytes=split_bytes)


def texts(count: int, seed: int) -> list[str]:
    chooser = random.Random(seed)
    return ["".join(chooser.choices("abcdef", k=chooser.randrange(60))) for _ in range(count)]


def both(folder: Path, budgets: Any, split_bytes: int = 1 << 40) -> tuple[Read, Read]:
    """Return what is read of files at once, and in plans of some sizes."""
    at_once, in_pieces = source(folder), source(folder, split_bytes)
    found = read(at_once, SCHEMA), read(in_pieces, SCHEMA, budget=budgets)
    assert found[0].locations(at_once) == found[1].locations(in_pieces)
    return found


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
@given(
    seed=st.integers(0, 1 << 30),
    count=st.integers(0, 80),
    interval=st.sampled_from([1, 60, 500, 100_000]),
    budgets=BUDGETS,
    split_bytes=st.integers(1, 3000),
)
@examples(40)
def test_plans_of_any_sizes_read_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    codec: str,
    seed: int,
    count: int,
    interval: int,
    budgets: list[int],
    split_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    rows = [{"n": n, "s": text} for n, text in enumerate(texts(count, seed))]
    for name, part in (("a.avro", rows[: count // 2]), ("b.avro", rows[count // 2 :])):
        (folder / name).write_bytes(written(ROW, part, codec, sync_interval=interval))
    at_once, in_pieces = both(folder, budgets, split_bytes)
    assert at_once.values() == [(row["n"], row["s"]) for row in rows]
    assert (in_pieces.rows, in_pieces.places) == (at_once.rows, at_once.places)
    assert in_pieces.dead == at_once.dead == {}


@pytest.mark.parametrize("schema", [ROW, DAY], ids=["plain", "values without their type"])
@given(
    seed=st.integers(0, 1 << 30),
    interval=st.sampled_from([1, 100, 500, 100_000]),
    budgets=BUDGETS,
    at=st.floats(0, 1),
    byte=st.integers(0, 255),
)
@examples(150)
def test_damage_is_the_same_dead_letter_in_plans_of_any_sizes(
    tmp_path_factory: pytest.TempPathFactory,
    schema: Any,
    seed: int,
    interval: int,
    budgets: list[int],
    at: float,
    byte: int,
) -> None:
    folder, chooser = tmp_path_factory.mktemp("files"), random.Random(seed)
    rows = [{"n": n, "s": text, "v": 7} for n, text in enumerate(texts(60, seed))]
    whole = written(schema, rows, "null", sync_interval=interval)
    place = int(at * (len(whole) - 1))
    harmed = whole[:place] + bytes([byte]) + whole[place + 1 :]
    (folder / "a.avro").write_bytes(chooser.choice([harmed, harmed, whole[:place]]))
    at_once, in_pieces = both(folder, budgets)
    assert in_pieces.dead == at_once.dead
    assert (in_pieces.rows, in_pieces.places) == (at_once.rows, at_once.places)


def blocks(*contents: bytes, count: int = 4) -> bytes:
    whole = container(ROW, count, contents[0])
    return whole + b"".join(number(count) + number(len(each)) + each + SYNC for each in contents[1:])


@pytest.mark.parametrize("budget", [1, 10, 1 << 40])
def test_a_damaged_record_costs_the_rest_of_its_block(tmp_path: Path, budget: int) -> None:
    """It was the end of the file."""
    good = [b"".join(number(n) + number(2) + b"ab" for n in range(first, first + 4)) for first in (0, 4, 8)]
    bad = good[1][:4] + number(5) + number(-3) + good[1][8:]
    (tmp_path / "a.avro").write_bytes(blocks(good[0], bad, good[2]))
    reading = source(tmp_path)
    found = read(reading, SCHEMA, budget=budget)
    assert [row["n"] for _, row in sorted(found.rows.items())] == [0, 1, 2, 3, 4, 8, 9, 10, 11]
    assert sorted(found.rows) == [0, 1, 2, 3, 4, 8, 9, 10, 11]
    ((at, (place, reason, _)),) = found.dead.items()
    assert (at, place) == (5, "a.avro: row 5")
    assert reason.startswith("not a readable Avro file: record 1 of a block, with which 3 are lost: ")
    assert found.locations(reading)[8] == "a.avro: row 8"


@pytest.mark.parametrize("budget", [1, 1 << 40])
def test_records_of_any_depth_go_on_with_the_next_block(tmp_path: Path, budget: int) -> None:
    one, cut = number(7) + number(0), number(7) + number(1)
    whole = container(LIST, 2, one + cut) + number(1) + number(2) + one + SYNC
    (tmp_path / "a.avro").write_bytes(whole)
    found = read(source(tmp_path), {"n": Int()}, budget=budget)
    assert (sorted(found.rows), sorted(found.dead)) == ([0, 2], [1])


def test_a_plan_is_bounded_by_the_decompressed_bytes(tmp_path: Path) -> None:
    rows = [{"n": n, "s": "a" * 1000} for n in range(300)]
    (tmp_path / "a.avro").write_bytes(written(ROW, rows, "deflate", sync_interval=4000))
    reading, position, sizes, left = source(tmp_path, 8000), None, list[int](), list[int]()
    whole = (tmp_path / "a.avro").stat().st_size
    while found := (planned := reading.plan(position, 20_000))[0]:
        position = planned[1]
        sizes.append(sum(size for _, size in found))
        left.append(reading.measure(position).bytes or 0)
    assert sum(sizes) == pytest.approx(300 * 1000, rel=0.05)
    assert max(sizes) < 30_000
    assert left == sorted(left, reverse=True)
    assert left[len(left) // 2] == pytest.approx(whole / 2, rel=0.2)


def test_a_piece_of_a_damaged_schema_is_one(tmp_path: Path) -> None:
    whole = written(ROW, [{"n": n, "s": "a" * 100} for n in range(50)], sync_interval=200)
    (tmp_path / "a.avro").write_bytes(whole.replace(b'"long"', b'"lung"'))
    found = read(source(tmp_path), SCHEMA, budget=100)
    assert (found.rows, [place for place, _, _ in found.dead.values()]) == ({}, ["a.avro: byte 0"])


@pytest.mark.parametrize("split", [{"begin": 0, "end": None}])
def test_plans_of_older_versions(tmp_path: Path, split: Any) -> None:
    (tmp_path / "a.avro").write_bytes(written(ROW, [{"n": n, "s": "a"} for n in range(50)], sync_interval=20))
    found = list(source(tmp_path).open({"file": "a.avro", "number": 2, **split}, SCHEMA, exact=True))
    assert [each.first - (2 << 36) for each in found] == list(range(0, 50, 7))
    assert sum(each.raw.frame.height for each in found) == 50


def test_records_are_not_searched_for_cycles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_files, "ROWS", 65_536)
    lists = [{"n": row, "v": [1.5, 2.5]} for row in range(20_000)]
    (tmp_path / "a.avro").write_bytes(
        written(record(("n", "long"), ("v", {"type": "array", "items": "double"})), lists)
    )
    phases = list[str]()
    gc.callbacks.append(collected := lambda phase, _: phases.append(phase))
    try:
        found = [
            batch
            for split, _ in source(tmp_path).plan(None, 1 << 40)[0]
            for batch in source(tmp_path).open(split, VECTORS, exact=True)
        ]
    finally:
        gc.callbacks.remove(collected)
    assert found[0].raw.frame["v"][-1] == [1.5, 2.5]
    assert phases.count("start") < 5, "28, one for each 700 lists"
