"""Old backups are deleted while others are made, in this folder or in another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selling import Shop
from umbel.errors import Transient
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import verify
from umbel.state import failpoints


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    made.sell()
    made.flush()
    yield made
    made.deployed.close()


@pytest.fixture
def repository(shop: Shop, tmp_path: Path) -> Repository:
    """Return a repository with two backups."""
    found = Repository.at(str(tmp_path / "backups"))
    for _ in range(2):
        backup(shop.deployed.deployment, found)
        shop.sell()
        shop.flush()
    return found


def test_no_backup_begins_while_one_deletes(shop: Shop, repository: Repository) -> None:
    """Objects that the second one had just written, or used again, were deleted by the first one."""

    def again() -> None:
        shop.sell()
        with pytest.raises(Transient, match="another backup runs"):
            backup(shop.deployed.deployment, repository)

    with failpoints.armed("list deleted", 1, again):
        assert len(backup(shop.deployed.deployment, repository, keep=1).removed) == 2
    assert verify(repository).id == repository.ids()[-1]


def test_a_backup_whose_objects_are_deleted_meanwhile_is_not_listed(shop: Shop, repository: Repository) -> None:
    """They may have been deleted by the backup of a restored deployment, which is in another folder, or by hand."""
    shop.log_features()
    backup(shop.deployed.deployment, repository)
    ids, objects = repository.ids(), repository.objects()

    def delete() -> None:
        for name in objects:
            repository.delete_object(name)

    shop.sell()
    with (
        failpoints.armed("object", 1, delete),
        pytest.raises(Transient, match="objects that the backup needs were deleted"),
    ):
        backup(shop.deployed.deployment, repository)
    assert repository.ids() == ids
    backup(shop.deployed.deployment, repository)
    assert verify(repository).id not in ids


def test_a_draft_that_cannot_be_read_is_one(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "backups" / "drafts" / "of-another.json.gz").write_bytes(b"cut")
    report = backup(shop.deployed.deployment, repository, keep=1)
    assert report.removed == []
    assert "of-another" in report.notes[0]


@pytest.mark.parametrize("is_other_running", [False, True])
def test_what_a_killed_backup_was_writing_is_deleted(
    shop: Shop, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_other_running: bool
) -> None:
    def die(self: Path, target: Path) -> None:
        raise SystemExit  # as if the process were killed: nothing tidies up

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        patched.setattr(Path, "unlink", lambda self, missing_ok: None)
        with pytest.raises(SystemExit):
            repository.write_object(b"erased" * 100)
    (left,) = repository.unfinished()
    if is_other_running:
        (tmp_path / "backups/drafts/other.json.gz").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "backups/drafts/other.json.gz").write_bytes(b"")
    backup(shop.deployed.deployment, repository)
    assert repository.unfinished() == ([left] if is_other_running else [])
