"""How windows divide time: the panes that rows are put in, and the instants at which a result comes out."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Protocol

import numpy as np

from umbel.operators.runs import Ints, expand
from umbel.types.windows import SECOND, Continuous, Hopping, Tumbling

ALWAYS = -(2**62)
LATER = 2**62


class Grid(Protocol):
    """The panes and results of one window. All instants are µs."""

    @property
    def is_cumulative(self) -> bool:
        """Whether a result covers everything before it."""

    @property
    def size(self) -> int:
        """The length of a pane."""

    def ends(self, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the instants e, low < e <= high, at which results come out because of panes with rows.

        Args:
            panes: the begin of each.
            entered: when the rows in it take effect.
            low: for each pane.
            high: for each pane.

        Returns:
            The position of the pane and the instant, of every such pair.
        """

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        """Return for each pane the first such instant after another; a large one if there is none."""

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        """Return for results the range [low, high) of the panes they are made of."""

    def current(self, instants: Ints) -> Ints:
        """Return the newest instant, not after another one, at which a result can come out."""

    def reach(self) -> int:
        """Return for how long after its begin a pane matters."""


@dataclass(frozen=True, slots=True)
class HoppingGrid:
    """Windows of a fixed length, aligned to the epoch; the end of window k is k · stride + length.

    A result comes out at the end of each window with rows, and at the end of the one after the last of them.
    """

    length: int
    stride: int

    @property
    def is_cumulative(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return gcd(self.length, self.stride)

    def ends(self, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        first = np.maximum(self._first(panes), (low - self.length) // self.stride + 1)
        last = np.minimum(panes // self.stride + 1, (high - self.length) // self.stride)
        owner, number = expand(first, last + 1)
        return owner, number * self.stride + self.length

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        number = np.maximum(self._first(panes), (after - self.length) // self.stride + 1)
        return np.where(number <= panes // self.stride + 1, number * self.stride + self.length, LATER)

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        return ends - self.length, ends

    def current(self, instants: Ints) -> Ints:
        return (instants - self.length) // self.stride * self.stride + self.length

    def reach(self) -> int:
        return self.size + self.length + self.stride

    def _first(self, panes: Ints) -> Ints:
        """Return the number of the first window a pane is in."""
        number: Ints = -((self.length - panes - self.size) // self.stride)
        return number


@dataclass(frozen=True, slots=True)
class ForeverGrid:
    """Everything before each multiple of the stride; a result comes out at the end of each stride with rows."""

    stride: int

    @property
    def is_cumulative(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self.stride

    def ends(self, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        ends = panes + self.stride
        wanted = np.flatnonzero((low < ends) & (ends <= high))
        return wanted, ends[wanted]

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        return np.where(panes + self.stride > after, panes + self.stride, LATER)

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        return np.full(len(ends), ALWAYS), ends

    def current(self, instants: Ints) -> Ints:
        return instants // self.stride * self.stride

    def reach(self) -> int:
        return LATER


@dataclass(frozen=True, slots=True)
class SlidingGrid:
    """Continuous windows whose results come out when rows enter and leave; a pane is an instant.

    Args:
        length: None for a window without beginning.
    """

    length: int | None

    @property
    def is_cumulative(self) -> bool:
        return self.length is None

    @property
    def size(self) -> int:
        return 1

    def ends(self, panes: Ints, entered: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        both = [entered] if self.length is None else [entered, np.maximum(self._left(panes), entered)]
        owners = np.tile(np.arange(len(panes)), len(both))
        ends = np.concatenate(both)
        wanted = (np.tile(low, len(both)) < ends) & (ends <= np.tile(high, len(both)))
        return owners[wanted], ends[wanted]

    def due(self, panes: Ints, entered: Ints, after: int) -> Ints:
        left = np.full(len(panes), LATER) if self.length is None else self._left(panes)
        return np.where(entered > after, entered, np.where(left > after, left, LATER))

    def covers(self, ends: Ints) -> tuple[Ints, Ints]:
        low = np.full(len(ends), ALWAYS) if self.length is None else ends // SECOND * SECOND - self.length
        return low, ends + 1

    def current(self, instants: Ints) -> Ints:
        return instants

    def reach(self) -> int:
        return LATER if self.length is None else self.length + 2 * SECOND

    def _left(self, panes: Ints) -> Ints:
        assert self.length is not None
        return ((panes + self.length) // SECOND + 1) * SECOND


def grid_of(window: Continuous | Tumbling | Hopping) -> Grid:
    """Return how a window divides time."""
    if isinstance(window, Continuous):
        return SlidingGrid(window.duration_us)
    if window.is_forever or window.duration_us is None:
        return ForeverGrid(window.stride_us)
    return HoppingGrid(window.duration_us, window.stride_us)
