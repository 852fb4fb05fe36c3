"""Backups: what is in them, what a later one moves, and what damage does to them."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.sales import check_all, put_everywhere
from tests.selling import Shop
from umbel.catalog.snapshots import unwritten
from umbel.errors import Damaged, InvalidValue, NotSupported, Transient, UnknownName
from umbel.processes.locks import alone
from umbel.runtime.batch import drain
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery.backup import PACKED, backup
from umbel.runtime.recovery.cut import CATALOG, LINKS, _Pins, cut
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore, verify


def check_restored(shop: Shop, repository: Repository, folder: Path, which: str | None = None) -> None:
    restore(repository, folder, which)
    found = Deployed(folder)
    drain(found.deployment)
    check_all(found, shop.rows, shop.users)
    found.close()


def test_what_is_restored_answers_the_same(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.sell()
    shop.flush()
    shop.sell()
    shop.moved(repository)
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_a_restored_deployment_goes_on(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.moved(repository)
    shop.deployed.close()
    restore(repository, tmp_path / "elsewhere")
    shop.deployed = Deployed(tmp_path / "elsewhere")
    for _ in range(2):
        shop.sell()
        shop.flush()
    check_all(shop.deployed, shop.rows, shop.users)
    shop.moved(repository)
    check_restored(shop, repository, tmp_path / "further")


def test_the_second_backup_moves_only_what_is_new(shop: Shop, repository: Repository) -> None:
    for _ in range(3):
        shop.sell()
    shop.flush()
    first = shop.moved(repository)
    assert first > 100_000
    assert shop.moved(repository) < 1_000  # the number of the backup's own lock, nothing of the data
    shop.sell()
    assert 0 < shop.moved(repository) < first / 2


def test_a_restored_copy_moves_nothing(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    first = shop.moved(repository)
    restore(repository, tmp_path / "elsewhere")
    assert backup(Deployment.at(tmp_path / "elsewhere"), repository).written < first / 2


def test_old_backups_stay_as_they_were(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    sold = []
    for _ in range(3):
        shop.moved(repository)
        sold.append((list(shop.rows), list(shop.users)))
        shop.sell()
        shop.flush()
    for number, (rows, users) in enumerate(sold, 1):
        restore(repository, tmp_path / str(number), str(number))
        found = Deployed(tmp_path / str(number))
        check_all(found, rows, users)
        found.close()


def test_retention_deletes_what_no_backup_needs(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    logged = shop.log_features()
    for _ in range(3):
        shop.sell()
        shop.flush()
        shop.moved(repository)
    for path in logged:
        path.unlink()
    shop.moved(repository)
    before, ids = set(repository.objects()), repository.ids()
    shop.sell()
    report = backup(shop.deployed.deployment, repository, keep=2)
    assert report.removed == ids[:3]
    assert report.freed >= 3 * PACKED
    assert len(repository.ids()) == 2
    assert before - set(repository.objects())
    for backup_id in repository.ids():
        verify(repository, backup_id)
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_the_backup_of_a_damaged_deployment_deletes_none(shop: Shop, repository: Repository) -> None:
    """With `keep=1` it deleted the last one that could be restored."""
    shop.moved(repository)
    shop.sell()
    plan = max((shop.folder / "umbel" / "plans").glob("*.json"))
    whole = plan.read_bytes()
    plan.write_bytes(whole[:-2])
    report = backup(shop.deployed.deployment, repository, keep=1)
    assert (report.removed, len(repository.ids())) == ([], 2)
    (note,) = report.notes
    assert note.startswith("old backups stay, for the new one is of a damaged deployment: plan ")
    (note,) = backup(shop.deployed.deployment, repository).notes
    assert note.startswith("the backup is of a damaged deployment: plan ")
    plan.write_bytes(whole)
    assert len(backup(shop.deployed.deployment, repository, keep=1).removed) == 3


def test_an_object_of_which_little_is_needed_is_not_used_again(
    shop: Shop, repository: Repository, tmp_path: Path
) -> None:
    day = shop.folder / "umbel/features/main/w/2026-01-01"
    day.mkdir(parents=True)
    small = [day / f"{number}.sum.ndjson" for number in range(20)]
    for path in small:
        path.write_bytes(os.urandom(PACKED // 2))
    shop.moved(repository)
    (pack,) = [name for name, size in repository.objects().items() if size > 8 * PACKED]
    for path in small[3:]:
        path.unlink()
    shop.moved(repository)  # as of the backup before it is whole
    assert pack in repository.read_list(repository.ids()[-1]).objects
    assert shop.moved(repository) > 3 * PACKED // 2
    assert pack not in repository.read_list(repository.ids()[-1]).objects
    assert shop.moved(repository) < PACKED
    report = backup(shop.deployed.deployment, repository, keep=2)
    assert report.freed > 8 * PACKED
    assert pack not in repository.objects()
    verify(repository, None)
    check_restored(shop, repository, tmp_path / "elsewhere")
    for path in small[:3]:
        assert (tmp_path / "elsewhere" / path.relative_to(shop.folder / "umbel")).read_bytes() == path.read_bytes()


def test_the_key_of_the_secrets_is_not_in_it(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.deployed.deployment.vault.add("password", "hunter2")
    shop.moved(repository)
    key = (shop.folder / "umbel" / "secret.key").read_bytes()
    assert not any(key in path.read_bytes() for path in (tmp_path / "backups").rglob("*") if path.is_file())
    restore(repository, tmp_path / "elsewhere")
    found = Deployment.at(tmp_path / "elsewhere")
    assert found.vault.names() == ["password"]
    (tmp_path / "elsewhere" / "secret.key").write_bytes(key)
    assert found.vault.get("password") == "hunter2"


def test_a_folder_that_is_not_empty_is_refused(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.moved(repository)
    target = tmp_path / "mine"
    target.mkdir()
    (target / "letter.txt").write_text("dear")
    with pytest.raises(InvalidValue, match="not empty"):
        restore(repository, target)
    assert [each.name for each in target.iterdir()] == ["letter.txt"]
    with pytest.raises(InvalidValue, match="not empty"):
        restore(repository, shop.folder / "umbel")


def test_an_empty_folder_is_accepted(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.moved(repository)
    (tmp_path / "elsewhere").mkdir()
    check_restored(shop, repository, tmp_path / "elsewhere")


@pytest.mark.parametrize("harm", ["flip", "cut", "delete"])
def test_damage_of_a_backup_is_reported_with_the_file(
    shop: Shop, repository: Repository, tmp_path: Path, harm: str
) -> None:
    shop.moved(repository)
    found = repository.read_list(repository.chosen(None))
    (name,) = [each for each in found.files if each.startswith("store/shard-000/journal")]
    part = found.files[name].parts[0]
    path = tmp_path / "backups" / "objects" / part.object[:2] / part.object
    data = bytearray(path.read_bytes())
    data[part.start + 3] ^= 1
    if harm == "delete":
        path.unlink()
    else:
        path.write_bytes(data[: part.start + 3] if harm == "cut" else data)
    with pytest.raises(Damaged, match="is missing in the backup" if harm == "delete" else name):
        restore(repository, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    assert not list(tmp_path.glob(".elsewhere*"))
    with pytest.raises(Damaged, match="is missing in the backup" if harm == "delete" else name):
        verify(repository)


def test_a_damaged_list_is_reported_and_stops_no_later_backup(
    shop: Shop, repository: Repository, tmp_path: Path
) -> None:
    shop.moved(repository)
    (path,) = (tmp_path / "backups" / "backups").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Damaged, match="list of backup 000001"):
        restore(repository, tmp_path / "elsewhere")
    report = backup(shop.deployed.deployment, repository, keep=2)
    assert report.removed == []
    assert "damaged" in report.notes[0]
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_where_there_is_no_backup_it_is_said(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no whole backup"):
        restore(repository, tmp_path / "elsewhere")


def test_a_backup_is_not_made_inside_of_what_it_backs_up(shop: Shop) -> None:
    with pytest.raises(InvalidValue, match="part of the other"):
        shop.moved(Repository.at(str(shop.folder / "umbel" / "backups")))
    shutil.copytree(shop.folder / "umbel", shop.folder / "other")
    with pytest.raises(InvalidValue, match="folder of a deployment"):
        shop.moved(Repository.at(str(shop.folder / "other")))


def test_a_url_of_a_folder_may_be_quoted(tmp_path: Path) -> None:
    assert Repository.at(f"file://{tmp_path}/a%20b").folder == tmp_path / "a b"
    assert Repository.at(f"{tmp_path}/a%20b").folder == tmp_path / "a%20b"


@pytest.mark.parametrize("url", ["ftp://x/y", "s3://", "file://host/x", "", "s3://b/a//b", "s3://b/./a"])
def test_other_places_are_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"backups cannot be in|is no place in a bucket"):
        Repository.at(url)


def test_the_backups_of_another_deployment_stay_apart(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.moved(repository)
    (tmp_path / "b").mkdir()
    other = Shop(tmp_path / "b")
    with pytest.raises(InvalidValue, match=r"of another deployment, .*/umbel"):
        backup(other.deployed.deployment, repository, keep=1)
    other.deployed.close()
    shop.moved(repository)
    assert len(repository.ids()) == 2
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_one_backup_at_a_time(shop: Shop, repository: Repository) -> None:
    with (
        alone(shop.deployed.deployment.directory, "backup"),
        pytest.raises(Transient, match="another backup runs"),
    ):
        shop.moved(repository)


def test_state_in_memory_is_refused(repository: Repository, tmp_path: Path) -> None:
    place = Deployment.at(tmp_path / "other", store_url="memory://")
    with pytest.raises(NotSupported, match="a folder or a bucket"):
        backup(place, repository)


def test_before_the_first_batch_there_are_catalog_and_events(repository: Repository, tmp_path: Path) -> None:
    made = Shop(tmp_path)
    made.rows += put_everywhere(tmp_path / "files", made.deployed, 0)
    made.moved(repository)
    check_restored(made, repository, tmp_path / "elsewhere")
    made.deployed.close()


SCRIPT = """
import sys
from pathlib import Path
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery import backup as module
from umbel.runtime.recovery.repository import Repository
module.DRAFT_EVERY, module.PACKED = 0.0, 1 << 14
module.backup(Deployment.at(Path(sys.argv[1])), Repository.at(sys.argv[2]), keep=1)
"""


def killed(shop: Shop, tmp_path: Path, failpoint: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(shop.folder / "umbel"), str(tmp_path / "backups")]
    ended = subprocess.run(command, env={**os.environ, "UMBEL_FAILPOINT": failpoint}, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", ["cut", "object:2", "drafted:3", "listed", "list deleted", "object deleted:2"])
def test_a_killed_backup_is_not_taken_for_a_whole_one(
    shop: Shop, repository: Repository, tmp_path: Path, point: str
) -> None:
    shop.sell()
    shop.flush()
    if "deleted" in point:
        logged = shop.log_features()
        shop.moved(repository)
        shop.sell()
        for path in logged:
            path.unlink()
    killed(shop, tmp_path, point)
    for each in repository.ids():
        verify(repository, each)
    assert bool(repository.ids()) == (point in ("listed", "list deleted", "object deleted:2"))
    shop.sell()
    backup(shop.deployed.deployment, repository, keep=1)
    assert len(repository.ids()) == 1
    assert set(repository.objects()) == repository.read_list(repository.ids()[0]).objects
    assert not repository.drafts()
    assert not (shop.folder / "umbel" / LINKS).exists()
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_a_mount_point_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda self: self == tmp_path / "volume")
    with pytest.raises(InvalidValue, match="is a mount point"):
        restore(Repository.at(str(tmp_path / "backups")), tmp_path / "volume")


def test_a_killed_backup_is_continued(shop: Shop, repository: Repository, tmp_path: Path) -> None:
    shop.sell()
    shop.flush()
    killed(shop, tmp_path, "listed")  # all is written, and nothing is known to be whole but this
    whole = sum(repository.objects().values())
    repository.delete_list(repository.ids()[0])
    killed(shop, tmp_path, "cut")
    assert shop.moved(repository) < whole / 4


def test_a_cut_outlives_what_the_deployment_deletes(shop: Shop) -> None:
    place = shop.deployed.deployment
    for _ in range(3):
        shop.sell()
        shop.flush()
    with cut(place) as found:
        before = {name: each.path.read_bytes()[: each.size] for name, each in found.files.items()}
        shop.sell()
        for name in ("store", "changes", "plans"):
            shutil.rmtree(place.directory / name)
        heads = {name: each.head for name, each in found.files.items()}
        after = {name: each.path.read_bytes()[: each.size] for name, each in found.files.items()}
        assert [
            name for name, data in before.items() if data[len(heads[name]) :] != after[name][len(heads[name]) :]
        ] == []
        assert any(name.endswith(".run") for name in found.files)
        assert CATALOG in found.files


def test_no_batch_ends_while_the_cut_is_taken(
    shop: Shop, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that begins after the shards were pinned, and would end before the catalog is."""
    selling, pinned = threading.Thread(target=shop.sell), _Pins._change_log

    def and_sell(pins: _Pins, folder: Path) -> None:
        if not selling.is_alive() and len(shop.rows) == 100:
            selling.start()
            selling.join(3)  # it waits for the catalog, or is done
        pinned(pins, folder)

    monkeypatch.setattr(_Pins, "_change_log", and_sell)
    report = backup(shop.deployed.deployment, repository)
    selling.join()
    assert len(shop.rows) == 200
    assert report.backup.batch == 0
    check_restored(shop, repository, tmp_path / "elsewhere")


def test_nobody_writes_the_catalog_while_it_is_locked(shop: Shop) -> None:
    path = shop.folder / "umbel" / CATALOG
    with unwritten(f"sqlite:///{path}"):
        assert shop.deployed.deployment.catalog.latest() == 1
        with (
            closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
    shop.deployed.deployment.catalog.record_event("test", "info", "free again")
