"""Calls in threads: their order, their context and their failures."""

from __future__ import annotations

import os
import threading
import time
from contextvars import ContextVar

import pytest

from umbel.graph import threads
from umbel.graph.threads import Calls, in_threads

WHO: ContextVar[str] = ContextVar("who")


@pytest.fixture(params=[1, 2, 4])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(threads._SETTINGS, "threads", request.param)
    return int(request.param)


def test_results_are_in_order_whatever_ends_first(cores: int) -> None:
    assert in_threads(lambda n: time.sleep((5 - n) / 100) or n, range(5)) == list(range(5))
    assert in_threads(str, []) == []


def test_several_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._SETTINGS, "threads", 2)
    both = threading.Barrier(2, timeout=120)
    assert sorted(in_threads(lambda _: both.wait(), range(2))) == [0, 1]


def test_each_has_the_context_of_the_caller_and_none_of_the_others(cores: int) -> None:
    WHO.set("caller")

    def seen(number: int) -> str:
        before = WHO.get()
        WHO.set(f"call {number}")
        return before

    assert in_threads(seen, range(8)) == ["caller"] * 8


def test_the_first_failure_in_order_is_raised_after_all_have_ended(cores: int) -> None:
    ended = []

    def call(number: int) -> None:
        time.sleep((4 - number) / 50)
        ended.append(number)
        if number in (1, 3):
            raise ValueError(number)

    with pytest.raises(ValueError, match=r"^1$"):
        in_threads(call, range(4))
    assert sorted(ended) == ([0, 1] if cores == 1 else [0, 1, 2, 3])


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._SETTINGS, "threads", 2)
    assert in_threads(abs, range(4)) == [0, 1, 2, 3]
    child = os.fork()
    if not child:
        os._exit(0 if in_threads(abs, range(4)) == [0, 1, 2, 3] else 1)
    deadline = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)
    assert ended[1] == 0


@pytest.mark.parametrize(("requested", "expected"), [(0, 1), (1, 1), (2, 2), (64, 3)])
def test_no_more_run_than_requested_or_than_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, requested: int, expected: int
) -> None:
    monkeypatch.setattr(threads, "AVAILABLE", 3)
    monkeypatch.setattr(threads._SETTINGS, "threads", 3)
    threads.use(requested)
    inside, most, lock = 0, 0, threading.Lock()

    def call(_: int) -> None:
        nonlocal inside, most
        with lock:
            inside, most = inside + 1, max(most, inside + 1)
        time.sleep(0.05)
        with lock:
            inside -= 1

    in_threads(call, range(8))
    assert most == expected


def test_calls_beside_a_body_are_in_order(cores: int) -> None:
    with Calls[int | None]() as calls:
        assert calls.results() == []
        calls.start(lambda n: time.sleep((3 - n) / 100) or n, range(3))
        assert in_threads(str, range(3)) == ["0", "1", "2"]
        calls.start(abs, [-3])
        assert calls.results() == [0, 1, 2, 3]


def test_a_body_runs_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._SETTINGS, "threads", 2)
    both = threading.Barrier(2, timeout=120)
    with Calls[int]() as calls:
        calls.start(lambda _: both.wait(), [0])
        both.wait()
        assert calls.results()[0] in (0, 1)


def test_where_only_one_runs_at_once_it_waits_for_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._SETTINGS, "threads", 1)
    ran = list[int]()
    with Calls[None]() as calls:
        calls.start(ran.append, [0, 1])
        assert ran == []
        calls.results()
        assert ran == [0, 1]


def test_all_have_ended_when_a_body_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._SETTINGS, "threads", 2)
    begun, ended = threading.Event(), list[int]()

    def call(number: int) -> None:
        begun.set()
        time.sleep(0.1)
        ended.append(number)

    def fail() -> None:
        with Calls[None]() as calls:
            calls.start(call, range(3))
            assert begun.wait(120)
            raise ValueError("body")

    with pytest.raises(ValueError, match="body"):
        fail()
    assert sorted(ended) == [0, 1, 2]


def test_the_failure_of_a_call_is_raised_with_its_result(cores: int) -> None:
    def call(number: int) -> None:
        raise ValueError(number)

    with Calls[None]() as calls:
        calls.start(call, [1])
        with pytest.raises(ValueError, match="1"):
            calls.results()
