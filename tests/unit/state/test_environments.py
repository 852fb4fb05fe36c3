"""One opening of a file per process, whatever forks, spawns, closes or writes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from umbel.errors import Damaged, Terminal, Transient
from umbel.state import environments
from umbel.state.environments import Environment, Options, acquire, release
from umbel.state.lmdb import LmdbStore
from umbel.state.port import Stamp

FAST = Options(map_size=1 << 24, sync=False)
SOURCE = Path(environments.__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shard"


def put(environment: Environment, key: bytes, value: bytes) -> None:
    with environment.writing() as tx:
        tx.put(key, value)


def held(environment: Environment, key: bytes) -> bytes | None:
    with environment.reading() as tx:
        return None if tx is None else tx.get(key)


def in_a_fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # the test fails by the status
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_all_who_ask_share_one_and_the_last_closes_it(place: Path) -> None:
    one, other = acquire(place, FAST), acquire(place.parent / "." / "shard", FAST)
    assert one is other
    put(one, b"a", b"1")
    release(one)
    assert held(other, b"a") == b"1"
    with pytest.raises(lmdb.Error, match="already open"):
        lmdb.open(str(place), readonly=True)
    release(other)
    lmdb.open(str(place), readonly=True).close()
    assert acquire(place, FAST) is not one


def test_reading_is_read_only_until_somebody_writes(place: Path) -> None:
    environment = Environment(place, FAST)
    assert held(environment, b"a") is None
    assert not place.exists()
    put(environment, b"a", b"1")
    environment.close()
    assert held(environment, b"a") == b"1"
    with pytest.raises(Transient, match="Permission denied"), environment.reading() as tx:  # noqa: PT012
        assert tx is not None
        tx.put(b"a", b"2")
    put(environment, b"a", b"2")
    assert held(environment, b"a") == b"2"
    environment.close()


def test_a_writer_waits_for_readers_when_it_has_to_open_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(place, FAST)
    put(environment, b"a", b"1")
    environment.close()
    with environment.reading() as tx:
        writer = threading.Thread(target=lambda: put(environment, b"a", b"2"))
        writer.start()
        assert tx is not None
        assert tx.get(b"a") == b"1"
    writer.join(30)
    assert held(environment, b"a") == b"2"
    environment.close()
    monkeypatch.setattr(environments, "_PATIENCE", 0.01)
    with environment.reading(), pytest.raises(Transient, match="being read"):
        put(environment, b"a", b"3")
    environment.close()


def test_a_child_opens_its_own(place: Path) -> None:
    environment = acquire(place, FAST)
    put(environment, b"a", b"1")

    def child() -> None:
        assert held(environment, b"a") == b"1"
        put(environment, b"a", b"2")
        other = acquire(place, FAST)
        assert other is environment
        put(other, b"b", b"3")

    assert in_a_fork(child) == 0
    assert held(environment, b"a") == b"2"
    put(environment, b"b", b"4")
    assert held(environment, b"b") == b"4"
    release(environment)


def test_a_child_of_a_reading_process_lets_it_read(place: Path) -> None:
    environment = acquire(place, FAST)
    put(environment, b"a", b"1")
    with environment.reading() as tx:
        assert in_a_fork(lambda: refused(environment)) == 0
        for turn in range(5):
            put(environment, b"a", b"2")
            put(environment, b"%d" % turn, b"x" * 5000)
        assert tx is not None
        assert tx.get(b"a") == b"1"
    assert held(environment, b"a") == b"2"
    release(environment)


def test_a_child_of_a_writing_process_lets_it_write(place: Path) -> None:
    environment = acquire(place, FAST)
    with environment.writing() as tx:
        tx.put(b"a", b"1")
        assert in_a_fork(lambda: refused(environment)) == 0
        tx.put(b"b", b"2")
    assert [held(environment, key) for key in (b"a", b"b")] == [b"1", b"2"]
    assert in_a_fork(lambda: put(environment, b"c", b"3")) == 0
    assert held(environment, b"c") == b"3"
    release(environment)


def refused(environment: Environment) -> None:
    with pytest.raises(Terminal, match="forked while"):
        held(environment, b"a")
    with pytest.raises(Terminal, match="forked while"):
        put(environment, b"a", b"9")


def _spawned(directory: str) -> None:
    store = LmdbStore(directory, 1, FAST)
    with store.transaction(0, ["o"], Stamp(1, 1)) as tx:
        assert tx.get("o", "t", [b"a"]) == [b"1"]
        tx.put("o", "t", [b"a"], [b"2"])
    store.close()


def test_a_spawned_worker_opens_its_own(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, 1, FAST)
    with store.transaction(0, ["o"], Stamp(1, 0)) as tx:
        tx.put("o", "t", [b"a"], [b"1"])
    program = "import sys; from tests.unit.state.test_environments import _spawned; _spawned(sys.argv[1])"
    root = SOURCE.parent
    paths = os.pathsep.join([str(SOURCE), str(root)])
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=True, cwd=root, env={**os.environ, "PYTHONPATH": paths}
    )
    with store.snapshot(0) as reader:
        assert reader.get("o", "t", [b"a"]) == [b"2"]
    store.close()


def test_threads_of_one_process_write_in_turn(place: Path) -> None:
    environment = Environment(place, FAST)

    def count() -> None:
        for _ in range(50):
            with environment.writing() as tx:
                tx.put(b"n", b"%d" % (int(tx.get(b"n") or 0) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert held(environment, b"n") == b"200"
    environment.close()


def test_the_slot_of_a_reader_that_died_is_freed(place: Path) -> None:
    environment = acquire(place, FAST)
    put(environment, b"a", b"1")

    def child() -> None:
        with environment.reading():
            os._exit(0)

    for _ in range(3):
        assert in_a_fork(child) == 0
    environment.close()
    put(environment, b"a", b"2")
    raw = environment._env
    assert raw is not None
    assert raw.reader_check() == 0
    release(environment)


def test_files_that_are_not_ours_are_told(place: Path) -> None:
    place.mkdir()
    (place / "data.mdb").write_bytes(b"not a database" * 1000)
    for use in (lambda: held(Environment(place, FAST), b"a"), lambda: put(Environment(place, FAST), b"a", b"1")):
        with pytest.raises((Terminal, Transient), match=str(place)):
            use()


def test_two_processes_may_make_the_same_shard(place: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(place,)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0] * 6
    environment = Environment(place, FAST)
    assert held(environment, b"n") == b"60"
    assert [file.name for file in place.parent.iterdir()] == ["shard"]
    environment.close()


def _add(place: Path) -> None:
    environment = acquire(place, FAST)
    for _ in range(10):
        with environment.writing() as tx:
            tx.put(b"n", b"%d" % (int(tx.get(b"n") or 0) + 1))


def test_removed_files_are_let_go(place: Path) -> None:
    environment = Environment(place, FAST)
    put(environment, b"a", b"1")
    shutil.rmtree(place)
    for use in (lambda: held(environment, b"a"), lambda: put(environment, b"a", b"2")):
        with pytest.raises(Damaged, match="is missing"):
            use()
    environment.create()
    put(environment, b"a", b"2")
    assert held(environment, b"a") == b"2"
    environment.close()


def test_removed_files_are_let_go_when_they_are_no_longer_trusted(place: Path) -> None:
    environment = Environment(place, Options(trust=0.05))
    put(environment, b"a", b"1")
    shutil.rmtree(place)
    deadline = time.monotonic() + 10

    def follow() -> None:
        while held(environment, b"a") is not None:
            assert time.monotonic() < deadline

    with pytest.raises(Damaged, match="is missing"):
        follow()
    environment.create()
    put(environment, b"a", b"2")
    assert held(environment, b"a") == b"2"
    environment.close()
