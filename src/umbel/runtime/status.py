"""How the worker does, in a small file that others on the machine can read."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "work.json"
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Status:
    """What a worker says of itself.

    Args:
        state: `starting`, `running`, `stopped` or `failed`.
        process: its id.
        at: seconds since the epoch.
        batch: the last batch finished, None for none since it started.
    """

    state: str
    process: int
    at: float
    batch: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it takes in data."""
        return self.state == RUNNING


def write_status(directory: Path, state: str, batch: int | None = None) -> None:
    """Say how this process does."""
    path = directory / FILE
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(asdict(Status(state, os.getpid(), time.time(), batch))))
    fresh.replace(path)


def read_status(directory: Path) -> Status | None:
    """Return what the worker said last; None where there is nothing, or nothing readable."""
    with suppress(OSError, ValueError, TypeError):
        return Status(**json.loads((directory / FILE).read_bytes()))
    return None


def forget_status(directory: Path) -> None:
    """Remove what an earlier worker said."""
    (directory / FILE).unlink(missing_ok=True)
