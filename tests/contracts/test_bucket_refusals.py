"""What a store in a bucket does while the storage refuses some requests."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contracts.refusing_storage import DELETE, LIST, Refusals, refusing
from tests.contracts.store_entries import Entries
from tests.deployed import wait_until
from tests.s3server import S3Server
from umbel.errors import Transient
from umbel.state.port import Stamp
from umbel.state.runs import shard
from umbel.state.runs.object_files import ObjectFiles
from umbel.state.s3 import BucketStore
from umbel.state.urls import open_store


@pytest.fixture
def refusals(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusals]:
    """Yield what the storage refuses."""
    (s3.folder / "state").mkdir(exist_ok=True)
    with refusing(s3) as (url, found):
        for name, value in {**s3.environment, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def url(refusals: Refusals, tmp_path: Path) -> str:
    """Return the URL of a store that flushes and merges after each transaction."""
    return f"s3://state/{uuid4().hex}?cache={tmp_path / 'cache'}&flush_bytes=1"


def opened(url: str) -> BucketStore:
    store = open_store(url, 1)
    assert isinstance(store, BucketStore)
    return store


def put(store: BucketStore, batch: int) -> None:
    with store.transaction(0, ["a"], Stamp(1, batch), undo=False) as tx:
        Entries(tx, "a").put([b"k"], [b"%d" % batch])


def stored(store: BucketStore) -> bytes | None:
    with store.snapshot(0) as reader:
        return Entries(reader, "a").get([b"k"])[0]


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "AccessDenied", "access is denied"),
        (403, "InvalidAccessKeyId", "access is denied"),
        (400, "ExpiredToken", "the credentials have expired"),
        (403, "RequestTimeTooSkewed", "the clock of this machine is wrong"),
        (404, "NoSuchBucket", "there is no such bucket"),
        (400, "InvalidRequest", "the storage refuses"),
    ],
)
@pytest.mark.parametrize("kind", ["PUT", LIST])
def test_a_refusal_says_what_to_do(url: str, refusals: Refusals, kind: str, status: int, code: str, says: str) -> None:
    put(opened(url), 0)
    refusals.kinds, refusals.status, refusals.code = {kind}, status, code
    with pytest.raises(Transient, match=says) as refused:
        put(opened(url), 1)
    assert refused.value.status == 503  # the fault is not that of a request
    assert refused.value.hint
    for foreign in ("Generic", "Error performing", "reachable", "planted", "xml"):
        assert foreign not in f"{refused.value} {refused.value.__cause__}"


def test_refused_deletes_fail_no_transaction(url: str, refusals: Refusals, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(url)
    put(store, 0)
    refusals.kinds = {DELETE}
    with caplog.at_level(logging.WARNING, "umbel.state"):
        for batch in range(1, 12):
            put(store, batch)
        store.close()
    assert stored(opened(url)) == b"11"
    assert "maintenance of state failed" not in caplog.text
    assert "cannot be deleted" in caplog.text
    assert store.sizes()[0].files.written.merges


def test_refused_deletes_fail_no_drop(url: str, refusals: Refusals, s3: S3Server) -> None:
    store = opened(url)
    for batch in range(4):
        put(store, batch)
    store.close()
    refusals.kinds = {DELETE}
    store.drop("a")
    assert opened(url).state_ids(0) == []
    refusals.kinds = set()
    put(opened(url), 9)
    manifests = s3.folder / "state" / url.split("/")[3].partition("?")[0] / "shard-000" / "manifest"
    assert len(list(manifests.glob("*.json"))) <= 3


def test_refused_deletes_fail_no_claim(url: str, refusals: Refusals) -> None:
    store = opened(url)
    put(store, 0)
    refusals.kinds = {DELETE}
    for epoch in range(1, 5):
        store.check_claim([f"claim {epoch - 1}"])
        store.claim(epoch, f"claim {epoch}")


def followed(url: str, tmp_path: Path) -> BucketStore:
    """Return a store on another machine that follows the state, and has seen it."""
    store = opened(url.replace(str(tmp_path / "cache"), str(tmp_path / "copies")))
    store.follow(0.05)
    assert stored(store) == b"0"
    return store


def test_a_damaged_copy_while_the_storage_is_away_hides_no_rows(url: str, refusals: Refusals, tmp_path: Path) -> None:
    store = opened(url)
    put(store, 0)
    store.close()
    follower = followed(url, tmp_path)
    part = follower._shard(0)
    refusals.kinds, refusals.status = {"GET", "HEAD", LIST}, 400
    for name in part.snapshot()._view.files:
        part._damaged.error(name, "as if a query had found it")
    with pytest.raises(Transient):
        part.refresh()
    assert stored(follower) == b"0"
    refusals.kinds = set()
    part.refresh()
    assert (stored(follower), part._damaged.names) == (b"0", set())
    follower.close()


def test_a_thread_that_follows_outlives_any_error(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(url)
    put(store, 0)
    follower = followed(url, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(ObjectFiles, "size", lambda *_: 1 // 0)
        wait_until(lambda: "cannot be followed" in caplog.text, lambda: caplog.text, within=20)
    put(store, 1)
    wait_until(lambda: stored(follower) == b"1", lambda: caplog.text, within=20)
    store.close()
    follower.close()


CUT = """
import os, sys, time
from pathlib import Path
from umbel.state.urls import open_store
store = open_store(sys.argv[1], 1)
store.follow(0.05)
with store.snapshot(0) as reader:
    before = Entries(reader, "a").get([b"k"])
for path in Path(sys.argv[2]).glob("*.run"):
    os.truncate(path, 0)
time.sleep(1)
with store.snapshot(0) as reader:
    print(before == Entries(reader, "a").get([b"k"]) == [b"0"])
"""


def test_a_mapped_copy_that_is_cut_ends_no_process(url: str, tmp_path: Path) -> None:
    store = opened(url)
    put(store, 0)
    store.close()
    script = f"from tests.contracts.store_entries import Entries\n{CUT}"
    place = url.replace(str(tmp_path / "cache"), str(tmp_path / "copies"))
    done = subprocess.run(
        [sys.executable, "-c", script, place, str(tmp_path / "copies")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr[-2000:]


def test_a_storage_that_hangs_is_no_wait_for_readers(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(url)
    put(store, 0)
    follower, answering = followed(url, tmp_path), threading.Event()
    original = ObjectFiles.size

    def hang(files: ObjectFiles, name: str) -> int | None:
        answering.wait(30)
        return original(files, name)

    monkeypatch.setattr(shard, "STALE", 1.0)
    monkeypatch.setattr(ObjectFiles, "size", hang)
    time.sleep(1.5)
    begun = time.monotonic()
    for _ in range(5):
        with pytest.raises(Transient, match="was not seen for 1 seconds"):
            stored(follower)
    assert time.monotonic() - begun < 15, "they wait for the answer, each again"
    answering.set()
    put(store, 1)

    def is_seen() -> bool:
        with suppress(Transient):
            return stored(follower) == b"1"
        return False

    wait_until(is_seen, lambda: "", within=20)
    store.close()
    follower.close()


def test_a_storage_that_is_away_is_said_after_a_while(
    url: str, refusals: Refusals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(opened(url), 0)
    follower = followed(url, tmp_path)
    monkeypatch.setattr(shard, "STALE", 1.0)
    refusals.kinds = {"GET", "HEAD", LIST}
    time.sleep(0.3)
    assert stored(follower) == b"0"
    time.sleep(1.5)
    with pytest.raises(Transient, match="access is denied"):
        stored(follower)
    follower.close()


def test_a_missing_bucket_is_no_missing_state(url: str, refusals: Refusals) -> None:
    store = opened(url)
    put(store, 0)
    identity = store.identity
    assert identity is not None
    refusals.kinds, refusals.status, refusals.code = {"GET", "HEAD", LIST, "PUT"}, 404, "NoSuchBucket"
    with pytest.raises(Transient, match="there is no such bucket"):
        opened(url).must_be(identity)
    refusals.kinds = set()
    again = opened(url)
    again.must_be(identity)
    assert stored(again) == b"0"
    store.close()
