"""Objects of backups that are damaged: the next backup writes them again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.selling import Shop
from tests.unit.runtime.recovery.test_backup import check_restored
from umbel.errors import Damaged
from umbel.runtime.recovery.backup import PACKED
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import verify


def test_a_damaged_object_that_is_deleted_is_written_again(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.moved(repository)
    (path,) = [each for each in (tmp_path / "backups/objects").rglob("*") if each.is_file()]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shop.moved(repository)
    with pytest.raises(Damaged, match=path.name) as error:
        verify(repository)
    assert "delete the objects named: the next backup writes them again" in (error.value.hint or "")
    path.unlink()
    shop.moved(repository)
    verify(repository)
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_a_shortened_object_is_written_again(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    day = shop.folder / "umbel/features/main/w/2026-01-01"
    day.mkdir(parents=True)
    content = os.urandom(2 * PACKED)
    (day / "1.sum.ndjson").write_bytes(content)
    shop.moved(repository)
    name = hashlib.sha256(content).hexdigest()
    os.truncate(tmp_path / "backups/objects" / name[:2] / name, PACKED)
    shop.moved(repository)
    verify(repository)
    assert repository.objects()[name] == 2 * PACKED
    check_restored(shop, repository, tmp_path / "elsewhere")
