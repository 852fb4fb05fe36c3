"""Isolated children: results, errors, and processes that are lost."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

import cloudpickle
import psutil
import pytest

from umbel.errors import InvalidValue, NotSupported, Transient, UnknownName
from umbel.isolation import child as child_side
from umbel.isolation import process
from umbel.isolation.memory import limited, resident
from umbel.isolation.process import CallFailed, ForkServer, IsolatedProcess
from umbel.isolation.wire import receive, send

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    found = ForkServer(())
    yield found
    found.close()


@pytest.fixture
def child(server: ForkServer) -> Iterator[IsolatedProcess]:
    found = IsolatedProcess(server)
    yield found
    found.close()


def called(child: IsolatedProcess, function: Callable[[Any], Any], argument: Any = None, **named: Any) -> Any:
    limits = {"seconds": 20.0, "memory": 256 * MEBIBYTE, **named}
    pickled = cloudpickle.dumps(function)
    return child.call(sha256(pickled).hexdigest(), lambda: pickled, argument, **limits)


def _data() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * mmap.PAGESIZE


def process_of(child: IsolatedProcess) -> int:
    return int(called(child, lambda _: os.getpid()))


def test_the_first_use_of_arrow_takes_no_more_memory_than_its_data(child: IsolatedProcess) -> None:
    def grown(size: int) -> tuple[int, int]:
        import pyarrow as pa

        before = _data()
        pa.array(["a"])
        return _data() - before, len(bytes(size))

    for memory in (1 << 30, (1 << 30) + (64 << 10), 2 << 30):  # a reserve of 1 GiB would fit, but nothing beside it
        growth, size = called(child, grown, 1 << 20, memory=memory)
        assert (growth < 64 * MEBIBYTE, size) == (True, 1 << 20), growth
        child.close()


def test_a_child_remembers_functions_and_keeps_its_process(child: IsolatedProcess) -> None:
    first = process_of(child)
    assert called(child, lambda x: x + 1, 41) == 42
    assert called(child, lambda _: bytes(3 * MEBIBYTE)) == bytes(3 * MEBIBYTE)
    assert process_of(child) == first != os.getpid()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda _: sys.exit("enough"), "SystemExit: enough"),
        (lambda _: InvalidValue("wrong").args[5], "IndexError"),
        (lambda _: lambda: None, "local object|pickle|lambda"),
    ],
)
def test_what_a_function_raises_is_reported_and_loses_no_process(
    child: IsolatedProcess, function: Callable[[Any], Any], reason: str
) -> None:
    before = process_of(child)
    with pytest.raises(CallFailed, match=reason) as caught:
        called(child, function)
    assert caught.value.error is not None
    assert process_of(child) == before


def _spin(_: Any) -> None:
    while True:
        pass


def _share(size: int) -> None:
    shared = mmap.mmap(-1, size)
    for start in range(0, size, mmap.PAGESIZE):
        shared[start] = 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda _: os._exit(3), "its process ended: exit code 3"),
        (lambda _: os.abort(), "its process ended: killed by SIGABRT"),
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), "its process ended: killed by SIGKILL"),
        (lambda _: time.sleep(100), "it took longer than 0.3 s"),
        (_spin, "it took longer than 0.3 s"),
        (lambda _: os.closerange(3, 100), "its process ended"),
        (lambda _: len(bytearray(8 << 30)), "it took more than 256 MiB of memory"),
    ],
)
def test_a_process_that_is_lost_is_replaced(
    child: IsolatedProcess, function: Callable[[Any], Any], reason: str
) -> None:
    before = process_of(child)
    with pytest.raises(CallFailed, match=reason) as caught:
        called(child, function, seconds=0.3)
    assert caught.value.error is None
    assert not psutil.pid_exists(before), "and nothing is left of it"
    assert process_of(child) != before


def test_memory_that_no_limit_of_the_system_counts_is_seen_from_outside(child: IsolatedProcess) -> None:
    with pytest.raises(CallFailed, match="more than 64 MiB"):
        called(child, _share, 2 << 30, memory=64 * MEBIBYTE, seconds=60.0)


def test_what_a_function_has_started_goes_with_it(child: IsolatedProcess) -> None:
    def start(_: Any) -> int:
        import subprocess

        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid

    started = called(child, start)
    assert psutil.pid_exists(started)
    child.close()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(started) and psutil.Process(started).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline


def test_a_function_asks_and_is_answered(child: IsolatedProcess) -> None:
    def answers(question: Any) -> Any:
        if question == "wrong":
            raise UnknownName("there is no 'wrong'")
        return question * 2

    assert called(child, lambda x: child_side.ask(x) + child_side.ask(1), 20, answers=answers) == 42
    with pytest.raises(CallFailed, match="there is no 'wrong'") as caught:
        called(child, lambda _: child_side.ask("wrong"), answers=answers)
    assert caught.value.error["is_own"]
    with pytest.raises(CallFailed, match="cannot be called"):
        called(child, lambda _: child_side.ask(1))


def slowly_tenfold(question: Any) -> Any:
    time.sleep(0.002)
    return question * 10


def test_threads_that_ask_at_once_get_their_own_answers(child: IsolatedProcess) -> None:
    def asks(_: Any) -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(child_side.ask, range(40)))

    assert called(child, asks, answers=slowly_tenfold) == [number * 10 for number in range(40)]


def test_a_fork_cannot_ask_and_its_parent_can(child: IsolatedProcess) -> None:
    """Both would read the answers from one connection."""

    def forks(_: Any) -> tuple[str, list[int]]:
        here, there = os.pipe()
        if os.fork() == 0:
            try:
                child_side.ask(1)
            except NotSupported as error:
                os.write(there, error.message.encode())
            os._exit(0)
        os.close(there)
        found = [child_side.ask(number) for number in range(20)]
        return os.read(here, 1000).decode(), found

    said, found = called(child, forks, answers=slowly_tenfold)
    assert "forked cannot ask" in said
    assert found == [number * 10 for number in range(20)]


def test_a_thread_that_outlives_its_call_takes_nothing_from_the_next(child: IsolatedProcess) -> None:
    def leaves(_: Any) -> None:
        def later() -> None:
            while True:
                with suppress(NotSupported):
                    child_side.ask(1)
                time.sleep(0.001)

        threading.Thread(target=later, daemon=True).start()

    called(child, leaves, answers=slowly_tenfold)
    before = process_of(child)
    for number in range(100):
        assert called(child, lambda x: child_side.ask(x), number, answers=slowly_tenfold) == number * 10
    assert process_of(child) == before


def test_an_interrupted_question_leaves_no_answer_to_the_next(child: IsolatedProcess) -> None:
    """A function that limits its own time by an alarm got the answers of earlier questions from then on."""

    def gives_up(_: Any) -> list[Any]:
        signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with suppress(ZeroDivisionError):
            child_side.ask("slow")
        return [child_side.ask(number) for number in range(3)]

    def answers(question: Any) -> Any:
        time.sleep(0.5 if question == "slow" else 0)
        return question

    def gives_up_last(_: Any) -> None:
        with suppress(ZeroDivisionError):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            child_side.ask("slow")

    before = process_of(child)
    assert called(child, gives_up, answers=answers) == [0, 1, 2]
    called(child, gives_up_last, answers=answers)
    assert called(child, lambda x: child_side.ask(x), 4, answers=answers) == 4
    assert process_of(child) == before


def test_an_answer_without_room_leaves_nothing_to_the_next(child: IsolatedProcess) -> None:
    def catches(_: Any) -> Any:
        with suppress(MemoryError):
            return len(child_side.ask(256 * MEBIBYTE))
        return child_side.ask(3)

    made = called(child, catches, answers=bytes, memory=64 * MEBIBYTE)
    assert (made, called(child, len, "ab")) == (bytes(3), 2)


def test_a_function_that_asks_without_a_pause_is_limited(
    child: IsolatedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(_: Any) -> None:
        begun = time.monotonic()
        while time.monotonic() - begun < 3:
            child_side.ask(1)

    monkeypatch.setattr(process, "EVERY", 10.0)  # no pause is as long, on a busy machine either
    with pytest.raises(CallFailed, match=r"it took longer than 0\.3 s"):
        called(child, asks, seconds=0.3, answers=str)


def test_an_alarm_that_a_function_left_rings_in_no_other(child: IsolatedProcess) -> None:
    def leaves(_: Any) -> None:
        signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    called(child, leaves)
    called(child, lambda _: time.sleep(0.4))


def test_a_process_that_ends_between_two_calls_costs_none(child: IsolatedProcess) -> None:
    def ends_later(_: Any) -> int:
        return threading.Timer(0.01, os._exit, (1,)).start() or os.getpid()

    ending = psutil.Process(called(child, ends_later))
    deadline = time.monotonic() + 20
    while ending.is_running() and ending.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
    assert process_of(child) != ending.pid


def test_a_file_that_a_function_maps_is_no_memory_of_its_own(child: IsolatedProcess, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(256 * MEBIBYTE)

    def reads(path: str) -> int:
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            found = sum(mapped[start] for start in range(0, len(mapped), mmap.PAGESIZE))
            time.sleep(0.2)
            return found

    assert called(child, reads, str(tmp_path / "large"), memory=64 * MEBIBYTE) == 0


def test_what_native_code_ends_for_want_of_memory_is_reported_as_that(server: ForkServer) -> None:
    def allocates(_: Any) -> int:
        import polars as pl

        return pl.arange(0, 1 << 28, eager=True).len()

    with pytest.raises(CallFailed, match=r"killed by SIGABRT, as native code .* refused more than 256 MiB of memory"):
        called(IsolatedProcess(server), allocates)


def test_children_end_with_the_process_that_started_them(tmp_path: Any) -> None:
    script = """
import sys, os, time, cloudpickle
from umbel.isolation.wire import receive, send
from umbel.isolation.process import IsolatedProcess, ForkServer
child = IsolatedProcess(ForkServer(()))
call = lambda f, **named: child.call(f.__qualname__ + str(named), lambda: cloudpickle.dumps(f), None, memory=1 << 30, **named)
print(call(lambda _: os.getpid(), seconds=20), flush=True)
print(call(lambda _: os.getppid(), seconds=21), flush=True)
call(lambda _: time.sleep(1000), seconds=1000)
"""
    import subprocess

    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        family = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(psutil.pid_exists, family))
        parent.kill()
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(each) and psutil.Process(each).status() != psutil.STATUS_ZOMBIE for each in family):
        assert time.monotonic() < deadline, "a hung child goes, too"


def test_a_fork_server_that_died_is_replaced(server: ForkServer, child: IsolatedProcess) -> None:
    process_of(child)
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    child.close()
    assert process_of(child)


def test_a_fork_server_that_ends_each_time_is_an_error_with_a_remedy() -> None:
    child = IsolatedProcess(ForkServer(("no_such_module",)))
    with pytest.raises(Transient, match="ended 3 times in a row"):
        called(child, len, [1])


def test_signals_for_its_starter_end_no_fork_server(server: ForkServer, child: IsolatedProcess) -> None:
    before = process_of(child)
    assert server._process is not None
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        server._process.send_signal(number)
    assert process_of(IsolatedProcess(server)) != before
    assert process_of(child) == before
    with pytest.raises(CallFailed, match="killed by SIGTERM"):
        called(child, lambda _: os.kill(os.getpid(), signal.SIGTERM))


def test_a_child_of_a_fork_server_that_died_ends_no_other(
    server: ForkServer, child: IsolatedProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    other = IsolatedProcess(server)
    process_of(child)
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    with suppress(CallFailed):
        process_of(other)
    found = process_of(other)
    child.close()  # the new one does not know it
    assert process_of(other) == found
    other.close()
    assert capfd.readouterr().err == ""


def test_the_limit_of_memory_holds_only_within() -> None:
    with limited(64 * MEBIBYTE), pytest.raises(MemoryError):
        bytearray(512 * MEBIBYTE)
    assert len(bytearray(512 * MEBIBYTE)) == 512 * MEBIBYTE
    assert resident(os.getpid()) > 0
    assert resident(1 << 22) == 0


def test_bytes_travel_beside_the_pickle() -> None:
    import numpy as np

    ours, theirs = socket.socketpair()
    fixed = np.frombuffer(b"x" * 100, np.uint8)
    message = [PickleBuffer(b"a" * 300_000), PickleBuffer(b""), b"in it", np.arange(5), fixed, bytearray(b"own")]
    with ours, theirs:
        sender = threading.Thread(target=send, args=(ours, message))
        sender.start()
        large, empty, plain, array, other, own = receive(theirs)
        sender.join()
        send(ours, {"after": 1})
        assert receive(theirs) == {"after": 1}
    assert (bytes(large), bytes(empty), plain, own) == (b"a" * 300_000, b"", b"in it", bytearray(b"own"))
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert (array.flags.writeable, other.flags.writeable) == (True, False)
