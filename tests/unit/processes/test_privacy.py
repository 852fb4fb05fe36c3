"""umbel's folder is for its own account, a new one and one that was made before."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from umbel.processes.privacy import make_private
from umbel.runtime.deployment import Deployment


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.fixture(autouse=True)
def usual() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    place.catalog.close()


def test_a_folder_of_before_becomes_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "umbel"
    (folder / "store" / "shard-000").mkdir(parents=True)
    (folder / "store" / "shard-000" / "data.mdb").write_bytes(b"")
    (folder / "catalog.db").write_bytes(b"")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"")
    (folder / "logs").mkdir()
    (folder / "logs" / "link").symlink_to(elsewhere)
    (folder / "features").symlink_to(tmp_path)
    before = mode(tmp_path)
    folder.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        make_private(folder)
    assert [mode(each) for each in (folder, folder / "store", folder / "store/shard-000")] == [0o700] * 3
    assert [mode(each) for each in (folder / "catalog.db", folder / "store/shard-000/data.mdb")] == [0o600] * 2
    assert (mode(elsewhere), mode(tmp_path)) == (0o644, before)
    assert "cannot any more" in caplog.text


def test_the_root_of_a_volume_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_folder_with_other_things_keeps_its_rights_and_that_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    folder.chmod(0o755)
    for name in ("catalog.db", "features.py"):
        (folder / name).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        make_private(folder)
    assert (mode(folder), mode(folder / "features.py"), mode(folder / "catalog.db")) == (0o755, 0o644, 0o600)
    assert "features.py" in caplog.text
