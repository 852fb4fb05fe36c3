"""State that another deployment has made, and state that others of the deployment have elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.sales import at
from tests.selling import Shop
from umbel.errors import Damaged, InvalidValue
from umbel.runtime.batch import drain
from umbel.runtime.recovery import rebuild
from umbel.runtime.recovery.check import check
from umbel.state.durable import NOTED_FOR, DurableStore

KEYS = [{"user": number} for number in range(6)]


@pytest.fixture
def shared(tmp_path: Path) -> str:
    """Return the URL of a store outside of the deployment's folder."""
    return f"file://{tmp_path / 'shared'}"


@pytest.fixture
def shop(tmp_path: Path, shared: str) -> Iterator[Shop]:
    made = Shop(tmp_path / "one", store_url=shared)
    made.sell()
    yield made
    made.deployed.close()


def totals(deployed: Deployed) -> list[object]:
    return deployed.lookup("Totals", KEYS, [at(10**6)] * len(KEYS))


def test_a_new_deployment_does_not_take_the_state_of_another_one(shop: Shop, tmp_path: Path, shared: str) -> None:
    before = totals(shop.deployed)
    other = Shop(tmp_path / "two", store_url=shared)
    with pytest.raises(Damaged, match="is that of another deployment") as refused:
        other.sell()
    assert "--store" in str(refused.value.hint)
    with pytest.raises(Damaged, match="is that of another deployment"):
        totals(other.deployed)
    assert [each.text for each in check(other.deployed.deployment) if each.subject == "state"] == [
        "the state in one/shared is that of another deployment".replace("one", tmp_path.name)
    ]
    with pytest.raises(InvalidValue, match="left as it is"):
        rebuild.rebuild_all(other.deployed.deployment)
    assert totals(shop.reopened()) == before
    other.deployed.close()


def copied(shop: Shop, folder: Path) -> Shop:
    """Return a shop in a copy of another one's folder, which names the same store."""
    shop.deployed.close()
    shutil.copytree(shop.folder, folder)
    made = Shop.opened(folder, shop.waves)
    made.deployed.close()
    made.settings = shop.settings
    shop.reopened(), made.reopened()
    return made


@pytest.mark.parametrize("goes_on", ["the copy", "the original"])
def test_a_copy_of_a_folder_does_not_share_state(shop: Shop, tmp_path: Path, goes_on: str) -> None:
    shop.sell()
    copy = copied(shop, tmp_path / "two")
    first, second = (copy, shop) if goes_on == "the copy" else (shop, copy)
    first.sell()
    before = totals(first.deployed)
    for _ in range(2):
        with pytest.raises(
            Damaged, match="was taken over by a worker of another folder, a copy of this one"
        ) as refused:
            second.sell()
        assert "--store" in str(refused.value.hint)
        second.reopened()
    assert [each.text for each in check(second.deployed.deployment) if each.subject == "state"] == [
        f"the state in {tmp_path.name}/shared was taken over by a worker of another folder, a copy of this one"
    ]
    with pytest.raises(Damaged, match="was taken over"):
        rebuild.rebuild_all(second.deployed.deployment)
    assert totals(first.reopened()) == before
    for _ in range(2):
        first.sell()
        first.reopened()
    assert totals(first.deployed) != before
    copy.deployed.close()


def test_a_claim_that_was_cut_short_is_not_another_ones(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("the machine stops here")

    shop.sell()
    for name in ("claim", "check_claim", "claim"):
        with monkeypatch.context() as patch:
            patch.setattr(DurableStore, name, fail)
            with pytest.raises(OSError, match="stops here"):
                shop.sell()
        shop.reopened()
    shop.process()
    assert shop.deployed.taken()["Sales"] == len(shop.rows)


def test_two_new_deployments_on_one_store(tmp_path: Path, shared: str) -> None:
    one, two = (Shop(tmp_path / name, store_url=shared) for name in ("one", "two"))
    assert totals(two.deployed) == [None] * len(KEYS)
    one.sell()
    with pytest.raises(Damaged, match="is that of another deployment"):
        two.sell()
    one.sell()
    for each in (one, two):
        each.deployed.close()


def test_a_process_without_the_store_of_the_worker_tells_so(tmp_path: Path, shared: str) -> None:
    server = Shop(tmp_path / "one").deployed
    assert totals(server) == [None] * len(KEYS)
    worker = Deployed(tmp_path / "one" / "umbel", store_url=shared)
    worker.log("sales", [{"user": 1, "amount": 1.0, "kind": "a", "t": at(1)}])
    drain(worker.deployment)
    time.sleep(NOTED_FOR)
    with pytest.raises(Damaged, match="the state is missing") as refused:
        totals(server)
    assert "UMBEL_STORE" in str(refused.value.hint)
    server.close()
    worker.close()


def test_the_first_batch_may_be_killed_after_the_store_was_made(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path / "one", store_url=shared)
    monkeypatch.setattr("umbel.runtime.deployment.Deployment.note_store", interrupted)
    with pytest.raises(InterruptedError):
        shop.sell()
    monkeypatch.undo()
    assert (tmp_path / "shared" / "store.json").exists()
    drain(shop.reopened().deployment)
    assert any(totals(shop.deployed))
    shop.deployed.close()


def interrupted(*_: object) -> None:
    raise InterruptedError


def test_an_interrupted_rebuild_of_all_is_repeated(
    shop: Shop, tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = totals(shop.deployed)
    monkeypatch.setattr(DurableStore, "forget", interrupted)
    with pytest.raises(InterruptedError):
        rebuild.rebuild_all(shop.deployed.deployment)
    monkeypatch.undo()
    with pytest.raises(Damaged, match="another deployment") as refused:
        drain(shop.reopened().deployment)
    assert "umbel rebuild --all" in str(refused.value.hint)
    rebuild.rebuild_all(shop.reopened().deployment)
    drain(shop.reopened().deployment)
    assert totals(shop.deployed) == before


def test_a_rebuild_of_all_without_the_store_is_repeated_with_it(shop: Shop, shared: str) -> None:
    before, shop.settings = totals(shop.deployed), {}
    lost = rebuild.rebuild_all(shop.reopened().deployment)
    assert "do this again with its --store" in " ".join(lost)
    shop.settings = {"store_url": shared}
    with pytest.raises(Damaged, match="another deployment"):
        drain(shop.reopened().deployment)
    rebuild.rebuild_all(shop.reopened().deployment)
    drain(shop.reopened().deployment)
    assert totals(shop.deployed) == before
