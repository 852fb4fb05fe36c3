"""Files: what is planned, in which order, how often; and what comes of broken files."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.connectors.reading import Read, read
from umbel.connectors import file_source, known_files
from umbel.connectors.file_source import FileSource
from umbel.connectors.files import Files
from umbel.connectors.known_files import FILE_SHIFT
from umbel.connectors.packed_names import pack, pack_stamps, unpack, unpack_stamps
from umbel.errors import Transient
from umbel.formats import chunks, delimited, files, json_lines, unpacking
from umbel.formats.declarations import CSV
from umbel.types.dtypes import Float, Int, Optional, Str

SCHEMA = {"user": Int(), "note": Optional(Str())}


def source(folder: Path, pattern: str = "**/*", form: Any = "json", split_bytes: int = 32 << 20) -> FileSource:
    return replace(Files(name="f", folder=str(folder)).path(pattern, form).reader(folder), split_bytes=split_bytes)


def lines(users: Any) -> bytes:
    return b"".join(json.dumps({"user": user, "note": f"n{user}"}).encode() + b"\n" for user in users)


def users(found: Read) -> list[int]:
    return [value[0] for value in found.values()]


@pytest.fixture(params=[64, 1000], ids=["chunks shorter than rows", "chunks longer than rows"])
def small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 64)
    monkeypatch.setattr(delimited, "CHUNK_BYTES", 64)
    for module in (unpacking, files):
        monkeypatch.setattr(module, "UNPACKED_BYTES", 64)
    monkeypatch.setattr(files, "LARGE_CHUNK_BYTES", request.param)
    for module in (chunks, delimited, json_lines):
        monkeypatch.setattr(module, "MAX_ROW", 400)


# ---- planning


def test_files_are_read_once_in_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, user in (("b/1.json", 2), ("a.json", 1), ("c.json", 3)):
        (tmp_path / name).write_bytes(lines([user]))
    found = read(source(tmp_path), SCHEMA)
    assert users(found) == [1, 2, 3]
    assert [number >> FILE_SHIFT for number in sorted(found.rows)] == [0, 1, 2]
    (tmp_path / "aa.json").write_bytes(lines([4]))
    read(source(tmp_path), SCHEMA, into=found)
    assert users(found) == [1, 2, 3, 4]


def test_files_are_measured_by_a_listing(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_bytes(lines(range(10)))
    reader, size = source(tmp_path), len(lines(range(10)))
    assert (reader.measure(None).rows, reader.measure(None).bytes) == (None, 3 * size)
    position: Any = None
    for done in range(1, 4):
        _, position = reader.plan(position, size)
        assert reader.measure(position).bytes == (3 - done) * size
    half = source(tmp_path, split_bytes=size // 2)
    _, position = half.plan(None, size // 2)
    assert 2 * size < (half.measure(position).bytes or 0) < 3 * size
    assert source(tmp_path / "nowhere").measure(None).bytes == 0


def test_unfinished_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    for name in (".a.json", "_b.json", "c.tmp", "d.part", "_temporary/e.json", ".git/f.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(lines([0]))
    (tmp_path / "g.json").write_bytes(lines([1]))
    assert users(read(source(tmp_path), SCHEMA)) == [1]


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    later = source(tmp_path / "later")
    assert read(later, SCHEMA).values() == []
    assert later.trouble == f"folder {tmp_path / 'later'}: No such file or directory"
    (tmp_path / "later").write_text("")
    assert later.trouble == f"folder {tmp_path / 'later'}: Not a directory"
    (tmp_path / "later").unlink()
    (tmp_path / "later").mkdir()
    assert later.trouble == ""


@given(sizes=st.lists(st.integers(0, 30), max_size=6), budget=st.integers(1, 400), split=st.integers(5, 300))
@examples(20)
def test_any_budget_reads_every_row_once_with_the_same_number(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], budget: int, split: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for name, size in enumerate(sizes):
        (folder / f"{name}.json").write_bytes(lines(range(name * 100, name * 100 + size)))
        (folder / f"{name}.csv").write_bytes(b"user,note\n" + b"".join(b'%d,"a\n,"\n' % user for user in range(size)))
    for pattern, form in (("*.json", "json"), ("*.csv", CSV())):
        at_once = read(source(folder, pattern, form, split), SCHEMA)
        in_parts = read(source(folder, pattern, form, split), SCHEMA, budget=budget)
        assert at_once.dead == {}
        assert in_parts.rows == at_once.rows
        assert len(at_once.rows) == sum(sizes)


def test_a_budget_bounds_a_plan(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(lines(range(1000)))
    reading = source(tmp_path, split_bytes=1000)
    splits, position = reading.plan(None, 2500)
    assert [weight for _, weight in splits] == [1000] * 3
    assert json.loads(json.dumps([splits, position])) == [[list(each) for each in splits], position]
    assert position["begun"] == ["a.json", 3000]


def test_a_begun_file_is_finished_first(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(lines(range(100)))
    reading = source(tmp_path, split_bytes=500)
    found = Read()
    splits, found.position = reading.plan(None, 600)
    (tmp_path / "a.json").write_bytes(lines([500]))
    later, _ = reading.plan(found.position, 1 << 30)
    assert [split["file"] for split, _ in later] == ["b.json"] * (len(later) - 1) + ["a.json"]
    assert {split["number"] for split, _ in splits + later[:-1]} == {0}
    assert later[-1][0]["number"] == 1


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_rows_of_a_huge_file_have_numbers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Those behind the first 64 GiB were those of the next file."""
    for module in (known_files, file_source):
        monkeypatch.setattr(module, "FILE_SHIFT", 11)
    data = lines(range(300))
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / "b.json").write_bytes(lines(range(300, 400)))
    assert users(read(source(tmp_path), SCHEMA, budget=1500)) == list(range(400))


def test_rows_of_text_are_located_behind_a_byte(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(data := lines(range(300)))
    reading = source(tmp_path)
    found = read(reading, SCHEMA, budget=1500)
    assert len(found.landmarks) > 2
    places = [
        re.fullmatch(r"a.json: row (\d+)(?: from byte (\d+) on)?", each) for each in found.locations(reading).values()
    ]
    begins = [data.find(b"\n", int(each[2]) - 1) + 1 if each[2] else 0 for each in places if each]
    texts = [data[begin:].splitlines()[int(each[1])] for begin, each in zip(begins, places, strict=True) if each]
    assert texts == data.splitlines()


def test_rows_of_parquet_are_located_in_the_file_whatever_the_plans_are(tmp_path: Path) -> None:
    pl.DataFrame({"user": range(6000)}).write_parquet(
        tmp_path / "a.parquet", row_group_size=1000, compression="uncompressed"
    )
    reading = source(tmp_path, form="parquet")
    found = read(reading, SCHEMA, budget=(20_000, 9_000))
    assert len(found.landmarks) > 2
    expected = [f"a.parquet: row {number}" for number in range(6000)]
    assert [place for _, place in sorted(found.locations(reading).items())] == expected
    assert [place for _, place in sorted(found.places.items())] == expected


def test_many_names_make_a_small_position() -> None:
    names = [f"2013/{day:03d}/part-{number:05d}.json.gz" for day in range(365) for number in range(10)]
    assert unpack(pack(names)) == sorted(names)
    assert len(pack(names)) < len("".join(names)) / 8
    assert unpack(pack([])) == []
    odd = [b"\xff.json".decode(errors="surrogateescape"), "ü \n.json"]
    assert sorted(unpack(pack(odd))) == sorted(odd)


# ---- broken files


def test_empty_files_are_no_rows(tmp_path: Path) -> None:
    for name in ("a.json", "b.json.gz", "c.csv", "d.parquet"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "e.json").write_bytes(b"\n\n  \n")
    (tmp_path / "f.csv").write_bytes(b"user,note\n")
    for pattern, form in (("*.json*", "json"), ("*.csv", CSV()), ("*.parquet", "parquet")):
        found = read(source(tmp_path, pattern, form), SCHEMA)
        assert (found.rows, found.dead) == ({}, {}), pattern


def test_a_gzip_file_cut_anywhere_gives_the_rows_before_the_cut(tmp_path: Path) -> None:
    random.seed(3)
    notes = ["".join(random.choices(string.printable[:90], k=30)) for _ in range(40)]
    whole = b"".join(json.dumps({"user": n, "note": note}).encode() + b"\n" for n, note in enumerate(notes))
    packed = gzip.compress(whole)
    counts = []
    for size in range(1, len(packed), 7):
        (tmp_path / "a.json.gz").write_bytes(packed[:size])
        found = read(source(tmp_path), SCHEMA)
        assert users(found) == list(range(len(found.rows)))
        ((place, reason, _),) = found.dead.values()
        assert "breaks off" in reason
        assert place.startswith("a.json.gz: byte ")
        counts.append(len(found.rows))
    assert counts == sorted(counts)
    assert counts[-1] >= 39
    (tmp_path / "a.json.gz").write_bytes(packed)
    assert len(read(source(tmp_path), SCHEMA).rows) == 40


def test_damaged_gzip_is_an_error_and_several_members_are_read(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(lines(range(2000))))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "a.json.gz").write_bytes(packed)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(lines([1])) + gzip.compress(lines([2])) + b"\0\0")
    (tmp_path / "c.json.gz").write_bytes(lines([3]))
    found = read(source(tmp_path), SCHEMA)
    assert [
        user for number, user in zip(sorted(found.rows), users(found), strict=True) if number >> FILE_SHIFT == 1
    ] == [1, 2]
    assert [place.partition(":")[0] for place, _, _ in found.dead.values()][-2:] == ["a.json.gz", "c.json.gz"]
    assert all("gzip" in reason or "JSON" in reason for reason in found.reasons())


def test_a_file_that_is_gone_is_one_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(lines([1]))
    (tmp_path / "b.json").write_bytes(lines([2]))
    reading = source(tmp_path)
    splits, _ = reading.plan(None, 1 << 30)
    (tmp_path / "a.json").unlink()
    (gone,) = reading.open(splits[0][0], SCHEMA, exact=True)
    assert gone.raw.rejects["reason"].to_list() == ["the file was deleted before it was read"]
    assert [batch.raw.frame.height for batch in reading.open(splits[1][0], SCHEMA, exact=True)] == [1]


def test_a_file_that_cannot_be_read_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_bytes(lines([1]))
    reading = source(tmp_path)
    ((split, _),), _ = reading.plan(None, 1 << 30)
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(Transient, match="Input/output error"):
        list(reading.open(split, SCHEMA, exact=True))


@pytest.mark.parametrize("form", ["json", CSV(headers=["user", "note"])])
def test_a_row_of_ten_megabytes_is_rejected_and_the_rest_is_read(tmp_path: Path, form: Any) -> None:
    long = b"x" * (10 << 20)
    rows = [b'{"user":1}', b'{"user":2,"note":"%s"}' % long, b'{"user":3}']
    if form != "json":
        rows = [b"1,", b"2," + long, b"3,"]
    (tmp_path / "a").write_bytes(b"\n".join(rows))
    found = read(source(tmp_path, "a", form), SCHEMA)
    assert users(found) == [1, 3]
    ((place, reason, raw),) = found.dead.values()
    assert place == f"a: byte {len(rows[0]) + 1}"
    assert "is longer than" in reason
    assert str(10)[:2] in reason
    assert len(raw) >= 64 << 10


def test_long_rows_of_all_sizes(tmp_path: Path, small_chunks: None) -> None:
    sizes = [random.Random(1).choice([1, 50, 100, 300, 380, 420, 900, 3000]) for _ in range(60)]
    (tmp_path / "a").write_bytes(
        b"".join(json.dumps({"user": n, "note": "x" * size}).encode() + b"\n" for n, size in enumerate(sizes))
    )
    (tmp_path / "b").write_bytes(b"".join(b'%d,"%s"\n' % (n, b"x" * size) for n, size in enumerate(sizes)))
    good = [n for n, size in enumerate(sizes) if size < 375]
    for name, form in (("a", "json"), ("b", CSV(headers=["user", "note"]))):
        for split_bytes in (90, 1000, 1 << 30):
            found = read(source(tmp_path, name, form, split_bytes), SCHEMA)
            assert users(found) == [n for n in good if sizes[n] < 375 or n in users(found)]
            assert len(found.rows) + len(found.dead) == len(sizes)
            assert all("longer than" in reason for reason in found.reasons())


def test_where_a_dead_letter_lies_is_where_it_lies(tmp_path: Path, small_chunks: None) -> None:
    rows = [b'{"user":%d}' % n if n % 3 else b'{"user":"bad%d"}' % n for n in range(60)]
    data = b"\n \n".join(rows)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.json").write_bytes(data)
    found = read(source(tmp_path, split_bytes=200), SCHEMA)
    assert len(found.dead) == 20
    for place, _, raw in found.dead.values():
        name, _, byte = place.partition(": byte ")
        assert name == "deep/a.json"
        assert data[int(byte) :].startswith(raw + b"\n") or data[int(byte) :] == raw
        assert json.loads(raw)["user"].startswith("bad")


# ---- formats


def test_a_byte_order_mark_is_no_data(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    (tmp_path / "a.json").write_bytes(mark + lines([1, 2]))
    (tmp_path / "b.csv").write_bytes(mark + b"user,note\n1,x\n")
    (tmp_path / "c.txt").write_bytes(mark + b"1,x\n")
    assert users(read(source(tmp_path, "*.json"), SCHEMA)) == [1, 2]
    assert read(source(tmp_path, "*.csv", CSV()), SCHEMA).values() == [(1, "x")]
    assert read(source(tmp_path, "*.txt", CSV(headers=["user", "note"])), SCHEMA).values() == [(1, "x")]


def test_parquet_is_read_along_its_row_groups(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": range(1000), "note": [f"n{n}" for n in range(1000)], "more": 1.5})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=100)
    reading = source(tmp_path, form="parquet", split_bytes=2000)
    splits, _ = reading.plan(None, 1 << 30)
    assert len(splits) > 3
    assert read(reading, SCHEMA).values() == list(frame.select("user", "note").iter_rows())
    assert read(reading, SCHEMA, budget=1).values() == list(frame.select("user", "note").iter_rows())
    assert "more" in next(iter(reading.open(splits[0][0], SCHEMA, exact=False))).raw.frame.columns
    strict = read(reading, {"user": Int(), "note": Str(), "absent": Float()})
    assert len(strict.dead) == 1000
    assert strict.dead[5][0] == "a.parquet: row 5"
    assert json.loads(strict.dead[5][2]) == {"user": 5, "note": "n5"}
    optional = read(reading, {"user": Int(), "absent": Optional(Float())})
    assert optional.values()[5] == (5, None)


@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_a_damaged_parquet_file_is_one_dead_letter(tmp_path: Path, damage: str) -> None:
    pl.DataFrame({"user": range(1000)}).write_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[:-10] if damage == "cut" else os.urandom(len(whole)))
    pl.DataFrame({"user": [1], "note": ["x"]}).write_parquet(tmp_path / "b.parquet")
    found = read(source(tmp_path, form="parquet"), SCHEMA)
    assert users(found) == [1]
    assert [reason.partition(":")[0] for reason in found.reasons()] == ["not a readable Parquet file"]


# ---- files that change after they were read


def position_after(reader: FileSource, position: Any = None, budget: int = 1 << 30) -> tuple[Any, list[Any]]:
    found, position = reader.plan(json.loads(json.dumps(position)), budget)
    batches = [batch for split, _ in found for batch in reader.open(json.loads(json.dumps(split)), SCHEMA, exact=True)]
    return position, batches


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_that_is_appended_to_is_reported_once_and_not_read_again(tmp_path: Path, name: str) -> None:
    pack_file = gzip.compress if name.endswith(".gz") else bytes
    path = tmp_path / name
    path.write_bytes(pack_file(lines([1, 2])))
    (tmp_path / "b.json").write_bytes(lines([3]))
    os.utime(path, ns=(0, 1_000_000_000))
    position, batches = position_after(source(tmp_path))
    assert sum(batch.raw.frame.height for batch in batches) == 3
    before = path.stat().st_size
    with path.open("ab") as file:
        file.write(pack_file(lines([4])))
    os.utime(path, ns=(0, 2_000_000_000))
    position, batches = position_after(source(tmp_path), position)
    (report,) = batches
    (reason,) = report.raw.rejects["reason"]
    assert "appended to" in reason
    assert f"{before} bytes, modified at 1970-01-01T00:00:01+00:00" in reason
    assert f"{path.stat().st_size} bytes, modified at 1970-01-01T00:00:02+00:00" in reason
    assert report.where(0).startswith(f"{name}: ")
    assert (report.counts, json.loads(report.text(0))["file"]) == ({"changed_files": 1}, name)
    assert position_after(source(tmp_path), position) == (position, [])
    path.write_bytes(b"")
    position, (report,) = position_after(source(tmp_path), position)
    assert "rewritten" in report.raw.rejects["reason"][0]
    assert position_after(source(tmp_path), position)[1] == []


def test_a_position_of_an_older_version_has_files_that_changed_later_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(lines([1]))
    position, _ = position_after(source(tmp_path))
    del position["stamps"]
    (tmp_path / "b.json").write_bytes(lines([2]))
    position, batches = position_after(source(tmp_path), position)
    assert [batch.raw.frame.height for batch in batches] == [1]
    path.write_bytes(lines([1, 3]))
    assert len(position_after(source(tmp_path), position)[1]) == 1


@given(
    st.dictionaries(st.text("abc\udcff/ ü", min_size=1), st.tuples(st.integers(0, 2**63), st.integers(-(2**62), 2**62)))
)
def test_stamps_are_packed_without_loss(stamps: dict[str, tuple[int, int]]) -> None:
    assert unpack_stamps(pack_stamps(stamps)) == stamps
