"""Repairs that are interrupted, that the disk does not take, or that come in the wrong order."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.kills import Killed, kill
from tests.sales import check_all
from tests.selling import Shop
from tests.unit.cli.conftest import Umbel, umbel
from tests.unit.runtime.recovery.test_check import files, run_of, shop
from umbel.catalog.purges import PurgeProgress, Purges
from umbel.errors import Transient
from umbel.processes.locks import alone
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.rebuild import rebuild_all
from umbel.runtime.recovery.repository import Repository
from umbel.state import disk
from umbel.state.failpoints import armed

__all__ = ["shop", "umbel"]


def is_rebuilt(shop: Shop, dataset: str) -> bool:
    """Return whether the worker is going to compute a dataset anew."""
    place = shop.reopened().deployment
    return place.graph(place.catalog.latest()).outputs[dataset].state_id not in place.catalog.backfilled()


@pytest.mark.parametrize("turn", range(1, 6))
def test_state_that_an_interrupted_repair_gave_up_is_rebuilt(shop: Shop, turn: int) -> None:
    """The check after it finds nothing: a shard without the state of an operator is as one that had no rows of it."""
    run_of(shop, "Totals").unlink()
    place = shop.reopened().deployment
    with armed("*", turn, kill):
        try:
            done = [done for _, done in repair_all(place, list(check(place)))]
        except Killed:
            done = []
    left = list(check(shop.reopened().deployment))
    assert left or is_rebuilt(shop, "Totals"), "the state is lost, and nobody says so"
    assert done or turn < 5


def test_a_repair_on_a_full_disk_says_so(shop: Shop, umbel: Umbel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who read "restore a backup" gave up what came since then, for want of some disk space."""
    shop.deployed.close()
    shutil.rmtree(shop.folder / "umbel/checkpoint")

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(disk, "replace", full)
        shown = umbel("check", "--dir", str(shop.folder / "umbel"), "--repair")
    assert shown.exit_code == 1, shown.output
    assert "not mended: " in shown.output
    assert "No space left on device; free some disk space, and repeat this" in shown.output
    assert "umbel restore" not in shown.output
    assert umbel("check", "--dir", str(shop.folder / "umbel"), "--repair").exit_code == 0
    assert files(shop, "checkpoint/*/metadata")


def test_a_backup_has_no_part_of_state_that_is_being_forgotten(shop: Shop, tmp_path: Path) -> None:
    """It had the catalog of before and a part of the state; when it ended all was well again, and --keep deleted the others."""
    refused = list[str]()

    def forget() -> None:
        try:
            rebuild_all(shop.deployed.deployment)
        except Transient as error:
            refused.append(error.message)

    with armed("cut", 1, forget):
        made = backup(shop.deployed.deployment, Repository.at(str(tmp_path / "backups")), keep=1)
    assert ["another backup runs" in each for each in refused] == [True]
    assert not made.notes
    check_all(shop.deployed, shop.rows, shop.users)


def test_a_backup_beside_an_erasure_names_it(shop: Shop, tmp_path: Path) -> None:
    """It told to stop "another backup", with the number of the worker's process."""
    place, repository = shop.deployed.deployment, Repository.at(str(tmp_path / "backups"))
    purges = Purges(place.catalog)
    for progress, message in (
        (PurgeProgress(step="state, shard 1 of 2"), "while the worker erases bytes: state, shard 1 of 2"),
        (PurgeProgress(step="waits for the end of a backup", tried=1.0), "another backup runs"),
        (PurgeProgress(), "another backup runs"),
    ):
        purges.note(progress)
        with alone(place.directory, "backup"), pytest.raises(Transient, match=message):
            backup(place, repository)


def test_a_restore_on_a_full_disk_has_a_remedy(
    shop: Shop, umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(shop.deployed.deployment, Repository.at(str(tmp_path / "backups")))

    def full(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("umbel.runtime.recovery.state_targets.os.fsync", full)
        shown = umbel("restore", str(tmp_path / "backups"), "--dir", str(tmp_path / "restored"))
    assert shown.exit_code != 0
    assert isinstance(shown.exception, Transient)
    assert "nothing was restored; free some disk space" in str(shown.exception)
    assert not (tmp_path / "restored").exists()
