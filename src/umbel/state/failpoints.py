"""Named places inside a transaction at which tests let the process die.

`UMBEL_FAILPOINT=put:3` kills the process (SIGKILL) the third time it comes by `put`; `UMBEL_FAILPOINT=*:7` at the
seventh place it comes by, whatever its name. Without the variable a failpoint costs an empty loop.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POINTS = ("begun", "undone", "put", "saved", "committing", "committed")
"""In the order of a transaction: open, a former run taken back, values written, old values saved, commit, done."""


def die() -> None:
    """End this process at once, as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class Armed:
    """A failpoint: `action` runs the `left`-th time the process comes by `name` (`*`: any name)."""

    name: str
    left: int
    action: Callable[[], None] = die

    def reach(self, name: str) -> None:
        """Count a visit of `name`; act on the last one."""
        if self.name in ("*", name):
            self.left -= 1
            if self.left == 0:
                self.action()


def _from_environment() -> Armed | None:
    name, _, turn = os.environ.get("UMBEL_FAILPOINT", "").partition(":")
    return Armed(name, int(turn or 1)) if name else None


_armed = [found] if (found := _from_environment()) else []


def reach(name: str) -> None:
    """Come by the failpoint `name`."""
    for failpoint in _armed:
        failpoint.reach(name)


@contextmanager
def armed(name: str, turn: int, action: Callable[[], None]) -> Iterator[Armed]:
    """Run `action` the `turn`-th time this process comes by `name`, while the block lasts."""
    failpoint = Armed(name, turn, action)
    _armed.append(failpoint)
    try:
        yield failpoint
    finally:
        _armed.remove(failpoint)
