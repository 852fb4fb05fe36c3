"""The periods of polled sources."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from umbel.connectors import polling
from umbel.connectors.polled_cursor import MOST_POLLS, PatientCursor, Poll
from umbel.connectors.polling import Poller, seconds_left
from umbel.connectors.staged_source import IDENTITY
from umbel.definitions.arguments import ReadOptions
from umbel.errors import Transient


@dataclass(frozen=True)
class Numbers(PatientCursor):
    """A source that has one row more with each read."""

    options: ReadOptions
    reads: list[Any]

    title = "numbers"

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        yield SimpleNamespace(mark={"begun": time.time()}, earlier=None)

    def start(self, view: Any, polls: Sequence[Poll]) -> Any:
        return SimpleNamespace(high=None, reaches=lambda _: False)

    def copy(self, view: Any, start: Any, poller: Poller) -> bool:
        self.reads.append(view)
        self.stage.append(pl.DataFrame({IDENTITY: [len(self.reads)]}), {"high": str(len(self.reads))})
        return True

    def open(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def numbers(folder: Path, disorder: int) -> Numbers:
    options = ReadOptions(
        directory=folder, key="n#1", dataset="N", cdc="append", every=60_000_000, disorder=disorder,
        columns=None, keys=(), is_keyed=False,
    )  # fmt: skip
    return Numbers(options, [])


def test_a_clock_that_was_set_back_does_not_stop_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day back, with a read every minute."""
    source, now = numbers(tmp_path, disorder=1), time.time()
    poller: Any = SimpleNamespace(consumed=0, lag=None)
    assert source.read_on(poller) == 60
    assert source.read_on(poller) == pytest.approx(60, abs=30)
    assert len(source.reads) == 1
    monkeypatch.setattr(time, "time", lambda: now - 86_400)
    source.read_on(poller)
    assert len(source.reads) == 2
    source.read_on(poller)
    assert len(source.reads) == 2
    monkeypatch.setattr(time, "time", lambda: now - 86_400 + 61)
    source.read_on(poller)
    assert len(source.reads) == 3


def test_the_seconds_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert [seconds_left(at, 60) for at in (990.0, 930.0, 1000.0, 1001.0, 0.0)] == [50.0, -10.0, 60.0, 0.0, -940.0]


def test_a_long_disorder_retains_a_hundred_polls(tmp_path: Path) -> None:
    """Ten days, with a read every second; the one that a read begins at is not much older than that."""
    days, source = 864_000, numbers(tmp_path, disorder=864_000_000_000)
    polls = list[Poll]()
    for second in range(0, 3 * days, 60):
        polls = list(source.relevant([*polls, {"begun": float(second)}]))
        assert len(polls) <= MOST_POLLS + 2
        closed = source.closed(polls)
        if second >= days:
            assert closed is not None
            assert days <= second - polls[closed]["begun"] <= days * 1.02
        else:
            assert closed is None


def test_polls_before_the_clock_was_set_back_are_retained(tmp_path: Path) -> None:
    source = numbers(tmp_path, disorder=100_000_000)
    polls = source.relevant([{"begun": each} for each in (1000.0, 1000.5, 10.0, 10.1, 10.2)])
    assert [each["begun"] for each in polls] == [1000.0, 10.0, 10.2]


def test_a_thread_goes_on_after_any_number_of_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling overflowed after 1,024 of them, three hours: the thread ended, and another one began with short waits."""
    monkeypatch.setattr(polling, "FIRST_WAIT", 0.0)
    tried, is_enough = count(), threading.Event()

    def fail(_: Poller) -> float:
        if next(tried) > 1100:
            is_enough.set()
        raise Transient("gone")

    made: Any = SimpleNamespace(
        folder=tmp_path, title="failing", take_over=lambda: None, release=lambda: None, read_on=fail
    )
    poller = Poller(made)
    try:
        assert is_enough.wait(300)
        assert poller.is_alive
    finally:
        poller.stop()
