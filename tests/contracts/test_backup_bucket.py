"""Backups of state in a bucket, restored into other buckets and folders, and of state in a folder restored into a bucket."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.bucket_shop import beside, bucket, new_url, repository, restored, shop, streamed
from tests.deployed import Deployed
from tests.s3server import S3Server
from tests.sales import check_all
from tests.selling import Shop
from tests.unit.cli.conftest import Umbel, umbel
from umbel.errors import Damaged, InvalidValue, Transient
from umbel.log.reading import IngestReader
from umbel.runtime.batch import drain
from umbel.runtime.recovery import backup as backup_module
from umbel.runtime.recovery import checkpoint
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.cut import CutObject, cut
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore, verify
from umbel.state import failpoints
from umbel.state.runs import object_files
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.rewriting import rewrite_without
from umbel.state.runs.shard import ShardOptions

__all__ = ["beside", "bucket", "repository", "shop", "streamed", "umbel"]


def check_sold(found: Deployed, shop: Shop) -> None:
    """Process what a restored deployment has, and compare it with plain Python."""
    drain(found.deployment)
    sold = IngestReader(found.deployment.directory, "web", "sales").end().row
    users = IngestReader(found.deployment.directory, "web", "users").end().row
    check_all(found, shop.rows[:sold], shop.users[:users])


def flushed(found: Deployed) -> None:
    for shard in found.deployment.store._shards:  # type: ignore[attr-defined]
        maintain(shard, flush_bytes=1)


@pytest.mark.parametrize("place", ["bucket", "folder", pytest.param("other folder", marks=pytest.mark.nightly)])
def test_what_is_restored_goes_on_and_ends_equal(
    shop: Shop, repository: Repository, tmp_path: Path, place: str
) -> None:
    backup(shop.deployed.deployment, repository)
    assert verify(repository).is_in_bucket
    urls = {"bucket": new_url(tmp_path), "folder": None, "other folder": f"file://{tmp_path / 'state'}"}
    found = restored(repository, tmp_path / "elsewhere", urls[place])
    check_all(found, shop.rows, shop.users)
    goes_on(shop, found, tmp_path / "elsewhere", urls[place])


def goes_on(shop: Shop, found: Deployed, folder: Path, url: str | None) -> None:
    """Sell in a restored deployment, with merges, as in one that never stopped."""
    shop.deployed.close()
    shop.deployed = found
    for _ in range(3):
        shop.sell()
        flushed(found)
    check_all(found, shop.rows, shop.users)
    found.close()
    shop.deployed = Deployed(folder, store_url=url)
    shop.sell()
    check_all(shop.deployed, shop.rows, shop.users)
    checkpoint.write(shop.deployed.deployment.catalog, folder)  # as the worker's is, after so many batches
    assert list(check(shop.deployed.deployment)) == []


def test_state_of_a_folder_is_restored_into_a_bucket(tmp_path: Path, repository: Repository) -> None:
    shop = Shop(tmp_path)
    for _ in range(2):
        shop.sell()
        shop.flush()
    for _ in range(5):  # the journal is in its sixth file: objects have lower numbers than what the catalog notes
        for shard in shop.deployed.deployment.store._shards:  # type: ignore[attr-defined]
            rewrite_without(shard, {})
    shop.sell()
    backup(shop.deployed.deployment, repository)
    url = new_url(tmp_path)
    found = restored(repository, tmp_path / "elsewhere", url)
    check_all(found, shop.rows, shop.users)
    assert not (tmp_path / "elsewhere" / "store").exists()
    goes_on(shop, found, tmp_path / "elsewhere", url)
    shop.deployed.close()


def test_the_second_backup_reads_and_copies_only_new_objects(shop: Shop, repository: Repository) -> None:
    place, read = shop.deployed.deployment, list[str]()
    first = backup(place, repository)
    again = backup(place, repository)
    assert again.written < first.written / 2
    with cut(place) as found:
        before = {name for name in found.files if name.startswith("store/")}
    shop.sell()
    with cut(place) as found:
        fresh = {name for name, file in found.files.items() if isinstance(file, CutObject)} - before
    original = CutObject.opened

    def noted(self: CutObject) -> Any:
        read.append(self.name)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CutObject, "opened", noted)
        backup(place, repository)
    assert set(read) == fresh != set()


def test_large_objects_are_copied_within_the_storage(
    shop: Shop, beside: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    monkeypatch.setattr(backup_module, "PACKED", 1000)
    copied = list[tuple[str, str]]()
    original = type(beside.bucket)._copy

    def noted(self: object, source: str, target: str, size: int) -> None:
        copied.append((source, target))
        original(self, source, target, size)

    monkeypatch.setattr(type(beside.bucket), "_copy", noted)
    backup(shop.deployed.deployment, beside)
    assert copied
    assert all(source.startswith("state/") and target.startswith("backups/") for source, target in copied)
    verify(beside)
    done = len(copied)
    found = restored(beside, tmp_path / "elsewhere", new_url(tmp_path))
    assert len(copied) > done
    assert all(source.startswith("backups/") and target.startswith("state/") for source, target in copied[done:])
    check_all(found, shop.rows, shop.users)
    found.close()
    backup(shop.deployed.deployment, beside)
    assert {source for source, _ in copied if source.startswith("state/")} == {s for s, _ in copied[:done]}
    assert len([s for s, _ in copied if s.startswith("state/")]) == done, "nothing is copied twice"


def test_objects_merged_away_meanwhile_are_in_the_backup(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    expected = list(shop.rows), list(shop.users)

    def merge() -> None:
        for shard in shop.deployed.deployment.store._shards:  # type: ignore[attr-defined]
            shard.options = ShardOptions(fan=2)
        for _ in range(3):
            shop.sell()
            shop.flush()

    with pytest.MonkeyPatch.context() as patch, failpoints.armed("cut", 1, merge):
        patch.setattr(object_files, "GRACE", 0)
        backup(shop.deployed.deployment, repository)
    found = restored(repository, tmp_path / "elsewhere", new_url(tmp_path))
    assert len(found.changes("Sales")) == len(expected[0])
    check_sold(found, shop)
    found.close()
    check_all(shop.deployed, shop.rows, shop.users)


def names(shop: Shop, bucket: Path, folder: str) -> set[str]:
    prefix = shop.deployed.deployment.store.location.partition("/")[2]  # type: ignore[attr-defined]
    return {f"{each.parents[1].name}/{each.name}" for each in (bucket / prefix).glob(f"shard-*/{folder}/*")}


def test_a_pin_ends_with_its_backup(shop: Shop, beside: Repository, bucket: Path) -> None:
    with cut(shop.deployed.deployment) as found:
        pinned = {name for name in found.files if "/journal/" in name}
        assert len(names(shop, bucket, "pins")) == 2
        for _ in range(3):
            shop.sell()
            shop.flush()
        assert pinned <= {f"store/{each.replace('/', '/journal/')}" for each in names(shop, bucket, "journal")}
    assert not names(shop, bucket, "pins")
    shop.sell()
    shop.flush()
    assert not pinned & {f"store/{each.replace('/', '/journal/')}" for each in names(shop, bucket, "journal")}
    check_all(shop.deployed, shop.rows, shop.users)


def test_a_pin_that_is_left_behind_does_not_stay(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (files, *_) = shop.deployed.deployment.store.files()  # type: ignore[attr-defined]
    files.put_uncached("pins/of-one-that-was-killed", b"")
    assert files.is_pinned()
    monkeypatch.setattr(files, "grace", -10.0)
    assert not files.is_pinned()


def test_an_erasure_meanwhile_begins_the_backup_again(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    def erase() -> None:
        for shard in shop.deployed.deployment.store._shards:  # type: ignore[attr-defined]
            rewrite_without(shard, {})

    with failpoints.armed("cut", 1, erase):
        backup(shop.deployed.deployment, repository)
    found = restored(repository, tmp_path / "elsewhere", new_url(tmp_path))
    check_all(found, shop.rows, shop.users)
    found.close()


def test_an_erasure_each_time_is_said(shop: Shop, beside: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def erase(name: str) -> None:
        if name == "cut":
            for shard in shop.deployed.deployment.store._shards:  # type: ignore[attr-defined]
                rewrite_without(shard, {})
            shop.sell()

    monkeypatch.setattr(backup_module, "reach", erase)
    with pytest.raises(Transient, match="was deleted during the backup"):
        backup(shop.deployed.deployment, beside)
    assert beside.ids() == []


def test_backups_while_it_sells_and_merges(shop: Shop, streamed: Repository, tmp_path: Path) -> None:
    over = threading.Event()

    def sell() -> None:
        while not over.is_set():
            shop.sell()
            if shop.waves % 2:
                shop.flush()

    for shard in shop.deployed.deployment.store._shards:  # type: ignore[attr-defined]
        shard.options = ShardOptions(fan=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_files.ObjectFiles, "grace", 3.0)
        thread = threading.Thread(target=sell)
        thread.start()
        try:
            made = [backup(shop.deployed.deployment, streamed).backup for _ in range(4)]
        finally:
            over.set()
            thread.join()
    for number, each in enumerate(made):
        found = restored(streamed, tmp_path / f"elsewhere-{number}", (new_url(tmp_path), None)[number % 2], each.id)
        check_sold(found, shop)
        found.close()


def test_state_that_is_there_is_not_overwritten(shop: Shop, beside: Repository, tmp_path: Path, bucket: Path) -> None:
    place = shop.deployed.deployment
    backup(place, beside)
    before = sorted(each for each in bucket.rglob("*") if each.is_file())
    with pytest.raises(InvalidValue, match="is not empty"):
        restore(beside, tmp_path / "elsewhere", store_url=place.store_url)
    (bucket / "theirs").mkdir()
    (bucket / "theirs" / "report.csv").write_text("1")
    with pytest.raises(InvalidValue, match="is not empty"):
        restore(beside, tmp_path / "elsewhere", store_url="s3://state/theirs")
    assert (bucket / "theirs" / "report.csv").read_text() == "1"
    assert sorted(each for each in bucket.rglob("*") if each.is_file()) == sorted(
        [*before, bucket / "theirs" / "report.csv"]
    )
    assert not (tmp_path / "elsewhere").exists()
    check_all(shop.deployed, shop.rows, shop.users)


def test_another_store_than_the_worker_is_refused(shop: Shop, beside: Repository, tmp_path: Path) -> None:
    other = Deployed(tmp_path / "umbel")
    with pytest.raises(Damaged, match="is missing"):
        backup(other.deployment, beside)
    assert beside.ids() == []
    other.close()


def test_by_the_command_line(shop: Shop, beside: Repository, tmp_path: Path, umbel: Umbel) -> None:
    store, url = shop.deployed.deployment.store_url, new_url(tmp_path)
    made = umbel("backup", beside.title, "--dir", str(tmp_path / "umbel"), "--store", store)
    assert made.exit_code == 0, made.output
    done = umbel("restore", beside.title, "--dir", str(tmp_path / "elsewhere"), "--store", url)
    assert done.exit_code == 0, done.output
    assert umbel("check", "--dir", str(tmp_path / "elsewhere"), "--store", url).exit_code == 0
    found = Deployed(tmp_path / "elsewhere", store_url=url)
    check_all(found, shop.rows, shop.users)
    found.close()
