"""Continuous windows as tiles: partial states on a fixed time grid.

The tiles of a key are bounded in number, and exact while they have only a small number of instants.

For each group key and each window there is a list of *entries*. Tile n of a window of length w covers [n·g, (n+1)·g), g being a
hundredth of w. A tile has one entry for each instant up to 8 of them; with the ninth it collapses into one entry for the span of
its instants, which then counts as a whole: when the middle of its span is in the window. For rows that are only ever inserted the
entries are a function of the set of rows, in any order and any batches. Rows that take effect when their tile is leaving the
window do not count among its instants: a lookup before has not seen them.

Columns of an entry, instants in µs:

| column | meaning |
|---|---|
| `_time_window` | the number of the window; −1 for the base of the key |
| `_time_first`, `_time_last` | the span of its instants |
| `_at_first`, `_at_last` | keyed input only: the span in which its changes take effect |
| `_weight` | its net number of rows |
| `_weight_ended` | keyed input only: the net number of rows that end in it |
| `_weight_checksum` | keyed input only: a checksum of its changes, 0 if all were retracted |
| `_has_retracted` | keyed input only: effects were retracted that it does not keep apart, so that its instants are bounds |
| `_state…` | the partial states |

The base has the states of unbounded windows from before the watermark. Its `_time_first` is the first instant of the key ever,
its `_time_last` the horizon: the entries do not have the values before that instant any more. Along another column than the
timestamp unbounded windows have no base; without such a window its `_weight` is that of the retired entries of the first one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.hashing import hash64
from umbel.changes import runs
from umbel.changes.runs import Flags, Ints, Sorted, sorted_pairs
from umbel.state.runs.rules import FoldRule, TableSchema
from umbel.state.runs.sorting import gathered
from umbel.state.tables import FoldedTable, State, Table
from umbel.types.schema import AT, SEQ, WEIGHT
from umbel.types.windows import Continuous
from umbel.windowing.partials import Partials
from umbel.windowing.points import TIME, Points
from umbel.windowing.tiling import (
    BASE,
    CHECKSUM,
    ENDED,
    FIRST,
    ID,
    LAST,
    NEVER,
    RETRACTED,
    SINCE,
    UNTIL,
    WINDOW,
    Tiling,
    leaving,
)

TABLE = "tiles"
"""The state's table of entries."""


@dataclass(frozen=True)
class Tiles:
    """The entries of continuous windows: lifted from rows, merged and dropped.

    Args:
        keys: the columns of the group.
        timestamp: of the input.
        anchor: the column with a row's instant.
        windows: the distinct windows.
        aggregates: the aggregates.
        partials: their states.
        tiling: the grid.
        is_keyed: True if rows end at an instant of their own, so that changes have `_at` apart from the row's time.
        is_retractable: True if rows may be retracted.
        is_bounded: True if the watermark bounds the age of rows.
    """

    keys: tuple[str, ...]
    timestamp: str
    anchor: str
    windows: tuple[Continuous, ...]
    aggregates: tuple[Aggregate, ...]
    partials: Partials
    tiling: Tiling
    is_keyed: bool
    is_retractable: bool
    is_bounded: bool = True

    @cached_property
    def grains(self) -> Ints:
        """The length of the tiles of each window, µs."""
        return np.array([self.tiling.grain(window) for window in self.windows], np.int64)

    @cached_property
    def lengths(self) -> Ints:
        """The length of each window, µs; the last one is that of the base."""
        return np.array([*(each.duration_us or NEVER for each in self.windows), NEVER], np.int64)

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of an entry."""
        instants = {SINCE: pl.Int64(), UNTIL: pl.Int64()}
        counts = {ENDED: pl.Int64(), CHECKSUM: pl.Int64()}
        entered = {**instants, **counts, RETRACTED: pl.Boolean()} if self.is_keyed else {}
        span = {WINDOW: pl.Int8(), FIRST: pl.Int64(), LAST: pl.Int64(), **entered}
        return {**span, WEIGHT: pl.Int64(), **self.partials.columns}

    @property
    def is_appended(self) -> bool:
        """True if batches are added to the stored entries without reading these.

        What entries are merged to must not depend on when that happens. A retracted instant still counts among those of its tile
        until the watermark has passed it, so it does not for most aggregates; without a watermark nobody knows when to drop it.
        """
        if self.is_keyed or not self.is_retractable:
            return not self.is_keyed
        return self.is_bounded and all(each.is_exact_retracted for each, _ in self.partials.parts)

    @property
    def counts_retired(self) -> bool:
        """True if rows may be retracted after their entries have left all windows.

        Only the net number of rows says then whether a key has any. The base has that of the retired ones.
        """
        return self.is_retractable and not self.is_bounded

    @cached_property
    def schema(self) -> TableSchema:
        """The table of entries that batches are added to; stored and read entries are folded."""
        from umbel.windowing.tile_writes import TileWriter  # which needs this class

        return TableSchema(self.columns, FoldRule(TileWriter(self).fold))

    def stored(self, state: State) -> FoldedTable | Table:
        """Return the table of entries of an operator."""
        return state.folded(TABLE, self.schema) if self.is_appended else state.table(TABLE, self.columns)

    @cached_property
    def spans(self) -> list[pl.Expr]:
        """The merge expressions of the columns of entries other than the states."""
        return [pl.col(FIRST).min(), pl.col(LAST).max(), *self._counts]

    @cached_property
    def _counts(self) -> list[pl.Expr]:
        """The merge expressions of these columns other than the instants of rows."""
        counts = [pl.col(ENDED).sum(), pl.col(CHECKSUM).sum()]
        keyed = [pl.col(SINCE).min(), pl.col(UNTIL).max(), *counts, pl.col(RETRACTED).any()]
        return [*(keyed if self.is_keyed else []), pl.col(WEIGHT).sum()]

    @property
    def forever(self) -> int | None:
        """The number of the unbounded window; None if there is none."""
        return next((number for number, window in enumerate(self.windows) if window.is_forever), None)

    def are_late(self, window: Ints, first: Ints, since: Ints) -> Flags:
        """Return a mask of entries that take effect when their tile is leaving its window.

        Those of keyed input can. They do not shape it: whether it is collapsed, and to where, is known before it matters. If it
        is, they go with it.
        """
        grain = self.grains[window]
        late: Flags = since >= first // grain * grain + self.lengths[window]
        return late

    # rows to partial entries

    def lift(self, rows: pl.DataFrame, *, grain: int | None = None) -> pl.DataFrame:
        """Return partial entries of changes, one for each key and instant.

        They are not assigned to windows yet.

        Args:
            rows: changes.
            grain: the length of a tile, µs: a tile with too many instants to be exact collapses into one entry. Never when None.
        """
        order = [FIRST, UNTIL] if self.is_keyed else [FIRST]
        ordered = runs.ordered(self._placed(rows), [*self.keys, *order])
        first = ordered[FIRST].to_numpy()
        key = runs.key_changes(ordered, self.keys)
        begins = key | runs.changes(*(ordered[name].to_numpy() for name in order))
        if grain is not None:
            tile = key | runs.changes(first // grain)
            begins = tile | (begins & ~exceeds(tile, begins, self.tiling.exact))
        starts = np.flatnonzero(begins)
        ends = starts + runs.lengths(begins) - 1
        span = (pl.Series(FIRST, first[starts]), pl.Series(LAST, first[ends]))
        states = self.partials.lift(ordered.with_columns(pl.col(FIRST).alias(LAST)), begins, self._counts)
        return gathered(ordered.select(self.keys), starts).with_columns(*span).hstack(states)

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return a minimal set of partial entries of changes.

        They lose nothing that any window needs.
        """
        if self.is_retractable and not self.is_appended:
            return self.lift(rows)
        return self.lift(rows, grain=gcd(*map(int, self.grains)))

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        instant = pl.col(self.anchor).dt.epoch("us")
        placed = [instant.alias(FIRST)]
        if self.is_keyed:
            entered = pl.max_horizontal(instant, pl.col(AT).dt.epoch("us"))
            ended = pl.when(pl.col(AT) > pl.col(self.anchor)).then(-pl.col(WEIGHT)).otherwise(0)
            placed += [
                entered.alias(SINCE),
                entered.alias(UNTIL),
                ended.alias(ENDED),
                pl.lit(0, pl.Int64).alias(CHECKSUM),
                pl.lit(value=False).alias(RETRACTED),
            ]
        numbers = [SEQ] if self.is_keyed or SEQ in self.partials.reads else []
        read = dict.fromkeys([*self.keys, *(at.of for _, at in self.partials.parts if at.of), *numbers, WEIGHT])
        found = rows.select(*read, *placed)
        return found.with_columns((pl.col(WEIGHT) * self._numbers(found)).alias(CHECKSUM)) if self.is_keyed else found

    def _numbers(self, placed: pl.DataFrame) -> pl.Series:
        """Return a positive number for each row of keyed input, a hash of its contents.

        It has 40 bits, so that millions of them can be summed up.
        """
        instant = [FIRST] if FIRST in self.partials.reads else []
        names = dict.fromkeys([SEQ, UNTIL, *instant, *(at.of for _, at in self.partials.parts if at.of)])
        hashes = hash64(placed.select(pl.struct(*names).alias(CHECKSUM)).to_series())
        return (hashes // 2**24).cast(pl.Int64) + 1

    # partial entries to entries of windows

    def for_windows(self, partial: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries once for each window."""
        each = [self.for_window(partial, number) for number in range(len(self.windows))]
        return pl.concat(each, rechunk=True) if len(each) > 1 else each[0]

    def for_window(self, partial: pl.DataFrame, number: int) -> pl.DataFrame:
        """Return partial entries, with `_key_id`, as entries of one window."""
        frame = partial.with_columns(pl.lit(number, pl.Int8).alias(WINDOW))
        if self.is_keyed and self.windows[number].is_forever:
            frame = frame.with_columns(pl.col(UNTIL).alias(FIRST), pl.col(UNTIL).alias(LAST))
        return frame.with_columns(self._unneeded(number)).select(ID, *self.columns)

    def _unneeded(self, number: int) -> list[pl.Expr]:
        return [
            pl.lit(None, dtype).alias(name)
            for name, dtype in self.partials.columns.items()
            if number not in self._readers[name]
        ]

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        """The numbers of the windows that need each state column.

        The column is null in the entries of other windows.
        """
        readers: dict[str, list[int]] = {name: [] for name in self.partials.columns}
        for number, window in enumerate(self.windows):
            for name in self.partials.only(each for each in self.aggregates if each.window == window).columns:
                readers[name] += [number, BASE] if window.is_forever else [number]
        return readers

    def only_needed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return merged entries with unneeded state columns of a window reset to null."""
        partly = [name for name, readers in self._readers.items() if len({*readers} - {BASE}) < len(self.windows)]
        return entries.with_columns(pl.when(pl.col(WINDOW).is_in(self._readers[name])).then(name) for name in partly)

    def is_empty_entry(self) -> pl.Expr:
        """Return an expression for empty entries: single effects, fully retracted."""
        return IS_SINGLE & ~self.has_rows()

    def existed(self) -> pl.Expr:
        """Return an expression for entries that prove that their key exists."""
        return pl.col(WEIGHT) != 0 if self.counts_retired else (pl.col(WINDOW) == BASE) | self.has_rows()

    def has_rows(self) -> pl.Expr:
        """Return an expression for entries with rows, or with rows that have ended.

        All rows of any other entry were retracted. Weights alone do not say so: the end of a row that began in another entry and
        the beginning of one that ends in another entry cancel out, and their values do not. Nor do the states: sums of floats
        leave a remainder.
        """
        counts = [WEIGHT, ENDED, CHECKSUM] if self.is_keyed else [WEIGHT]
        return pl.any_horizontal(pl.col(*counts) != 0)


IS_SINGLE = (pl.col(FIRST) == pl.col(LAST)) & (pl.col(SINCE) == pl.col(UNTIL))
"""An expression for entries of one effect, of keyed input."""


def exceeds(outer: Flags, inner: Flags, limit: int) -> Flags:
    """Return a mask of the rows whose outer run has more than `limit` inner runs."""
    inside = np.add.reduceat(inner.astype(np.int64), np.flatnonzero(outer)) if len(outer) else np.empty(0, np.int64)
    return np.repeat(inside > limit, runs.lengths(outer))


# instants of changes: values change when rows arrive, are retracted, and leave the window

MANY = 2**40
"""Larger than the number of rows of any entry."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The instants at which entries change values, one pair for each entry.

    Args:
        comes: the instant the entry enters its window; before all instants (−NEVER) if that changes no value.
        leaves: the instant the content of its position leaves the window; before all instants if nothing is left there, after all
            of them (NEVER) in an unbounded window.
    """

    comes: Ints
    leaves: Ints

    @classmethod
    def of(
        cls, tiles: Tiles, ids: Ints, window: Ints, position: Ints, since: Ints, until: Ints, weight: Ints
    ) -> Effects:
        """Return the effects of entries.

        Args:
            tiles: their tiles.
            ids: of their keys, equal ones adjacent; within them windows and positions.
            window: the numbers of their windows, that of the base last.
            position: the instant, in µs, that determines whether an entry is in the window.
            since: the instant its first change takes effect.
            until: the instant its last change takes effect.
            weight: its net number of rows.
        """
        leaves = leaving(position, tiles.lengths[window])
        in_time = until < leaves
        begins = runs.changes(ids, window, position)
        # an entry that ends after it left had its timely rows until then, whatever its net weight
        counted = np.where(in_time, weight, np.where(since < leaves, MANY, 0))
        alive = np.add.reduceat(counted, np.flatnonzero(begins)) if len(begins) else weight
        gone = np.repeat(alive == 0, runs.lengths(begins))
        seen = in_time if tiles.is_keyed else in_time & (~gone | (window == BASE))
        return cls(np.where(seen, until, -NEVER), np.where(gone, -NEVER, leaves))

    @property
    def last(self) -> Ints:
        """The last instant at which each entry changes a value."""
        last: Ints = np.maximum(self.comes, self.leaves)
        return last

    def latest(self, at: Ints) -> Ints:
        """Return for each entry its last change at or before an instant.

        Before all instants (−NEVER) if there is none.
        """
        parts = (np.where(each <= at, each, -NEVER) for each in (self.comes, self.leaves))
        latest: Ints = np.maximum(*parts)
        return latest


def middle(first: Ints, last: Ints) -> Ints:
    """Return the positions of entries: the middle of their spans."""
    return first + (last - first) // 2


@dataclass(frozen=True, slots=True)
class Moments:
    """The instants at which the values of keys change, in any order."""

    ids: Ints
    at: Ints

    @classmethod
    def of(cls, ids: Ints, effects: Effects) -> Moments:
        """Return the instants of effects on keys."""
        at = np.concatenate((effects.comes, effects.leaves))
        some = (at > -NEVER) & (at < NEVER)
        return cls(np.concatenate((ids, ids))[some], at[some])

    @property
    def frame(self) -> pl.DataFrame:
        """A frame of the instants: `_key_id` and `_time`."""
        at = pl.Series(TIME, self.at).cast(pl.Datetime("us", "UTC"))
        return pl.DataFrame([pl.Series(ID, self.ids.astype(np.uint32)), at])

    def before(self, points: Points) -> Ints:
        """Return for each point the last change of its key at or before it.

        Before all instants (−NEVER) if there is none.
        """
        ids, at = sorted_pairs(self.ids, self.at)
        search = Sorted(ids, at)
        position = search.first_after(points.ids, points.at) - 1
        known = position >= search.first_at_or_after(points.ids, np.full(len(points.at), -NEVER))
        found = np.full(len(points.at), -NEVER)
        found[known] = at[position[known]]
        return found
