"""Failpoints: named locations in a transaction where tests kill the process.

`UMBEL_FAILPOINT=committing:3` kills the process (SIGKILL) the third time it passes `committing`;
`UMBEL_FAILPOINT=*:7` the seventh time it passes any failpoint. Without the variable a failpoint costs an empty loop.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POINTS = (
    "begun",
    "committing",
    "before a write",
    "before a sync",
    "before a name",
    "before a folder sync",
    "before a removal",
    "committed",
)
"""Transactions pass the first two and the last; each operation on files passes its own, also in flushes and merges."""


def die() -> None:
    """Kill this process at once, as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class Armed:
    """A failpoint: runs `action` on the `left`-th pass of `name` (`*`: any name)."""

    name: str
    left: int
    action: Callable[[], None] = die

    def reach(self, name: str) -> None:
        """Count a pass of `name`; run the action on the last one."""
        if self.name in ("*", name):
            self.left -= 1
            if self.left == 0:
                self.action()


def _from_environment() -> Armed | None:
    name, _, turn = os.environ.get("UMBEL_FAILPOINT", "").partition(":")
    return Armed(name, int(turn or 1)) if name else None


_armed = [found] if (found := _from_environment()) else []


def reach(name: str) -> None:
    """Pass the failpoint `name`."""
    for failpoint in _armed:
        failpoint.reach(name)


@contextmanager
def armed(name: str, turn: int, action: Callable[[], None]) -> Iterator[Armed]:
    """Run `action` on the `turn`-th pass of `name` by this process, within the block."""
    failpoint = Armed(name, turn, action)
    _armed.append(failpoint)
    try:
        yield failpoint
    finally:
        _armed.remove(failpoint)
