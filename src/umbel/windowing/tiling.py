"""The tile grid of continuous windows, and the names of entry columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from umbel.changes.runs import Ints
from umbel.errors import InvalidValue
from umbel.state.tables import NUMBER
from umbel.types import epochs
from umbel.types.durations import parse_duration
from umbel.types.epochs import EPOCH
from umbel.types.windows import SECOND, Continuous

WINDOW, FIRST, LAST, SINCE, UNTIL = "_time_window", "_time_first", "_time_last", "_at_first", "_at_last"
RETAINED = "_at_retained"
"""The instant until which the instants of a session are retained."""
ENDED = "_weight_ended"
"""The net number of ended rows: an entry has no rows if all have ended, or if all were retracted."""
CHECKSUM = "_weight_checksum"
"""The sum of a number for each change, the weight as its sign: 0 only if each change was retracted."""
RETRACTED = "_has_retracted"
"""True if effects were retracted that the entry does not keep apart: its instants may be those of retracted effects."""
ID = NUMBER
NEVER = 2**62
"""An instant after all others, µs."""
BASE = -1
"""The window number of the base: the entry with the states and instants of expired entries."""


@dataclass(frozen=True)
class Tiling:
    """The grid of tiles, a setting of the deployment.

    Args:
        accuracy: the length of a tile as a fraction of the window, which bounds the error.
        exact: the maximum number of instants in a tile before it collapses into one entry.
        disorder: the maximum lateness of expected rows; unbounded windows store tiles for that long.
    """

    accuracy: float = 0.01
    exact: int = 8
    disorder: str = "14d"

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 1:
            raise InvalidValue(f"Tiling: accuracy must be between 0 and 1, found {self.accuracy}")
        if self.exact < 1:
            raise InvalidValue(f"Tiling: exact must be at least 1, found {self.exact}")
        parse_duration(self.disorder)

    def grain(self, window: Continuous) -> int:
        """Return the length of the tiles of a window, in microseconds."""
        length = parse_duration(self.disorder) if window.duration_us is None else window.duration_us
        return max(1, int(length * self.accuracy))


def micros(instant: datetime) -> int:
    """Return an instant in microseconds since the epoch."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def instant_of(number: int) -> datetime:
    """Return the instant of microseconds since the epoch.

    It is the last or the first one there is, if the number is beyond.
    """
    return EPOCH + timedelta(microseconds=min(max(number, epochs.FIRST), epochs.LAST))


def leaving(position: Ints, length: Ints) -> Ints:
    """Return the instants, µs, at which entries leave windows: at whole seconds.

    Args:
        position: the instant of each that determines whether it is in the window, µs.
        length: of its window, µs; `NEVER` for an unbounded one.
    """
    # before the epoch an instant and NEVER add up to less than NEVER
    leaves: Ints = np.where(length == NEVER, NEVER, (position + length) // SECOND * SECOND + SECOND)
    return leaves
