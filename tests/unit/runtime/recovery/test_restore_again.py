"""Restores that are repeated after they were killed, or whose folder is a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.selling import Shop
from umbel.errors import InvalidValue
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
from umbel.runtime.recovery.state_targets import MARK, UNWRITTEN
from umbel.state.description import NAME as STORE_FILE


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository with a backup of a shop."""
    shop, found = Shop(tmp_path), Repository.at(str(tmp_path / "backups"))
    shop.sell()
    shop.moved(found)
    shop.deployed.close()
    return found


def test_a_mark_that_was_being_written_is_no_state(repository: Repository, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / UNWRITTEN).write_bytes(b"")
    restore(repository, tmp_path / "elsewhere", store_url=state.as_uri())
    assert {each.name for each in state.iterdir()} == {"shard-000", "shard-001", STORE_FILE}


def test_complete_state_is_replaced_only_by_the_restore_that_has_written_it(
    repository: Repository, tmp_path: Path
) -> None:
    state, target = tmp_path / "state", tmp_path / "elsewhere"
    draft = tmp_path / ".elsewhere.restoring" / "folder"
    draft.mkdir(parents=True)
    (draft / "catalog.db").write_bytes(b"left")
    draft.with_name("id").write_text("one")
    state.mkdir()
    (state / STORE_FILE).write_bytes(b"left")
    for mark in (b"", b"another"):
        (state / MARK).write_bytes(mark)
        with pytest.raises(InvalidValue, match="is not empty"):
            restore(repository, tmp_path / "other", store_url=state.as_uri())
    (state / MARK).write_bytes(b"one")
    restore(repository, target, store_url=state.as_uri())
    assert (state / STORE_FILE).read_bytes() != b"left"
    assert not draft.parent.exists()


def test_the_id_of_a_folder_that_has_appeared_is_not_used_again(repository: Repository, tmp_path: Path) -> None:
    """The restore was killed behind its end, and the folder moved elsewhere: its state is in use."""
    state, beside = tmp_path / "state", tmp_path / ".elsewhere.restoring"
    beside.mkdir()
    (beside / "id").write_text("one")
    state.mkdir()
    (state / STORE_FILE).write_bytes(b"in use")
    (state / MARK).write_bytes(b"one")
    with pytest.raises(InvalidValue, match="is not empty"):
        restore(repository, tmp_path / "elsewhere", store_url=state.as_uri())


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_leads_to_the_folder(repository: Repository, tmp_path: Path, is_there: bool) -> None:
    """A folder cannot take its place, which was found out when all bytes were there."""
    real, link = tmp_path / "disk" / "real", tmp_path / "elsewhere"
    real.parent.mkdir()
    if is_there:
        real.mkdir()
    link.symlink_to(real)
    restore(repository, link)
    assert link.is_symlink()
    assert (real / "catalog.db").is_file()
    assert [each.name for each in real.parent.iterdir()] == ["real"]
