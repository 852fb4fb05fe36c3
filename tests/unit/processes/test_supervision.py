"""The real supervisor over fake children: whatever happens to it or to them, nobody is left behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from umbel.processes import supervision
from umbel.processes.supervision import SupervisedProcess, cause

PROGRAM = Path(__file__).with_name("stubborn.py")
PATIENCE = 240.0


class Running:
    """A supervisor in a process of its own."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        self.folder, self._out = folder, folder / "out"
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *kinds], stdout=self._out.open("wb")
        )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def pids(self, kind: str = "*", depth: str = "*") -> list[int]:
        return [int(path.name.rpartition("-")[2]) for path in self.folder.glob(f"{kind}-{depth}-*")]

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def all_gone(self) -> bool:
        return not any(_lives(pid) for pid in self.pids())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Return what starts a supervisor; all of its processes are ended after the test."""
    started: list[Running] = []

    def begin(*kinds: str) -> Running:
        started.append(Running(tmp_path, *kinds))
        return started[-1]

    yield begin
    for each in started:
        for pid in [each.process.pid, *each.pids()]:
            if _lives(pid):
                psutil.Process(pid).kill()
        each.process.wait()


@pytest.fixture
def ignored_hangup() -> Iterator[None]:
    """Ignore SIGHUP, as `nohup` does, in the processes that are started meanwhile."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_closed_terminal_does_not_stop_what_runs_under_nohup(
    start: Callable[..., Running], ignored_hangup: None
) -> None:
    running = start("good")
    running.wait(lambda: len(running.pids()) == 2)
    running.process.send_signal(signal.SIGHUP)
    first = running.pids("good", "0")[0]
    psutil.Process(first).kill()
    running.wait(lambda: len(running.pids("good", "0")) == 2)  # it minds them
    running.process.terminate()
    assert running.process.wait(PATIENCE) == 0
    assert running.all_gone()


def test_a_signal_that_comes_twice_at_once_is_one(start: Callable[..., Running]) -> None:
    """A terminal that is closed sends SIGHUP, and so does its shell."""
    running = start("tidy")
    running.wait(lambda: len(running.pids()) == 2)
    running.process.send_signal(signal.SIGHUP)
    assert running.process.wait(PATIENCE) == 0
    assert (running.folder / "tidied").exists()
    assert running.said == "ended\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything(start: Callable[..., Running], number: signal.Signals) -> None:
    running = start("good", "deaf")
    running.wait(lambda: len(running.pids()) == 4)
    running.process.send_signal(number)
    assert running.process.wait(PATIENCE) == 0
    assert running.all_gone()
    assert running.said.splitlines()[-1] == "ended"
    assert "deaf (process" in running.said
    assert "good (process" not in running.said


@pytest.mark.parametrize("delay", [0.0, 0.4, 0.5, 0.6])
def test_a_signal_at_any_moment_of_the_start_stops_everything(start: Callable[..., Running], delay: float) -> None:
    running = start("good", "deaf")
    if delay:
        running.wait(lambda: (running.folder / "good.log").exists())
        time.sleep(delay - 0.4)
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(PATIENCE)
    assert running.all_gone()


def test_when_the_supervisor_is_killed_its_children_stop(start: Callable[..., Running]) -> None:
    running = start("good")
    running.wait(lambda: len(running.pids()) == 2)
    running.process.kill()
    (pid,) = running.pids("good", "0")
    running.wait(lambda: not _lives(pid))


def test_what_dies_is_started_again_and_that_is_said(start: Callable[..., Running]) -> None:
    running = start("good", "dying")
    running.wait(lambda: len(running.pids("dying", "0")) >= 3)
    assert "dying ended (exit code 3); starting it again in 0." in running.said
    assert "the last words of the dying" in running.said
    assert f"its log: {running.folder / 'dying.log'}" in running.said
    # what the dead ones left behind goes, too
    running.wait(lambda: sum(map(_lives, running.pids("dying", "1"))) <= 1)
    assert all(map(_lives, running.pids("good")))
    (good,) = running.pids("good", "0")
    psutil.Process(good).kill()
    running.wait(lambda: len(running.pids("good", "0")) == 2)
    assert "good ended (killed by SIGKILL)" in running.said
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(PATIENCE)
    assert running.all_gone()


def test_waits_grow_and_steady_children_are_forgiven() -> None:
    child = SupervisedProcess("child", ["false"], first_wait=0.25)
    waits = []
    for ran_for in (0.0, 0.0, 0.0, 100.0, 0.0):
        child.process = subprocess.Popen(["false"])
        child.process.wait()
        child.begun_at = time.monotonic() - ran_for
        assert child.died() == 1
        waits.append(round(child.start_at - time.monotonic(), 1))
    assert waits == [0.2, 0.5, 1.0, 0.2, 0.5]
    assert child.died() is None


def test_causes_are_described_in_words() -> None:
    assert [cause(code) for code in (0, 3, -9, -15, -99)] == [
        "exit code 0",
        "exit code 3",
        "killed by SIGKILL",
        "killed by SIGTERM",
        "killed by signal 99",
    ]


def test_a_process_that_finds_damage_is_not_started_again(start: Callable[..., Running]) -> None:
    running = start("damaged", "dying")
    running.wait(lambda: running.said.count("dying ended") >= 3)  # those that may come back have, meanwhile
    assert running.said.count("damaged") == 1
    assert "damaged has stopped, and is not started again:\nplan 7 is missing" in running.said
    assert len(running.pids("damaged", "0")) == 1


def test_the_last_words_of_a_process_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not write why it ended, and its supervisor gave the exit code alone."""
    child = SupervisedProcess("worker", [], tmp_path / "worker.log")
    (tmp_path / "worker.log").touch()
    assert child.last_words() == ""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    assert child.last_words() == f"the disk of {tmp_path} is full: free some space"
    (tmp_path / "worker.log").write_text("one\ntwo\n")
    assert child.last_words(1) == f"two\nthe disk of {tmp_path} is full: free some space"


def test_the_log_of_a_process_that_runs_on_does_not_grow_without_limit(start: Callable[..., Running]) -> None:
    """It was moved away when the process was started, and never while it ran."""
    running = start("wordy")
    log, old = running.folder / "wordy.log", running.folder / "wordy.old.log"
    running.wait(lambda: old.exists() and log.stat().st_size > 1000)
    first = old.stat().st_mtime_ns  # not its inode: that of a deleted file may be used again
    running.wait(lambda: old.exists() and old.stat().st_mtime_ns != first and log.stat().st_size > 100)
    assert b"\0" not in log.read_bytes()[:1]  # no hole: the process goes on at the new end, if within a line
    running.process.terminate()
    running.process.wait(PATIENCE)


def test_a_log_is_moved_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "LARGEST_LOG", 10)
    child = SupervisedProcess("worker", [], tmp_path / "worker.log")
    child.limit_log()  # there is none yet
    with (tmp_path / "worker.log").open("ab", buffering=0) as file:
        file.write(b"short\n")
        child.limit_log()
        assert not (tmp_path / "worker.old.log").exists()
        file.write(b"it grows\n")
        child.limit_log()
        assert child.last_words() == "short\nit grows"
        file.write(b"and goes on\n")
    assert (tmp_path / "worker.old.log").read_text() == "short\nit grows\n"
    assert (tmp_path / "worker.log").read_text() == "and goes on\n"
    assert child.last_words(2) == "it grows\nand goes on"


def test_a_log_that_cannot_be_moved_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "LARGEST_LOG", 10)
    child = SupervisedProcess("worker", [], tmp_path / "worker.log")
    (tmp_path / "worker.log").write_text("the disk is full\n")
    (tmp_path / "worker.old.log").symlink_to("/dev/full")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        child.limit_log()
    assert (tmp_path / "worker.log").read_text() == "the disk is full\n"


def test_the_last_words_of_a_process_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was killed without a word was reported with an error of the one before as the reason."""
    monkeypatch.setattr(supervision, "LARGEST_LOG", 10)
    log = tmp_path / "worker.log"
    log.write_text("an error of the one before\n")
    child = SupervisedProcess("worker", ["true"], log)
    child.start()
    assert child.process is not None
    child.process.wait(PATIENCE)
    assert child.last_words() == ""
    with log.open("a") as file:
        file.write("its own words\n")
    assert child.last_words() == "its own words"
    child.limit_log()
    assert child.last_words() == "its own words"
    log.write_text("behind a cut\n")
    assert child.last_words() == "its own words\nbehind a cut"
    monkeypatch.setattr(supervision, "LARGEST_LOG", 1000)
    child.start()
    child.process.wait(PATIENCE)
    log.write_text("cut\n")  # by another program
    assert child.last_words() == "cut"
