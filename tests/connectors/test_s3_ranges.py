"""Ranges of objects: how much is requested at once, and what becomes of an object that is overwritten between two of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.connectors.s3_shop import Place, lines, place
from tests.connectors.test_s3_files import SCHEMA, encoded, reader, users
from tests.unit.connectors.reading import Read, read
from umbel.connectors import file_source, objects
from umbel.connectors.objects import ObjectFile
from umbel.formats import chunks, files, unpacking

__all__ = ["place"]


def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 2000 bytes at a time, of which 8000 are a chunk."""
    monkeypatch.setattr(objects, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(objects, "BLOCK", 1000)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2000)
    monkeypatch.setattr(unpacking, "UNPACKED_BYTES", 2000)
    monkeypatch.setattr(files, "LARGE_CHUNK_BYTES", 8000)


def fetched_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that gets the size of each request."""
    sizes, fetch = list[int](), ObjectFile.fetch

    def fetched(file: ObjectFile, begin: int, end: int) -> bytes:
        sizes.append(end - begin)
        return fetch(file, begin, end)

    monkeypatch.setattr(ObjectFile, "fetch", fetched)
    return sizes


def test_a_chunk_of_lines_is_read_in_several_requests(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for 16 MiB was not answered within a minute over a slow line, however often it was tried."""
    sizes = fetched_sizes(monkeypatch)
    in_small_pieces(monkeypatch)
    place.put("raw/a.json", lines(range(1000)))
    assert users(read(reader(place, tmp_path), SCHEMA)) == list(range(1000))
    assert max(sizes) == 2000


def test_an_overwritten_object_is_not_half_read(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_pieces(monkeypatch)
    content = lines(range(1000))
    place.put("raw/a.json", content)
    source = reader(place, tmp_path)
    ((split, _),), position = source.plan(None, 1 << 30)
    batches = source.open(split, SCHEMA, exact=True)
    first = next(batches)
    place.put("raw/a.json", content[::-1])  # of the same size
    rest = list(batches)
    assert first.raw.frame["user"].to_list() == list(range(first.raw.frame.height))
    assert [each.raw.rejects["reason"].to_list() for each in rest] == [
        ["the object was overwritten before it was read"]
    ]
    found = Read(position=position)
    read(source, SCHEMA, into=found)
    assert ["it is not read again" in why for why in found.reasons()] == [True]


@pytest.mark.parametrize("form", ["json", "json.gz"])
def test_what_was_read_of_an_overwritten_object_stays(
    place: Place, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a chunk that is not whole."""
    rows = pl.DataFrame({"user": range(1000), "at": ["2026-03-01T00:00:00Z"] * 1000})
    (name, content, _), fetch, begins = encoded(form, rows), ObjectFile.fetch, list[int]()

    def fetched(file: ObjectFile, begin: int, end: int) -> bytes:
        begins.append(begin)
        if len(begins) == 3:
            place.put(f"raw/{name}", content[::-1])
        return fetch(file, begin, end)

    in_small_pieces(monkeypatch)
    monkeypatch.setattr(unpacking, "_PACKED_BYTES", 1000)
    monkeypatch.setattr(files, "LARGE_CHUNK_BYTES", 1 << 20)
    place.put(f"raw/{name}", content)
    source = reader(place, tmp_path, path="raw/*")
    ((split, _),), _ = source.plan(None, 1 << 30)
    monkeypatch.setattr(ObjectFile, "fetch", fetched)
    first, lost = source.open(split, SCHEMA, exact=True)
    found = first.raw.frame["user"].to_list()
    assert found == list(range(len(found)))
    assert len(found) > 10
    assert lost.raw.rejects["reason"].to_list() == ["the object was overwritten before it was read"]


@pytest.mark.parametrize("form", ["json.gz", "json.zst", "avro"])
def test_a_compressed_object_is_read_in_pieces(
    place: Place, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece of text goes on in the object where the one before ends: it is not fetched anew."""
    sizes = fetched_sizes(monkeypatch)
    in_small_pieces(monkeypatch)
    monkeypatch.setattr(file_source, "LEAST_SPLIT", 1)
    monkeypatch.setattr(unpacking, "_PACKED_BYTES", 1000)
    rows = pl.DataFrame(
        {"user": [number * 7919 % 10_007 for number in range(3000)], "at": ["2026-03-01T00:00:00Z"] * 3000}
    )
    name, content, declared = encoded(form, rows)
    place.put(f"raw/{name}", content)
    found = read(reader(place, tmp_path, path="raw/*", format=declared), SCHEMA, budget=(20_000, 3000, 40_000))
    assert users(found) == rows["user"].to_list()
    assert len(found.landmarks) > 3
    if declared == "json":
        assert len(content) < sum(sizes) < 2.5 * len(content)  # by the planner, and by the reader


def test_of_a_compressed_object_that_is_overwritten_the_pieces_before_stay(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_pieces(monkeypatch)
    monkeypatch.setattr(unpacking, "_PACKED_BYTES", 1000)
    rows = pl.DataFrame(
        {"user": [number * 7919 % 10_007 for number in range(3000)], "at": ["2026-03-01T00:00:00Z"] * 3000}
    )
    name, content, _ = encoded("json.gz", rows)
    place.put(f"raw/{name}", content)
    source, position, found = reader(place, tmp_path, path="raw/*"), None, list[int]()
    for _ in range(2):
        ((split, _),), position = source.plan(position, 20_000)
        found += [user for batch in source.open(split, SCHEMA, exact=True) for user in batch.raw.frame["user"]]
    assert found == rows["user"].to_list()[: len(found)]
    ((split, _),), position = source.plan(position, 60_000)
    place.put(f"raw/{name}", content[::-1])
    *_, lost = source.open(split, SCHEMA, exact=True)
    assert lost.raw.rejects["reason"].to_list() == ["the object was overwritten before it was read"]
    rest = read(reader(place, tmp_path, path="raw/*"), SCHEMA, into=Read(position=position))
    assert rest.rows == {}
    assert ["the rest of it is not read" in reason for reason in rest.reasons()] == [True]
