"""Backups and restores of state in a bucket that are killed half way, or find a backup damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.bucket_shop import beside, bucket, new_url, restored, shop
from tests.contracts.refusing_storage import DELETE, refusing
from tests.deployed import Deployed
from tests.s3server import S3Server
from tests.sales import check_all
from tests.selling import Shop
from umbel.errors import Damaged, InvalidValue
from umbel.runtime.recovery.backup import PACKED, backup
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
from umbel.runtime.recovery.state_targets import StateTarget, target_of

__all__ = ["beside", "bucket", "shop"]


SCRIPT = """
import sys
from pathlib import Path
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
what, url, folder, store = sys.argv[1:]
if what == "backup":
    backup(Deployment.at(Path(folder), store_url=store), Repository.at(url))
else:
    restore(Repository.at(url), Path(folder), store_url=store)
"""


def killed(point: str, *arguments: str) -> bool:
    """Run a backup or a restore that is killed at a failpoint; return whether it was."""
    environment = {**os.environ, "UMBEL_FAILPOINT": point, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], env=environment, check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_killed_backup_is_none_and_the_next_one_uses_what_it_wrote(
    shop: Shop, beside: Repository, tmp_path: Path, stride: int
) -> None:
    place, at = shop.deployed.deployment, (beside.title, str(tmp_path / "umbel"), shop.deployed.deployment.store_url)
    shop.log_features()
    turn = 1
    while killed(f"*:{turn}", "backup", *at):
        assert len(beside.ids()) <= 1  # one was killed after its list was written
        turn += stride
    assert turn > 4
    assert backup(place, beside).written < PACKED
    url = new_url(tmp_path)
    restore(beside, tmp_path / "elsewhere", store_url=url)
    found = Deployed(tmp_path / "elsewhere", store_url=url)
    check_all(found, shop.rows, shop.users)
    found.close()


@pytest.mark.parametrize("place", ["bucket", "folder"])
def test_a_killed_restore_is_repeated(shop: Shop, beside: Repository, tmp_path: Path, bucket: Path, place: str) -> None:
    backup(shop.deployed.deployment, beside)
    url = new_url(tmp_path) if place == "bucket" else f"file://{tmp_path / 'state'}"
    folder = tmp_path / "elsewhere"
    for point in ("before a write:3", "state written:1", "restored:1", "complete:1"):
        if place == "folder" and "write:" in point:
            continue
        assert killed(point, "restore", beside.title, str(folder), url)
        assert not folder.exists()
    found = restored(beside, folder, url)
    check_all(found, shop.rows, shop.users)
    found.close()


HARMS: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    "place", ["bucket", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("folder", "other folder"))]
)
@pytest.mark.parametrize("harm", HARMS)
def test_damage_of_a_backup_is_reported_and_nothing_is_left(
    shop: Shop, beside: Repository, tmp_path: Path, bucket: Path, s3: S3Server, harm: str, place: str
) -> None:
    backup(shop.deployed.deployment, beside)
    url = {"bucket": new_url(tmp_path), "folder": None, "other folder": f"file://{tmp_path / 'state'}"}[place]
    for path in (s3.folder / "backups" / beside.prefix / "objects").glob("*/*"):
        before = path.read_bytes()
        HARMS[harm](path)
        with pytest.raises(Damaged, match="damaged"):
            restore(beside, tmp_path / "elsewhere", store_url=url)
        assert not (tmp_path / "elsewhere").exists()
        left = bucket / (url or "").removeprefix("s3://state/").partition("?")[0] if place == "bucket" else None
        assert not [each for each in (left or tmp_path / "state").rglob("*") if each.is_file()]
        path.write_bytes(before)
    restored(beside, tmp_path / "elsewhere", url).close()


def records(shop: Shop, bucket: Path) -> list[Path]:
    """Return the records in the journal of the first shard."""
    prefix = shop.deployed.deployment.store.location.partition("/")[2]  # type: ignore[attr-defined]
    return sorted((bucket / prefix / "shard-000/journal").glob("*.log"))


def test_a_backup_lacks_no_record_before_others(shop: Shop, beside: Repository, bucket: Path) -> None:
    """It ended before the missing one, without those behind it."""
    lost = records(shop, bucket)[-2]
    lost.unlink()
    with pytest.raises(Damaged, match=f"lacks journal/{lost.name}"):
        backup(shop.deployed.deployment, beside)
    assert beside.ids() == []


def test_state_that_ends_too_early_is_not_restored_in_another_form(
    shop: Shop, beside: Repository, tmp_path: Path, bucket: Path
) -> None:
    """Nothing told of it then, and answers were other ones."""
    records(shop, bucket)[-1].unlink()
    backup(shop.deployed.deployment, beside)
    with pytest.raises(Damaged, match="finished batches wrote up to") as refused:
        restore(beside, tmp_path / "elsewhere")
    assert "umbel check" in refused.value.hint
    assert not (tmp_path / "elsewhere").exists()
    url = new_url(tmp_path)
    restore(beside, tmp_path / "elsewhere", store_url=url)
    found = Deployed(tmp_path / "elsewhere", store_url=url)
    assert [each.subject for each in check(found.deployment)] == ["state, shard 0"]
    found.close()


@pytest.mark.nightly
def test_a_restore_that_may_delete_nothing_is_one(
    shop: Shop, beside: Repository, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was there, and the command failed, with an attempt to delete the state of it."""
    backup(shop.deployed.deployment, beside)
    url = new_url(tmp_path)
    with refusing(s3) as (endpoint, refusals):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        refusals.kinds = {DELETE}
        restore(beside, tmp_path / "elsewhere", store_url=url)
        refusals.kinds = set()
        with pytest.raises(InvalidValue, match="is not empty"):
            restore(beside, tmp_path / "another", store_url=url)
        found = Deployed(tmp_path / "elsewhere", store_url=url)
        check_all(found, shop.rows, shop.users)
        found.close()


@pytest.mark.parametrize("place", ["bucket", "folder"])
def test_a_backup_that_may_not_be_read_any_more_is_not_called_damaged(
    shop: Shop, beside: Repository, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    backup(shop.deployed.deployment, beside)
    url = new_url(tmp_path) if place == "bucket" else None
    with refusing(s3) as (endpoint, refusals):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        repository = Repository.at(beside.title)

        def refused(*arguments: Any) -> StateTarget:
            refusals.kinds.add("HEAD")
            return target_of(*arguments)

        monkeypatch.setattr("umbel.runtime.recovery.restore.target_of", refused)
        with pytest.raises(InvalidValue, match="access is denied"):
            restore(repository, tmp_path / "elsewhere", store_url=url)
    assert not (tmp_path / "elsewhere").exists()
