"""State of one deployment in the place of another one's: it is damage, never read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.sales import at
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.runtime.batch import drain
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.rebuild import rebuild_all
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore

KEYS = [{"user": number} for number in range(6)]
SHARD = "store/shard-000"


def totals(deployed: Deployed) -> list[object]:
    return deployed.lookup("Totals", KEYS, [at(10**6)] * len(KEYS))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a deployment with the same datasets, which has sold more."""
    made = Shop(tmp_path_factory.mktemp("other"))
    for _ in range(5):
        made.sell()
    made.deployed.close()
    return made.folder / "umbel"


def sold(folder: Path, waves: int) -> list[object]:
    """Return what a deployment without damage has after so many waves."""
    made = Shop(folder)
    for _ in range(waves):
        made.sell()
    made.deployed.close()
    return totals(made.reopened())


def replaced(shop: Shop, other: Path, name: str) -> None:
    shop.deployed.close()
    target = shop.folder / "umbel" / name
    if target.is_dir():
        shutil.rmtree(target)
        shutil.copytree(other / name, target)
    else:
        shutil.copyfile(other / name, target)
    shop.reopened()


def texts(deployed: Deployed) -> list[str]:
    return [each.text for each in check(deployed.deployment) if each.subject.startswith("state")]


@pytest.mark.parametrize("name", [SHARD, f"{SHARD}/journal", f"{SHARD}/journal/000000000001.log"])
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_shard_of_another_deployment_is_found_refused_and_made_again(
    shop: Shop, other: Path, name: str, is_restored: bool, tmp_path: Path
) -> None:
    if is_restored:
        repository = Repository.at(str(tmp_path / "backups"))
        backup(shop.deployed.deployment, repository)
        shop.deployed.close()
        restore(repository, tmp_path / "again/umbel")
        shop = Shop.opened(tmp_path / "again", shop.waves)
    assert texts(shop.deployed) == []
    replaced(shop, other, name)
    assert [text for text in texts(shop.deployed) if "it is of another store" in text]
    with pytest.raises(Damaged, match="it is of another store") as refused:
        totals(shop.deployed)
    assert "umbel check" in str(refused.value.hint)
    with pytest.raises(Damaged, match="it is of another store"):
        shop.sell()
    assert rebuild_all(shop.reopened().deployment) == []
    drain(shop.reopened().deployment)
    assert totals(shop.deployed) == sold(tmp_path / "reference", shop.waves)
    assert texts(shop.deployed) == []
    shop.deployed.close()


def test_a_manifest_of_another_deployment_is_found_and_mended(shop: Shop, tmp_path: Path) -> None:
    one = Shop(tmp_path / "two")
    for each in (one, one, shop):
        each.sell()
    one.flush()
    one.deployed.close()
    shop.flush()
    before = totals(shop.deployed)
    replaced(shop, one.folder / "umbel", f"{SHARD}/manifest")
    with pytest.raises(Damaged, match=r"the manifest 0+1.json of the state in .* is damaged: it is of another store"):
        totals(shop.deployed)
    assert all(done for _, done in repair_all(shop.deployed.deployment, list(check(shop.deployed.deployment))))
    assert totals(shop.reopened()) == before


def test_the_whole_store_of_another_deployment_is_not_mended_for_this_one(shop: Shop, other: Path) -> None:
    replaced(shop, other, "store")
    found = [each for each in check(shop.deployed.deployment) if each.subject.startswith("state")]
    assert [each.text for each in found] == ["umbel/store/store.json has another id than the catalog tells of"]
    assert found[0].mend is None
