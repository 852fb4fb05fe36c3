"""Repairs that are interrupted, or that the disk does not take."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selling import Shop
from tests.unit.cli.conftest import Umbel, umbel
from tests.unit.runtime.recovery.test_check import files, run_of
from umbel.runtime.recovery.check import check, repair_all
from umbel.state import disk
from umbel.state.failpoints import armed

__all__ = ["umbel"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    for _ in range(2):
        made.sell()
        made.flush()
    made.write_checkpoint()
    yield made
    made.deployed.close()


class Killed(BaseException):
    pass


def kill() -> None:
    raise Killed


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
