"""Every kind of file that a deployment has, damaged in every way: it is found and named, and everything else is looked at."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.log.features import FeatureLog
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.finding import CheckFinding

KINDS = {
    "catalog.db": "catalog",
    "changes/Last/table.parquet": "change log of Last",
    "changes/Last/_delta_log/n.json": "change log of Last",
    "changes/Last/_tail/n.arrow": "change log of Last",
    "checkpoint/live/commits/n": "checkpoint",
    "checkpoint/live/metadata": "checkpoint",
    "checkpoint/live/offsets/n": "checkpoint",
    "features/n.ndjson": "feature log",
    "ingest/web/sales/n.seg": "ingest/web/sales",
    "ingest/web/sales/oldest": "ingest/web/sales",
    "plans/n.json": "batch plans",
    "store/shard-0/journal/n.log": "state, shard 0",
    "store/shard-0/manifest/n.json": "state, shard 0",
    "store/shard-0/runs/n.run": "state, shard 0",
    "store/store.json": "state",
}
"""The kinds of files, and the subject of the finding."""


def kind_of(name: str) -> str:
    """Return the kind of a file by its path in umbel's folder."""
    name = re.sub(r"^changes/(\w+)-[0-9a-f]+/_at_month=[^/]+/.*", r"changes/\1/table.parquet", name)
    name = re.sub(r"^changes/(\w+)-[0-9a-f]+/", r"changes/\1/", name)
    name = re.sub(r"^features/.*", "features/n.ndjson", name)
    name = re.sub(r"shard-00(\d)", r"shard-\1", name)
    return re.sub(r"(/)[0-9a-f]+(\.\w+)?$", r"\1n\2", name)


def flipped(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(int(len(data) * at), len(data) - 1)] ^= 4
    path.write_bytes(data)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flipped(path, 0),
    "middle byte": lambda path: flipped(path, 0.5),
    "last byte": lambda path: flipped(path, 1),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "removed": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "folder": as_folder,
}
UNSEEN = {
    (
        "catalog.db",
        "middle byte",
    ): "free bytes of a page, or a table of which nothing is made; others are swept elsewhere",
    ("changes/Last/_delta_log/n.json", "middle byte"): "Delta has no checksum of commits; here it is the schema's text",
    ("checkpoint/live/commits/n", "middle byte"): "a number that umbel does not read",
    ("checkpoint/live/commits/n", "removed"): "Spark repeats a batch that it has not noted as finished",
    ("checkpoint/live/metadata", "middle byte"): "a random id",
    ("checkpoint/live/offsets/n", "middle byte"): "a number that umbel does not read",
    ("features/n.ndjson", "last byte"): "a line that a crash has cut looks the same",
    ("features/n.ndjson", "truncated"): "a line that a crash has cut looks the same",
    ("features/n.ndjson", "removed"): "days may be deleted",
    ("features/n.ndjson", "empty"): "as before the first answer",
    ("ingest/web/sales/oldest", "removed"): "as before anything was deleted",
    ("store/shard-0/manifest/n.json", "removed"): "the one before and the journal say the same",
}
"""What cannot be told from a file that is as it should be, or makes no difference."""
QUICK = {"folder", "another", "empty", "first byte"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Path]]]:
    """Return the folder of a deployment, and its files by kind."""
    shop = Shop(tmp_path_factory.mktemp("whole"))
    for _ in range(2):
        shop.sell()
        shop.flush()
    shop.deployed.flush_logs()
    shop.sell()
    shop.write_checkpoint()
    line = b'{"timestamp":"2026-01-01T00:00:00.000000Z","a":1}\n'
    FeatureLog(shop.folder / "umbel/features").append("main", "w", "2026-01-01", [line] * 5)
    shop.deployed.close()
    root, kinds = shop.folder / "umbel", defaultdict[str, list[Path]](list)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            name = path.relative_to(root)
            kinds[kind_of(name.as_posix())].append(name)
    return root, kinds


ALONE = ("catalog.db", "features/n.ndjson")
"""Kinds with one file, so that no other one can be in its place."""


def cases() -> list[object]:
    return [
        pytest.param(kind, harm, marks=() if harm in QUICK else pytest.mark.nightly)
        for kind in KINDS
        for harm in ([*HARMS] if kind in ALONE else [*HARMS, "another"])
    ]


def found_in(folder: Path) -> list[CheckFinding]:
    try:
        deployed = Deployed(folder)
    except Damaged as error:
        return [CheckFinding("catalog", error.message)]
    try:
        found = list(check(deployed.deployment))
        assert all(each.text for each in found)
        return found
    finally:
        deployed.deployment.catalog.close()


@pytest.mark.parametrize(("kind", "harm"), cases())
def test_damage_is_found_and_named(
    whole: tuple[Path, dict[str, list[Path]]], kind: str, harm: str, tmp_path: Path
) -> None:
    root, kinds = whole
    folder = tmp_path / "umbel"
    shutil.copytree(root, folder)
    path = folder / kinds[kind][-1]
    if harm == "another":
        similar = kind.split("/", maxsplit=1)[0], Path(kind).suffix
        others = [
            each
            for name, found in kinds.items()
            for each in found
            if (name.split("/")[0], Path(name).suffix) == similar
        ]
        contents = ((folder / each).read_bytes() for each in others)
        path.write_bytes(next(each for each in contents if each != path.read_bytes()))
    else:
        HARMS[harm](path)
    found = found_in(folder)
    if (kind, harm) in UNSEEN:
        return
    assert KINDS[kind] in {each.subject for each in found}, [(each.subject, each.text) for each in found]
    others = {each.subject for each in found} - {KINDS[kind]}
    assert not others - ({"checkpoint"} if kind.startswith("plans") else set()), others


def test_a_lost_description_of_the_store_is_written_again(
    whole: tuple[Path, dict[str, list[Path]]], tmp_path: Path
) -> None:
    for name, harm in HARMS.items():
        if name in ("folder", "middle byte"):
            continue
        folder = tmp_path / name
        shutil.copytree(whole[0], folder)
        before = (folder / "store/store.json").read_bytes()
        harm(folder / "store/store.json")
        deployed = Deployed(folder)
        done = [text for _, text in repair_all(deployed.deployment, list(check(deployed.deployment)))]
        deployed.deployment.catalog.close()
        assert done == ["written again, as the catalog knows it"], name
        assert (folder / "store/store.json").read_bytes() == before
        assert found_in(folder) == []


@pytest.mark.parametrize("name", ["n.seg", "oldest"])
def test_the_head_and_the_start_of_an_ingest_log_are_written_again(
    whole: tuple[Path, dict[str, list[Path]]], name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "umbel"
    shutil.copytree(whole[0], folder)
    path = folder / whole[1][f"ingest/web/sales/{name}"][-1]
    before = path.read_bytes()
    flipped(path, 0)
    deployed = Deployed(folder)
    done = list(repair_all(deployed.deployment, list(check(deployed.deployment))))
    deployed.close()
    assert [each.lost for each, _ in done] == [""]
    assert path.read_bytes() == before
    assert found_in(folder) == []
