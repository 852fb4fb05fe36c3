from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from umbel.errors import Damaged, InvalidValue
from umbel.state.description import FORMAT, NAME, StoreDescription
from umbel.state.port import OldState
from umbel.state.runs.files import LocalFiles


def made(folder: Path, shards: int = 2) -> StoreDescription:
    description = StoreDescription(LocalFiles(folder), shards)
    description.make(lambda: None)
    return description


def test_it_is_written_once_after_the_shards(tmp_path: Path) -> None:
    folder, calls = tmp_path / "deep" / "db", list[bool]()
    description = StoreDescription(LocalFiles(folder), 3)
    assert not description.is_made()
    assert not description.exists
    assert description.identity is None
    for _ in range(2):
        description.make(lambda: calls.append(description.exists))
    assert calls == [False]
    assert description.is_made()
    assert json.loads((folder / NAME).read_text()) == {"format": FORMAT, "shards": 3, "identity": description.identity}
    assert [path.name for path in folder.iterdir()] == [NAME]
    again = StoreDescription(LocalFiles(folder), 3)
    again.make(lambda: calls.append(True))
    assert (again.identity, calls) == (description.identity, [False])


def test_stores_have_identities_of_their_own(tmp_path: Path) -> None:
    assert made(tmp_path / "one").identity != made(tmp_path / "two").identity


def test_shards_that_cannot_be_created_leave_no_description(tmp_path: Path) -> None:
    description = StoreDescription(LocalFiles(tmp_path / "db"), 2)

    def fail() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        description.make(fail)
    assert not description.is_made()
    assert not description.exists


def test_the_number_of_shards_is_fixed(tmp_path: Path) -> None:
    made(tmp_path, 2)
    with pytest.raises(InvalidValue, match="has 2 shards, not 3"):
        StoreDescription(LocalFiles(tmp_path), 3)


def test_two_cannot_make_one_directory_with_different_shards(tmp_path: Path) -> None:
    one, other = StoreDescription(LocalFiles(tmp_path), 1), StoreDescription(LocalFiles(tmp_path), 2)
    one.make(lambda: None)
    with pytest.raises(InvalidValue, match="has 1 shards"):
        other.make(lambda: None)


@pytest.mark.parametrize("form", [1, 2, 3, 4, 6, "5", None])
def test_other_formats_are_refused_with_a_remedy(tmp_path: Path, form: Any) -> None:
    (tmp_path / NAME).write_text(json.dumps({"format": form, "shards": 1, "identity": "x"}))
    with pytest.raises(OldState, match=f"format {form}.*reads format 5") as raised:
        StoreDescription(LocalFiles(tmp_path), 1)
    assert "move everything but the folder 'ingest'" in str(raised.value.hint)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b'{"format": 4}', b"\xff\xfe"])
def test_what_cannot_be_read_is_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    description = StoreDescription(LocalFiles(tmp_path), 1)
    with pytest.raises(Damaged, match=NAME):
        description.is_made()
    with pytest.raises(Damaged, match=NAME) as raised:
        _ = description.identity
    assert raised.value.hint


def test_one_that_is_gone_is_damage(tmp_path: Path) -> None:
    description = made(tmp_path)
    (tmp_path / NAME).unlink()
    with pytest.raises(Damaged, match="missing"):
        _ = description.identity


class Awaited(LocalFiles):
    """Files of which one, once it was found missing, is waited for before that is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.looked, self.written = threading.Event(), threading.Event()

    def read(self, name: str, *where: Any, **more: Any) -> bytes:
        try:
            return super().read(name, *where, **more)
        except FileNotFoundError:
            if threading.current_thread().name == "slow":
                self.looked.set()
                assert self.written.wait(10)
            raise


def test_one_that_another_thread_makes_meanwhile_is_not_gone(tmp_path: Path) -> None:
    files, found = Awaited(tmp_path), list[Any]()
    description = StoreDescription(files, 1)

    def look() -> None:
        try:
            found.append(description.is_made())
        except Damaged as error:
            found.append(error)

    thread = threading.Thread(target=look, name="slow")
    thread.start()
    assert files.looked.wait(10)
    description.make(lambda: None)
    files.written.set()
    thread.join()
    assert found == [True]
