"""Checks of state in a bucket: objects that are damaged or missing are found, named and given up, and the rest goes on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.deployed import Deployed
from tests.s3server import S3Server
from tests.sales import USERS, check_all, sales
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.runtime.batch import drain
from umbel.runtime.integrity import damage
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.rebuild import rebuild_all
from umbel.state.runs.manifest import read_latest


@pytest.fixture(scope="module")
def sold(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folder of a deployment, and that of its objects."""
    (s3.folder / "state").mkdir(exist_ok=True)
    prefix, folder = uuid4().hex, tmp_path_factory.mktemp("sold")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        shop = Shop(folder, store_url=f"s3://state/{prefix}?cache={folder / 'cache'}")
        for _ in range(2):
            shop.sell()
            shop.flush()
        shop.sell()
        shop.write_checkpoint()
        shop.deployed.close()
    return folder / "umbel", s3.folder / "state" / prefix


@pytest.fixture
def place(
    sold: tuple[Path, Path], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Deployed, Path]:
    """Return a copy of it, with a cache that has all objects as they were."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    prefix = uuid4().hex
    objects = s3.folder / "state" / prefix
    shutil.copytree(sold[1], objects)
    shutil.copytree(sold[0], tmp_path / "umbel")
    shutil.copytree(sold[0].parent / "cache", tmp_path / "cache")
    return Deployed(tmp_path / "umbel", store_url=f"s3://state/{prefix}?cache={tmp_path / 'cache'}"), objects


def flipped(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(int(len(data) * at), len(data) - 1)] ^= 4
    path.write_bytes(data)


OBJECT = re.compile(r"[0-9a-f]+\.(log|json|run)")
HARMS: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flipped(path, 0),
    "middle byte": lambda path: flipped(path, 0.5),
    "last byte": lambda path: flipped(path, 1),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "removed": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "of another shard": lambda path: path.write_bytes(next(iter(others(path))).read_bytes()),
}


def complete(folder: Path) -> list[Path]:
    """Return the objects of a folder; what the server is writing has a name of its own until it is complete."""
    return sorted(each for each in folder.iterdir() if OBJECT.fullmatch(each.name))


def others(path: Path) -> Iterator[Path]:
    """Yield the objects of the same kind in the other shard."""
    for each in complete(path.parents[2] / "shard-001" / path.parent.name):
        if each.read_bytes() != path.read_bytes():
            yield each


def object_of(objects: Path, kind: str, deployed: Deployed) -> Path:
    """Return an object of the first shard that counts."""
    (files, *_), folder = deployed.deployment.store.files(), objects / "shard-000"  # type: ignore[attr-defined]
    manifest = read_latest(files)
    if kind == "run":
        return folder / "runs" / min(manifest.names)
    if kind == "manifest":
        return folder / kind / f"{manifest.version:012d}.json"
    later = [each for each in complete(folder / kind) if int(each.stem) > manifest.position.number]
    assert len(later) > 1
    return later[0]


def test_nothing_is_found_where_nothing_is_wrong(place: tuple[Deployed, Path]) -> None:
    assert list(check(place[0].deployment)) == []
    assert list(check(place[0].deployment, deep=False)) == []


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", ["run", "journal", "manifest"])
def test_damage_is_found_and_named_and_the_rest_goes_on(place: tuple[Deployed, Path], kind: str, harm: str) -> None:
    deployed, objects = place
    path = object_of(objects, kind, deployed)
    HARMS[harm](path)
    found = list(check(deployed.deployment))
    if (kind, harm) == ("manifest", "removed"):  # the one before and the journal say the same
        assert {each.lost for each in found} <= {""}
        return
    assert {each.subject for each in found} == {"state, shard 0"}
    assert all(path.name.split(".")[0] in each.text for each in found), [each.text for each in found]
    if kind == "manifest":
        assert [each.lost for each in found] == [""]


@pytest.mark.parametrize("kind", ["run", "journal", "manifest"])
def test_what_can_be_mended_is(place: tuple[Deployed, Path], kind: str) -> None:
    deployed, objects = place
    flipped(object_of(objects, kind, deployed), 0.5)
    done = list(repair_all(deployed.deployment, list(check(deployed.deployment))))
    (finding, text) = done[0]
    if not text:
        assert "cannot be rebuilt alone" in finding.remedy  # state of a dataset that is read from a source
        return
    again = Deployed(deployed.deployment.directory, store_url=deployed.deployment.store_url)
    assert list(check(again.deployment)) == []
    again.close()


@pytest.mark.parametrize("lost", [1, 2])
def test_a_journal_without_its_last_objects_is_found_and_not_read(place: tuple[Deployed, Path], lost: int) -> None:
    deployed, objects = place
    last = sorted((objects / "shard-000/journal").iterdir())[-lost:]
    for path in last:
        path.unlink()
    (found,) = check(deployed.deployment)
    assert (found.subject, last[-1].name in found.text) == ("state, shard 0", True), found.text
    with pytest.raises(Damaged, match="finished batches wrote up to"):
        deployed.deployment.check_state(deep=True)
    ((_, done),) = repair_all(deployed.deployment, [found])
    assert done == ""
    assert "cannot be rebuilt alone" in found.remedy


@pytest.mark.parametrize("harm", ["nothing", "description", "journal", "run"])
def test_all_sources_are_read_again(place: tuple[Deployed, Path], harm: str) -> None:
    deployed, objects = place
    path = object_of(objects, harm, deployed) if harm in ("journal", "run") else objects / "store.json"
    deployed.close()
    if harm != "nothing":
        flipped(path, 0 if harm == "description" else 0.5)
    (objects / "of-another-program").write_bytes(b"x")
    url, folder = deployed.deployment.store_url, deployed.deployment.directory
    again = Deployed(folder, store_url=url)
    assert rebuild_all(again.deployment) == []
    again.deployment.catalog.close()
    assert [path.name for path in objects.rglob("*") if path.is_file()] == ["of-another-program"]
    again = Deployed(folder, store_url=url)
    drain(again.deployment)
    rows, users = sales(0, 300), [row for wave in USERS[:3] for row in wave]
    check_all(again, rows, users)
    assert list(check(again.deployment)) == [] or [each.subject for each in check(again.deployment)] == ["checkpoint"]
    again.close()


@pytest.mark.parametrize("kind", ["run", "journal"])
def test_a_missing_object_is_named_where_there_are_no_copies(
    place: tuple[Deployed, Path], kind: str, tmp_path: Path
) -> None:
    """It read the same manifest for ever where a run was missing."""
    deployed, objects = place
    path = object_of(objects, kind, deployed)
    path.unlink()
    url, folder = deployed.deployment.store_url.partition("?")[0], deployed.deployment.directory
    other = Deployed(folder, store_url=f"{url}?cache={tmp_path / 'without'}")
    with pytest.raises(Damaged, match=f"lacks {path.parent.name}/{path.name}"):
        other.deployment.store.state_ids(0)
    other.close()


def test_state_that_is_not_made_yet_misses_nothing(place: tuple[Deployed, Path], tmp_path: Path) -> None:
    new = Deployed(tmp_path / "new", store_url=f"s3://state/{uuid4().hex}?cache={tmp_path / 'copies'}")
    assert list(damage(new.deployment, deep=True)) == []
    new.close()


@pytest.mark.parametrize(("harm", "deep"), [("removed", False), ("truncated", False), ("middle byte", True)])
def test_an_object_is_missed_although_this_machine_has_a_copy(
    place: tuple[Deployed, Path], harm: str, deep: bool
) -> None:
    """`umbel doctor` looked at the copies only, and other machines could not read the state."""
    deployed, objects = place
    assert list(damage(deployed.deployment, deep=True)) == []
    path = object_of(objects, "run", deployed)
    HARMS[harm](path)
    (found,) = damage(deployed.deployment, deep=deep)
    assert path.name in str(found)


@pytest.mark.parametrize("harm", ["removed", "empty"])
def test_a_description_is_written_again(place: tuple[Deployed, Path], harm: str) -> None:
    """That of state in a folder was; here all sources had to be read again."""
    deployed, objects = place
    HARMS[harm](objects / "store.json")
    again = reopened(deployed)
    (found,) = repair_all(again.deployment, list(check(again.deployment)))
    assert (found[0].subject, found[0].lost, found[1]) == ("state", "", "written again, as the catalog knows it")
    last = reopened(again)
    assert list(check(last.deployment)) == []
    check_all(last, sales(0, 300), [row for wave in USERS[:3] for row in wave])
    last.deployment.catalog.close()


def test_a_description_of_state_of_others_is_not_written(place: tuple[Deployed, Path]) -> None:
    deployed, objects = place
    (objects / "store.json").unlink()
    for folder, name in (("claims", "999999999999"), (".", "restoring")):
        (objects / folder).mkdir(exist_ok=True)
        (objects / folder / name).write_bytes(b"another")
        again = reopened(deployed)
        (found,) = check(again.deployment)
        assert (found.lost, found.mend) == ("all state", None)
        (objects / folder / name).unlink()


def test_state_of_another_prefix_may_be_elsewhere(place: tuple[Deployed, Path]) -> None:
    folder = place[0].deployment.directory
    other = Deployed(folder, store_url=f"s3://state/{uuid4().hex}")
    (found,) = check(other.deployment)
    assert found.remedy.startswith("if the worker has it elsewhere, name its store: --store")
    other.close()


def test_state_without_manifests_is_found(place: tuple[Deployed, Path]) -> None:
    """The journal was whole, and so nothing was found, but nothing was served."""
    deployed, objects = place
    for path in complete(objects / "shard-000/manifest"):
        path.unlink()
    again = reopened(deployed)
    (found,) = check(again.deployment)
    assert (found.subject, found.text) == ("state, shard 0", "manifest has no version that can be read")
    assert "umbel rebuild --all" in found.remedy
    again.deployment.catalog.close()


def reopened(deployed: Deployed) -> Deployed:
    deployed.deployment.catalog.close()
    return Deployed(deployed.deployment.directory, store_url=deployed.deployment.store_url)
