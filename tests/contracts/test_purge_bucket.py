"""Purges of state in a bucket: the bytes are gone from every object, and from the caches of machines that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.deployed import Deployed
from tests.kills import Killed
from tests.s3server import S3Server
from tests.town import BOB, GONE, SECRET, START, Town, damage, where
from umbel.state.runs import maintenance, object_files, rewriting
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.rewriting import rewrite_without
from umbel.state.runs.run import RunFile, pack_run

LATER = START + timedelta(days=30)


@dataclass
class BucketTown:
    """A town with its state in a bucket."""

    town: Town
    objects: Path
    caches: Path
    url: str
    environment: dict[str, str]

    def where(self, text: str) -> list[str]:
        folders = (self.town.folder, self.objects, self.caches)
        return [each for folder in folders if folder.exists() for each in where(folder, text)]

    def elsewhere(self, name: str) -> Deployed:
        """Open it as a process on another machine does: with a cache of its own."""
        return Deployed(self.town.folder, store_url=f"{self.url}?cache={self.caches / name}")


@pytest.fixture
def made(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketTown]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    (s3.folder / "state").mkdir(exist_ok=True)
    prefix, caches = uuid4().hex, tmp_path / "caches"
    town = Town(tmp_path / "umbel", is_new=True, store_url=f"s3://state/{prefix}?cache={caches / 'own'}")
    town.fill()
    yield BucketTown(town, s3.folder / "state" / prefix, caches, f"s3://state/{prefix}", s3.environment)
    town.deployed.close()


def is_purged(made: BucketTown) -> bool:
    progress = made.town.progress()
    assert (progress.error, progress.left) == ("", 0), progress.notes
    return [made.where(text) for text in (SECRET, GONE)] == [[], []]


def test_erased_bytes_are_gone_from_every_object_and_cache(made: BucketTown) -> None:
    town, follower = made.town, made.elsewhere("follower")
    before, keys = (town.online(), town.offline()), [{"email": BOB, "region": "eu"}]
    bob = follower.lookup("People", keys, [LATER])
    kinds = {each.partition("/")[0] for each in where(made.objects, SECRET)}
    assert kinds == {"shard-000", "shard-001"}
    assert any(each.endswith(".run") for each in where(made.objects, SECRET))
    assert where(made.caches, SECRET)
    town.erase(GONE)
    town.process()
    assert follower.lookup("People", keys, [LATER]) == bob
    follower.lookup("People", [{"email": f"p{n}@example.com", "region": "eu"} for n in range(12)], [LATER] * 12)
    assert is_purged(made)
    assert (town.online(), town.offline()) == before
    assert damage(town) == []
    town.reopen()
    assert (town.online(), town.offline()) == before
    town.erase(BOB)
    town.process()
    assert follower.lookup("People", keys, [LATER]) == [None]
    follower.lookup("People", [{"email": f"p{n}@example.com", "region": "eu"} for n in range(12)], [LATER] * 12)
    assert made.where(BOB) == []
    follower.close()


def test_runs_that_a_killed_maintenance_left_are_deleted_if_they_have_the_rows(made: BucketTown) -> None:
    with_rows = [made.objects / each for each in where(made.objects, SECRET) if each.endswith(".run")]
    without = [each for each in made.objects.rglob("*.run") if each not in with_rows]
    left = [each.with_name(f"{uuid4().hex}.run") for each in (with_rows[0], *without[:1])]
    for one, other in zip((with_rows[0], *without[:1]), left, strict=True):
        run = RunFile(pa.py_buffer(one.read_bytes()), one.name)
        other.write_bytes(pack_run(run.slice(0, run.rows), run.table, run.order, other.name))
    damaged = with_rows[0].with_name(f"{uuid4().hex}.run")
    damaged.write_bytes(with_rows[0].read_bytes()[:-100])
    made.town.erase(GONE)
    made.town.process()
    assert is_purged(made)
    assert [each.exists() for each in left] == [False, *[True for _ in without[:1]]]
    assert not damaged.exists()
    assert damage(made.town) == []


@pytest.mark.parametrize("work", ["_flush", "_merge"])
def test_maintenance_that_began_before_changes_nothing_and_leaves_nothing(
    made: BucketTown, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    town, other = made.town, made.elsewhere("other")
    if work == "_merge":
        town.flush()
    before, written, turns = (town.online(), town.offline()), maintenance._written, list[int]()

    def delayed(*args: Any, **options: Any) -> Any:
        parts = written(*args, **options)
        if not turns:
            turns.append(1)
            town.erase(GONE)
            town.process()
        return parts

    other.lookup("People", [{"email": BOB, "region": "eu"}], [LATER])
    monkeypatch.setattr(maintenance, "_written", delayed)
    shards = other.deployment.store._shards  # type: ignore[attr-defined]
    for shard in shards:
        shard.refresh()
        monkeypatch.setattr(shard, "options", type(shard.options)(flush_bytes=1, fan=2))
        maintain(shard, flush_bytes=1 if work == "_flush" else 1 << 40)
    assert turns
    monkeypatch.setattr(maintenance, "_written", written)
    other.lookup("People", [{"email": BOB, "region": "eu"}], [LATER])
    other.close()
    assert is_purged(made)
    assert (town.online(), town.offline()) == before
    assert damage(town) == []


def test_a_purge_that_ends_anywhere_is_repeated(made: BucketTown, monkeypatch: pytest.MonkeyPatch) -> None:
    town = made.town
    before, ended = (town.online(), town.offline()), list[str]()
    for place in ("rewritten", "before a name", "published", "before a removal", "run removed"):

        def reached(name: str, place: str = place) -> None:
            if name == place and not ended.count(place):
                ended.append(place)
                raise Killed

        for module in (rewriting, object_files):
            monkeypatch.setattr(module, "reach", reached)
        town.erase(GONE)
        try:
            town.process()
        except Killed:
            town.reopen()
        monkeypatch.undo()
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        assert (town.online(), town.offline()) == before, place
    assert set(ended) >= {"rewritten", "published"}
    town.process()
    assert is_purged(made)
    assert damage(town) == []


def test_what_is_rewritten_is_counted(made: BucketTown) -> None:
    store = made.town.deployed.deployment.store
    assert rewrite_without(store._shards[0], {}) == 0  # type: ignore[attr-defined]
