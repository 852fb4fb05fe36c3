"""Grids of windows: the panes of rows, and the emission instants of results."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Protocol

import numpy as np

from umbel.changes.runs import Ints, expand
from umbel.types.windows import SECOND, Continuous, Hopping, Tumbling

ALWAYS = -(2**62)
LATER = 2**62


class Grid(Protocol):
    """The panes and results of one window. All instants are µs."""

    @property
    def is_cumulative(self) -> bool:
        """True if a result covers everything before it."""

    @property
    def size(self) -> int:
        """The length of a pane, µs."""

    @property
    def panes(self) -> int:
        """The largest number of panes of a result; 0 without a limit."""

    def ends(self, ids: Ints, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the emission instants of results due to panes with rows.

        These are all instants e, low < e <= high, each at least once.

        Args:
            ids: the key of each pane.
            panes: the begin of each pane.
            entered: the instant the rows in each pane take effect.
            low: for each pane.
            high: for each pane.

        Returns:
            The position of a pane of the key, and the instant.
        """

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        """Return for each pane its first emission instant after `after`; `LATER` if none."""

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        """Return for each result the range [low, high) of panes it is merged from."""

    def current(self, instants: Ints) -> Ints:
        """Return the latest possible emission instant at or before each instant."""

    def retention(self) -> int:
        """Return how long a pane is needed after its begin, µs."""


@dataclass(frozen=True, slots=True)
class HoppingGrid:
    """Windows of a fixed length, aligned to the epoch.

    The end of window k is k · stride + length. A result is emitted at the end of each window with rows, and at the end of the
    window after the last of these.
    """

    length: int
    stride: int

    @property
    def is_cumulative(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return gcd(self.length, self.stride)

    @property
    def panes(self) -> int:
        return self.length // self.size

    def ends(self, ids: Ints, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        first = np.maximum(self._first(panes), (low - self.length) // self.stride + 1)
        last = np.minimum(panes // self.stride + 1, (high - self.length) // self.stride)
        # the windows of the pane before have those of the next one in part
        follows = (ids[1:] == ids[:-1]) & (panes[1:] >= panes[:-1])
        first[1:] = np.where(follows, np.maximum(first[1:], last[:-1] + 1), first[1:])
        row, number = expand(first, last + 1)
        return row, number * self.stride + self.length

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        number = np.maximum(self._first(panes), (after - self.length) // self.stride + 1)
        return np.where(number <= panes // self.stride + 1, number * self.stride + self.length, LATER)

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        return ends - self.length, ends

    def current(self, instants: Ints) -> Ints:
        return (instants - self.length) // self.stride * self.stride + self.length

    def retention(self) -> int:
        return self.size + self.length + self.stride

    def _first(self, panes: Ints) -> Ints:
        """Return the number of the first window that contains a pane."""
        number: Ints = -((self.length - panes - self.size) // self.stride)
        return number


@dataclass(frozen=True, slots=True)
class ForeverGrid:
    """Windows of everything before each multiple of the stride.

    A result is emitted at the end of each stride with rows.
    """

    stride: int

    @property
    def is_cumulative(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self.stride

    @property
    def panes(self) -> int:
        return 0

    def ends(self, ids: Ints, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        ends = panes + self.stride
        requested = np.flatnonzero((low < ends) & (ends <= high))
        return requested, ends[requested]

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        return np.where(panes + self.stride > after, panes + self.stride, LATER)

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        return np.full(len(ends), ALWAYS), ends

    def current(self, instants: Ints) -> Ints:
        return instants // self.stride * self.stride

    def retention(self) -> int:
        return LATER


@dataclass(frozen=True, slots=True)
class SlidingGrid:
    """Continuous windows with results at each instant a row enters or leaves.

    A pane is an instant.

    Args:
        length: None for an unbounded window.
    """

    length: int | None

    @property
    def is_cumulative(self) -> bool:
        return self.length is None

    @property
    def size(self) -> int:
        return 1

    @property
    def panes(self) -> int:
        return 0 if self.length is None else self.length + SECOND

    def ends(self, ids: Ints, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        both = [entered] if self.length is None else [entered, np.maximum(self._left(panes), entered)]
        owners = np.tile(np.arange(len(panes)), len(both))
        ends = np.concatenate(both)
        requested = (np.tile(low, len(both)) < ends) & (ends <= np.tile(high, len(both)))
        return owners[requested], ends[requested]

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        left = np.full(len(panes), LATER) if self.length is None else self._left(panes)
        return np.where(entered > after, entered, np.where(left > after, left, LATER))

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        low = np.full(len(ends), ALWAYS) if self.length is None else ends // SECOND * SECOND - self.length
        return low, ends + 1

    def current(self, instants: Ints) -> Ints:
        return instants

    def retention(self) -> int:
        return LATER if self.length is None else self.length + 2 * SECOND

    def _left(self, panes: Ints) -> Ints:
        assert self.length is not None
        return ((panes + self.length) // SECOND + 1) * SECOND


def grid_of(window: Continuous | Tumbling | Hopping) -> Grid:
    """Return the grid of a window."""
    if isinstance(window, Continuous):
        return SlidingGrid(window.duration_us)
    if window.is_forever or window.duration_us is None:
        return ForeverGrid(window.stride_us)
    return HoppingGrid(window.duration_us, window.stride_us)
