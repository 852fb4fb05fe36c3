"""Requests to stop, made by signal handlers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from umbel.processes.stopping import StopRequest

EVERY = 0.0002
"""Seconds between two signals: they come at any instant of a wait."""


@pytest.fixture
def alarms() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Return what makes a handler the one of an alarm that comes again and again."""

    def begin(handler: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: handler())
        signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)

    before = signal.getsignal(signal.SIGALRM)
    yield begin
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_at_any_instant_of_a_wait_ends_it(alarms: Callable[[Callable[[], None]], None]) -> None:
    """With an Event some of the handlers would wait for the lock that the interrupted wait holds."""
    current = [StopRequest()]
    alarms(lambda: current[0].set())
    for _ in range(5_000):
        current[0] = StopRequest()
        while not current[0].wait(EVERY / 7):
            pass
    assert current[0].is_set()


def test_a_wait_without_a_request_ends_after_its_time() -> None:
    stop = StopRequest()
    begun = time.monotonic()
    assert not stop.wait(0.05)
    assert time.monotonic() - begun >= 0.05
    assert not stop.is_set()


def test_a_request_ends_all_waits() -> None:
    stop, ended = StopRequest(), list[bool]()
    threads = [threading.Thread(target=lambda: ended.append(stop.wait(60)), daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert ended == [True] * 5
    assert stop.wait(0)
