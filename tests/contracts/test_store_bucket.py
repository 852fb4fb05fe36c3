"""What a store in a bucket must do beyond the contract: decide between writers without a lock, and keep runs in a cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contracts.store_entries import Entries
from tests.contracts.unconditional import unconditional
from tests.s3server import S3Server
from umbel.errors import Damaged, InvalidValue, Terminal, Transient
from umbel.state import failpoints
from umbel.state.port import ConcurrentWrite, Fenced, Stamp
from umbel.state.runs import object_files
from umbel.state.runs.inspection import inspect
from umbel.state.runs.maintenance import maintain
from umbel.state.s3 import BucketStore
from umbel.state.urls import open_store


@pytest.fixture
def place(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a prefix of a bucket that can be reached."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    (s3.folder / "state").mkdir(exist_ok=True)
    return uuid4().hex


@pytest.fixture
def folder(s3: S3Server, place: str) -> Path:
    """Return the folder with the objects of the only shard."""
    return s3.folder / "state" / place / "shard-000"


def opened(place: str, tmp_path: Path, name: str = "cache", **settings: int) -> BucketStore:
    """Open a store as a process on another machine would: with a cache of its own."""
    extra = "".join(f"&{key}={value}" for key, value in settings.items())
    store = open_store(f"s3://state/{place}?cache={tmp_path / name}{extra}", 1)
    assert isinstance(store, BucketStore)
    return store


def put(store: BucketStore, batch: int, value: bytes, epoch: int = 1) -> None:
    with store.transaction(0, ["a"], Stamp(epoch, batch)) as tx:
        Entries(tx, "a").put([b"k"], [value])


def put_after(store: BucketStore, work: Callable[[], None]) -> None:
    """Do some work in a transaction that was begun before."""
    with store.transaction(0, ["a"], Stamp(1, 1)) as tx:
        work()
        Entries(tx, "a").put([b"k"], [b"of one"])


@pytest.mark.parametrize(("ignores", "says"), [(True, "of two writers one would be lost"), (False, "If-None-Match")])
def test_a_storage_without_conditional_puts_is_refused(
    s3: S3Server, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignores: bool, says: str
) -> None:
    with unconditional(s3, ignores=ignores) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(InvalidValue, match=says) as refused:
            put(opened(place, tmp_path), 0, b"v")
        assert "--store" in str(refused.value.hint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    assert not list((s3.folder / "state" / place).rglob("*.*"))
    store = opened(place, tmp_path)
    put(store, 0, b"v")
    assert stored(store) == b"v"
    assert not any(each.is_file() for each in (s3.folder / "state" / place / "probes").glob("*"))


def stored(store: BucketStore) -> bytes | None:
    with store.snapshot(0) as reader:
        return Entries(reader, "a").get([b"k"])[0]


def test_machines_follow_each_other(place: str, tmp_path: Path) -> None:
    one, two = opened(place, tmp_path, "one"), opened(place, tmp_path, "two")
    for batch in range(40):
        put((one, two)[batch % 2], batch, b"%d" % batch)
        assert stored((two, one)[batch % 2]) == b"%d" % batch
    assert stored(opened(place, tmp_path, "three")) == b"39"
    assert one.identity == two.identity


def test_of_two_writers_at_once_one_wins(place: str, tmp_path: Path) -> None:
    one, two = opened(place, tmp_path, "one"), opened(place, tmp_path, "two")
    put(one, 0, b"0")
    with pytest.raises(ConcurrentWrite, match="another process has written"):
        put_after(one, lambda: put(two, 1, b"of two"))
    assert stored(one) == stored(two) == b"of two"
    put(one, 1, b"again")  # as a task that is tried again does
    assert stored(one) == stored(two) == b"again"


def test_a_writer_of_an_earlier_epoch_stops(place: str, tmp_path: Path) -> None:
    one, two = opened(place, tmp_path, "one"), opened(place, tmp_path, "two")
    put(two, 5, b"new", epoch=2)
    with pytest.raises(Fenced):
        put(one, 6, b"old", epoch=1)
    assert stored(one) == b"new"


def test_a_writer_that_slept_while_its_journal_became_runs_is_refused(place: str, tmp_path: Path) -> None:
    one, two = opened(place, tmp_path, "one"), opened(place, tmp_path, "two")
    put(one, 0, b"0")

    def write_and_maintain() -> None:
        for batch in range(1, 9):
            put(two, batch, b"%d" % batch if batch < 8 else b"last")
            maintain(two._shard(0), flush_bytes=1)

    with pytest.raises(ConcurrentWrite, match="while this transaction was open"):
        put_after(one, write_and_maintain)
    assert stored(one) == stored(two) == stored(opened(place, tmp_path, "three")) == b"last"


def test_a_record_that_is_missing_is_reported(place: str, folder: Path, tmp_path: Path) -> None:
    store = opened(place, tmp_path)
    for batch in range(6):
        put(store, batch, b"%d" % batch)
    (folder / "journal" / f"{3:012d}.log").unlink()
    with pytest.raises(Damaged, match=r"lacks journal/0+3\.log"):
        stored(opened(place, tmp_path, "other"))


@pytest.mark.parametrize("kind", ["journal", "runs", "manifest"])
def test_a_flipped_byte_is_reported(place: str, folder: Path, tmp_path: Path, kind: str) -> None:
    store = opened(place, tmp_path, flush_bytes=1)
    for batch in range(8):
        put(store, batch, b"%d" % batch)
    store.close()
    for path in sorted(folder.glob(f"{kind}/*")):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    with pytest.raises(Damaged):
        opened(place, tmp_path, "other").check(0)


def test_a_shard_that_was_removed_is_no_empty_one(place: str, folder: Path, tmp_path: Path) -> None:
    put(opened(place, tmp_path), 0, b"0")
    for path in folder.rglob("*.*"):
        path.unlink()
    with pytest.raises(Damaged, match="is missing"):
        stored(opened(place, tmp_path, "other"))


def test_a_put_whose_answer_was_lost_counts_once(
    place: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = opened(place, tmp_path), object_files.obstore.put
    put(store, 0, b"0")

    def twice(*arguments: object, **options: object) -> object:
        real(*arguments, **options)
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(object_files.obstore, "put", twice)
        put(store, 1, b"1")
    assert stored(opened(place, tmp_path, "other")) == b"1"
    assert len(list((folder / "journal").iterdir())) == 2


def test_many_records_become_runs_whatever_their_size(
    place: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_files, "LONG", 10)
    store = opened(place, tmp_path)
    for batch in range(60):
        put(store, batch, b"%d" % batch)
    store.close()
    maintain(store._shard(0))
    assert len(list((folder / "journal").iterdir())) < 40
    assert stored(opened(place, tmp_path, "other")) == b"59"


def test_a_long_journal_is_read_whole(place: str, tmp_path: Path) -> None:
    store = opened(place, tmp_path)
    for batch in range(50):
        put(store, batch, b"%d" % batch)
    assert stored(opened(place, tmp_path, "other")) == b"49"


def test_files_of_other_names_beside_manifests_and_journal_are_left_out(
    place: str, folder: Path, tmp_path: Path
) -> None:
    """Some storages list what they are still writing, under a name of their own."""
    store = opened(place, tmp_path, flush_bytes=1)
    for batch in range(8):
        put(store, batch, b"%d" % batch)
    assert maintain(store._shard(0))
    for kind in ("manifest", "journal"):
        newest = max((folder / kind).iterdir())
        (folder / kind / f"{newest.name}-0a4e6996-8919").write_bytes(newest.read_bytes()[:20])
        (folder / kind / "~index").write_bytes(b"")
    other = opened(place, tmp_path, "other")
    assert stored(other) == b"7"
    put(other, 8, b"8")
    assert maintain(other._shard(0))
    assert stored(opened(place, tmp_path, "third")) == b"8"
    found = inspect(other._shard(0).files, deep=True)
    assert (found.damaged, found.journal) == ([], "")


def test_runs_that_no_manifest_names_stay_for_a_while(
    place: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(place, tmp_path, flush_bytes=1)
    for batch in range(8):
        put(store, batch, b"%d" % batch)
    store.close()
    about_to_be_named = folder / "runs" / "aaaa.run"
    about_to_be_named.write_bytes(b"being published by another machine")
    maintain(store._shard(0))
    assert about_to_be_named.exists()
    monkeypatch.setattr(object_files.ObjectFiles, "grace", -60.0)
    assert not maintain(store._shard(0)) or not about_to_be_named.exists()
    named = {
        part.name for runs in store._shard(0).refresh().manifest.runs.values() for run in runs for part in run.parts
    }
    assert named <= {path.name for path in (folder / "runs").iterdir()}


def test_a_clock_that_is_ahead_of_the_storages_deletes_nothing(place: str, folder: Path, tmp_path: Path) -> None:
    store = opened(place, tmp_path, flush_bytes=1)
    put(store, 0, b"0")
    maintain(store._shard(0))
    files = store._shard(0).files
    for name in ("runs/aaaa.run", "pins/of-a-backup"):
        files.put_uncached(name, b"just put")
    by_the_storage = time.time() - 7200
    for path in folder.rglob("*"):
        os.utime(path, (by_the_storage, by_the_storage))
    assert not files.deletable("runs")
    assert files.is_pinned()
    files.put_uncached("runs/bbbb.run", b"put two hours later")
    assert "aaaa.run" in files.deletable("runs")
    assert not files.is_pinned()


def test_maintenance_that_takes_too_long_publishes_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(place, tmp_path)
    put(store, 0, b"0")
    put(store, 1, b"1")
    monkeypatch.setattr(object_files.ObjectFiles, "grace", 0.0)
    assert not maintain(store._shard(0), flush_bytes=1)
    assert not store._shard(0).refresh().manifest.runs
    assert stored(opened(place, tmp_path, "other")) == b"1"


def test_the_cache_has_a_limit_and_can_be_lost(place: str, tmp_path: Path) -> None:
    store = opened(place, tmp_path, flush_bytes=1, cache_bytes=3000)
    for batch in range(12):
        put(store, batch, b"%d" % batch * 300)
    store.close()
    cached = list((tmp_path / "cache").iterdir())
    assert 0 < sum(path.stat().st_size for path in cached) <= 6000
    for path in cached:
        path.unlink()
    assert stored(store) == stored(opened(place, tmp_path, cache_bytes=1)) == b"11" * 300


def test_a_bucket_that_is_not_there_or_denied_is_reported(
    place: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Transient, match="no such bucket"):
        open_store(f"s3://nowhere/x?cache={tmp_path}", 1)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-wrong-secret")
    with pytest.raises(Transient, match="access is denied") as denied:
        opened(place, tmp_path)
    assert "planted" not in str(denied.value)


def test_a_server_that_does_not_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    begun = time.monotonic()
    with pytest.raises(Transient, match="state"):
        open_store(f"s3://state/x?cache={tmp_path}", 1)
    assert time.monotonic() - begun < 40


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "needs the name of a bucket"),
        ("s3://key:planted-word@state/x", "needs the name of a bucket"),
        ("s3://state/x?flush=1", "unknown setting 'flush'"),
        ("s3://state/x?cache_bytes=-1", "cache_bytes must be a number"),
        ("s3://state/a//b", "a part of the path is empty"),
        ("s3://state/a/../b", "a part of the path is empty"),
    ],
)
def test_a_url_that_does_not_fit(url: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as refused:
        open_store(url, 1)
    assert "planted" not in str(refused.value)


def test_a_fork_is_refused_instead_of_waiting_for_ever(place: str, tmp_path: Path) -> None:
    store = opened(place, tmp_path)
    child = os.fork()
    if not child:
        try:
            put(store, 0, b"of the child")
        except Terminal as error:
            os._exit(0 if "is a fork" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_its_transactions_pass_the_failpoints(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = list[str]()
    monkeypatch.setattr(object_files, "reach", passed.append)
    put(opened(place, tmp_path), 0, b"0")
    assert set(passed) <= set(failpoints.POINTS)
    assert "before a name" in passed


@pytest.mark.parametrize("cut", [lambda size: size // 2, lambda size: 0])
def test_a_cut_copy_of_a_run_is_read_anew(place: str, tmp_path: Path, cut: Callable[[int], int]) -> None:
    fill(opened(place, tmp_path, flush_bytes=1))
    assert stored(opened(place, tmp_path, "copies")) == b"v7"
    for each in copies(tmp_path):
        os.truncate(each, cut(each.stat().st_size))
    assert stored(opened(place, tmp_path, "copies")) == b"v7"


def test_a_changed_copy_of_a_run_is_read_once(place: str, tmp_path: Path) -> None:
    fill(opened(place, tmp_path, flush_bytes=1))
    reader = opened(place, tmp_path, "copies")
    stored(reader)
    for each in copies(tmp_path):
        data = bytearray(each.read_bytes())
        data[200] ^= 1
        each.write_bytes(data)
    reader = opened(place, tmp_path, "copies")
    for _ in copies(tmp_path):
        with suppress(Damaged):
            stored(reader)
    assert stored(reader) == b"v7"


def test_a_copy_of_another_account_is_not_needed(place: str, tmp_path: Path) -> None:
    fill(opened(place, tmp_path, flush_bytes=1))
    stored(opened(place, tmp_path, "copies"))
    for each in copies(tmp_path):
        each.unlink()
        each.mkdir()  # neither readable nor to be replaced, also for root
    assert stored(opened(place, tmp_path, "copies")) == b"v7"


def fill(store: BucketStore) -> None:
    """Write some runs."""
    for batch in range(8):
        put(store, batch, b"v%d" % batch)
    store.close()


def copies(tmp_path: Path) -> list[Path]:
    """Return the copies of runs on this machine, at least one."""
    found = list((tmp_path / "copies").glob("*.run"))
    assert found
    return found
