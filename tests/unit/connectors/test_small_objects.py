"""Small objects of a bucket that are read one after the other are fetched at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from obstore.store import LocalStore

from umbel.connectors import objects
from umbel.connectors.file_source import FileSource
from umbel.connectors.objects import ObjectFile, Objects
from umbel.types.dtypes import Int

SCHEMA = {"user": Int()}
FILES = 8


def source(folder: Path) -> FileSource:
    bucket = Objects("bucket", partial(LocalStore, folder), "", lambda name: name.endswith(".json"))
    return FileSource(bucket, "json")


def users(reading: FileSource, splits: Any) -> list[Any]:
    found = reading.open_all([split for split, _ in splits], SCHEMA, exact=True)
    return [
        rows.raw.frame["user"].to_list() if rows.raw.frame.width else rows.raw.rejects["reason"][0] for rows in found
    ]


@dataclass
class Requests:
    """Requests of which each waits for another one."""

    known: Any
    names: list[str] = field(default_factory=list)
    barrier: Barrier = field(default_factory=lambda: Barrier(2))

    def fetch(self, file: ObjectFile, begin: int, end: int) -> bytes:
        self.names.append(file.name)
        self.barrier.wait(60)
        return bytes(self.known(file, begin, end))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"f{number}.json").write_text(f'{{"user": {number}}}\n')
    return tmp_path


def test_requests_for_small_objects_are_sent_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(ObjectFile.fetch)
    monkeypatch.setattr(ObjectFile, "fetch", lambda file, begin, end: requests.fetch(file, begin, end))
    reading = source(folder)
    splits, _ = reading.plan(None, 1 << 30)
    assert users(reading, splits) == [[number] for number in range(FILES)]
    assert sorted(requests.names) == [f"f{number}.json" for number in range(FILES)], "each is fetched once"


def test_of_objects_that_cannot_be_fetched_the_others_are_read(folder: Path) -> None:
    reading = source(folder)
    splits, _ = reading.plan(None, 1 << 30)
    (folder / "f3.json").unlink()
    (folder / "f5.json").write_text('{"user": 55}\n')
    assert users(reading, splits) == [
        *([number] for number in range(3)),
        "the file was deleted before it was read",
        [4],
        objects.OVERWRITTEN,
        [6],
        [7],
    ]


def test_large_objects_are_not_fetched_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = list[str]()
    monkeypatch.setattr(objects, "WHOLE_BYTES", 0)
    monkeypatch.setattr(ObjectFile, "fetch", lambda file, begin, end: fetched.append(file.name))
    reading = source(folder)
    reading.store.fetch_ahead([reading.store.file(f"f{number}.json", (14, 0)) for number in range(FILES)])
    assert fetched == []
