"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from umbel.formats.garbage import uncollected

THREADS, PAUSES = 4, 100


def test_the_collector_is_as_before_after_overlapping_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads switch between a look whether it is enabled and what follows from that."""
    is_enabled, begin = gc.isenabled, threading.Barrier(THREADS)

    def look() -> bool:
        found = is_enabled()
        time.sleep(0.0001)
        return found

    def pause(_: int) -> list[bool]:
        begin.wait()
        found = []
        for _ in range(PAUSES):
            with uncollected():
                time.sleep(0.0001)
                found.append(is_enabled())
        return found

    monkeypatch.setattr(gc, "isenabled", look)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            during = list(pool.map(pause, range(THREADS)))
        assert is_enabled()
        assert not any(map(any, during))
    finally:
        gc.enable()


def test_a_collector_that_was_disabled_stays_so() -> None:
    gc.disable()
    try:
        with uncollected(), uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
