"""The lag of every sink, in a file written by the worker.

Other processes read it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from umbel.runtime.source_lags import LONG
from umbel.state.stored_json import parse_stored

FILE = "sink-lags.json"


@dataclass(frozen=True, slots=True)
class SinkLag:
    """The lag of one sink.

    Args:
        dataset: the name of its dataset.
        target: the description of its destination.
        seconds: since its destination had all changes there were, beyond its `every`.
        trouble: why the last attempt failed; empty if it did not.
        at: the instant of the record, in seconds since the epoch.
    """

    dataset: str
    target: str
    seconds: float
    trouble: str
    at: float

    @property
    def is_bad(self) -> bool:
        """True if somebody should do something about it."""
        return bool(self.trouble) or self.seconds > LONG

    def __str__(self) -> str:
        behind = f"{self.seconds:,.0f} s behind" if self.seconds >= 1 else "up to date"
        return f"{self.target}: {behind}{f': {self.trouble}' if self.trouble else ''}"

    @property
    def remedy(self) -> str:
        """The advice to the user; empty if nothing needs doing."""
        if self.trouble:
            return "do what the message says; what waits is delivered then"
        return "see that the destination answers, and what locks or slows it" if self.is_bad else ""


@dataclass
class DeliveryProgress:
    """The progress of the delivery to one sink.

    Args:
        every: the seconds between two deliveries.
        current_at: when its destination had all changes there were.
        trouble: why the last attempt failed; empty if it did not.
    """

    every: float = 0.0
    current_at: float = field(default_factory=time.time)
    trouble: str = ""

    def delivered(self, begun: float) -> None:
        """Note that all changes of before an instant were delivered."""
        self.current_at, self.trouble = begun, ""

    def lag(self, dataset: str, target: str) -> SinkLag:
        """Return the lag now."""
        now = time.time()
        return SinkLag(dataset, target, max(0.0, now - self.current_at - self.every), self.trouble[:500], now)


def record_sinks(directory: Path, lags: Sequence[SinkLag]) -> None:
    """Write the lags of all sinks; a full disk stops none of them.

    Args:
        directory: of the deployment.
        lags: of its sinks.
    """
    with suppress(OSError):
        if lags or (directory / FILE).exists():
            part = directory / f"{FILE}.{os.getpid()}"
            part.write_text(json.dumps([asdict(each) for each in lags]))
            part.replace(directory / FILE)


def sink_lags(directory: Path) -> list[SinkLag]:
    """Return the last lags that the worker has recorded, none if there are none.

    Args:
        directory: of the deployment.
    """
    try:
        return [SinkLag(**each) for each in parse_stored((directory / FILE).read_bytes())]
    except (OSError, ValueError, TypeError):
        return []
