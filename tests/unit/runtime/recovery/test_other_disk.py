"""Backups of state on another disk, which has no second names of files in the deployment's folder."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.sales import check_all
from tests.selling import Shop
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.cut import LINKS
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is as if it were on a disk of its own, and refuse copies."""
    other, link = tmp_path / "other", os.link

    def linked(source: Path, target: Path) -> None:
        if source.is_relative_to(other) != target.is_relative_to(other):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr("umbel.runtime.recovery.cut._device", lambda folder: folder.is_relative_to(other))
    monkeypatch.setattr(shutil, "copyfile", lambda *_: pytest.fail("a file is copied while the catalog is locked"))
    return other


def test_nothing_is_copied_while_the_catalog_is_locked(disk: Path, tmp_path: Path) -> None:
    """All state was: a backup of more than can be copied in 30 seconds was none, and each attempt held batches up."""
    shop, repository = Shop(tmp_path, store_url=(disk / "state").as_uri()), Repository.at(str(tmp_path / "backups"))
    for _ in range(2):
        shop.sell()
        shop.flush()
        shop.moved(repository)
    assert not (disk / "state" / LINKS).exists()
    restore(repository, tmp_path / "elsewhere")
    found = Deployed(tmp_path / "elsewhere")
    check_all(found, shop.rows, shop.users)
    found.close()
    shop.write_checkpoint()
    (disk / "state" / LINKS / "store").mkdir(parents=True)
    left = list(check(shop.deployed.deployment))
    assert [each.subject for each in left] == ["backup"]
    shop.deployed.close()
    assert [done for _, done in repair_all(shop.deployed.deployment, left)] == ["deleted"]
    assert not (disk / "state" / LINKS).exists()
