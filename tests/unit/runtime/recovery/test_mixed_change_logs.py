"""The change log of one deployment in the place of another one's: its table is refused, never read."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from tests.deployed import Deployed
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.log.change_tail import FileTail
from umbel.runtime.batch import drain
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.rebuild import rebuild_all
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore


def flushed(folder: Path, waves: int) -> Shop:
    made = Shop(folder)
    for _ in range(waves):
        made.sell()
    made.deployed.flush_logs()
    return made


def log_of(shop: Shop) -> Path:
    (found,) = (shop.folder / "umbel/changes").glob("Last-*")
    return found


def damage(deployed: Deployed) -> list[str]:
    return [each.text for each in check(deployed.deployment) if "another deployment" in each.text]


def test_a_change_log_of_another_deployment_is_found_and_refused(tmp_path: Path) -> None:
    other, shop = flushed(tmp_path / "two", 4), flushed(tmp_path / "one", 3)
    other.deployed.close()
    repository = Repository.at(str(tmp_path / "backups"))
    backup(shop.deployed.deployment, repository)
    shop.deployed.close()
    restore(repository, tmp_path / "again/umbel")
    shop = Shop.opened(tmp_path / "again", shop.waves)
    shop.sell()
    assert damage(shop.deployed) == []
    before = shop.deployed.changes("Last")
    place = log_of(shop)
    shutil.rmtree(place)
    shutil.copytree(log_of(other), place)
    assert len(damage(shop.reopened())) == 1
    with pytest.raises(Damaged, match="its table is that of another deployment"):
        shop.deployed.changes("Last")
    assert rebuild_all(shop.reopened().deployment) == []
    drain(shop.reopened().deployment)
    assert shop.deployed.changes("Last").height == before.height
    shop.deployed.close()


def test_the_tail_of_another_deployment_is_found_and_refused(tmp_path: Path) -> None:
    """Its files have the same names, links and checksums: only their rows were different."""
    other, shop = Shop(tmp_path / "two"), Shop(tmp_path / "one")
    for _ in range(3):
        shop.sell()
        other.sell()
    other.deployed.close()
    before = shop.reopened().changes("Last")
    place = log_of(shop) / "_tail"
    shutil.rmtree(place)
    shutil.copytree(log_of(other) / "_tail", place)
    assert len(damage(shop.reopened())) == 1
    with pytest.raises(Damaged, match=r"00\.arrow is that of another deployment"):
        shop.deployed.changes("Last")
    with pytest.raises(Damaged, match=r"00\.arrow is that of another deployment"):
        shop.deployed.flush_logs()
    assert rebuild_all(shop.reopened().deployment) == []
    drain(shop.reopened().deployment)
    assert shop.deployed.changes("Last").height == before.height
    shop.deployed.close()


def test_a_tail_of_an_older_version_is_read_anywhere(tmp_path: Path) -> None:
    """Its first bytes have no identity behind them."""
    tail = FileTail(tmp_path / "Last" / "_tail", lambda _="": "this one")
    tail.put(7, pl.DataFrame({"id": [1]}), 6)
    (path,) = tail.folder.iterdir()
    made = path.read_bytes()
    link, content = made[12:20], made[22 + len("this one") :]
    checksum = zlib.crc32(content, zlib.crc32(link, zlib.crc32(b"Last/000000000007.arrow")))
    path.write_bytes(b"umbeltl2" + checksum.to_bytes(4, "little") + link + content)
    found = FileTail(tail.folder, lambda _="": "another one").read(-1)
    assert found is not None
    assert found["id"].to_list() == [1]
    assert tail.missing(7, 6) is None


def test_a_server_reads_change_logs_after_all_has_been_rebuilt(tmp_path: Path) -> None:
    shop = flushed(tmp_path, 3)
    server = Deployed(shop.folder / "umbel")
    before = server.changes("Last")
    assert rebuild_all(shop.reopened().deployment) == []
    drain(shop.reopened().deployment)
    shop.deployed.flush_logs()
    assert server.changes("Last").height == before.height
    server.close()
    shop.deployed.close()


def test_a_table_of_an_older_version_is_read(tmp_path: Path) -> None:
    shop = flushed(tmp_path, 3)
    assert DeltaTable(log_of(shop)).metadata().description == shop.deployed.deployment.noted_store
    (first,) = (log_of(shop) / "_delta_log").glob("*00.json")
    first.write_text(
        first.read_text().replace(f'"description":"{shop.deployed.deployment.noted_store}"', '"description":null')
    )
    assert DeltaTable(log_of(shop)).metadata().description is None
    assert shop.reopened().changes("Last").height
    shop.deployed.close()
