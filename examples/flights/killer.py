"""Kills processes of the worker at random instants: a third of them during the backfill, the others during the replay."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Self

from examples.flights.server import Server

SECONDS = 22
"""The mean time between two kills: about what a restart takes, so that some hit the start and some the work."""


class Killer:
    """Kills in a thread of its own, for the length of a `with` block.

    Args:
        server: whose worker is killed.
        kills: how often.
        tell: called with each.
    """

    def __init__(self, server: Server, kills: int, tell: Callable[[str], None]) -> None:
        self._server, self._kills, self._tell = server, kills, tell
        self._done = 0
        self._live, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def live(self) -> None:
        """Say that the backfill is over."""
        self._live.set()

    def finish(self) -> None:
        """Wait for the last kill."""
        while self._done < self._kills:
            time.sleep(0.2)

    def _run(self) -> None:
        chance = random.Random()
        while self._done < self._kills and not self._ended.wait(chance.uniform(0.2, 1.8) * SECONDS):
            if self._done * 3 >= self._kills and not self._live.is_set():
                continue
            victim = self._server.kill_one()
            if victim:
                self._done += 1
                self._tell(f"  killed {victim} ({self._done} of {self._kills})")
