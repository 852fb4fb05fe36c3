"""Continuous windows: tiles of partial states on a fixed grid, bounded in number, exact while a key is quiet.

For each group key and each window there is a list of *entries*. Tile n of a window of length w covers [n·g, (n+1)·g), g being a
hundredth of w. A tile keeps an entry for each instant up to 8 of them; with the ninth it becomes one entry for the span of its
instants, which then counts as a whole: when the middle of its span is in the window. For rows that are only ever inserted the
entries are a function of the set of rows, in whatever order and batches they came.

Columns of an entry, instants in µs:

| column | meaning |
|---|---|
| `_time_window` | the number of the window; −1 for the base of the key |
| `_time_first`, `_time_last` | the span of its instants |
| `_at_first`, `_at_last` | keyed input only: the span in which its changes take effect |
| `_weight` | how many rows it holds, net |
| `_weight_ended` | keyed input only: how many rows end in it, net |
| `_state…` | the partial states |

The base holds what windows without beginning keep of the time behind the watermark; `_time_first` is there the first instant of
the key ever, `_time_last` the instant before which the entries do not know everything any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.operators import runs
from umbel.operators.partials import Partials
from umbel.operators.runs import Flags, Ints
from umbel.operators.tile_retirement import retire
from umbel.operators.tiling import BASE, ENDED, FIRST, ID, LAST, NEVER, SINCE, UNTIL, WINDOW, Tiling
from umbel.types.schema import AT, SEQ, WEIGHT
from umbel.types.windows import Continuous


@dataclass(frozen=True)
class Tiles:
    """The entries of continuous windows: how they are made from rows, put together and dropped.

    Args:
        keys: the columns of the group.
        timestamp: of the input.
        anchor: the column that places a row in time.
        windows: the different windows.
        aggregates: the aggregates.
        partials: their states.
        tiling: the grid.
        is_keyed: whether rows end at an instant of their own, so that changes have `_at` apart from the row's time.
        is_retractable: whether rows may be taken back.
        is_bounded: whether the watermark tells how old rows may be.
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
        """The length of the tiles of each window in µs."""
        return np.array([self.tiling.grain(window) for window in self.windows], np.int64)

    @cached_property
    def lengths(self) -> Ints:
        """How long rows count in each window in µs; the last one is that of the base."""
        return np.array([*(each.duration_us or NEVER for each in self.windows), NEVER], np.int64)

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of an entry."""
        entered = {SINCE: pl.Int64(), UNTIL: pl.Int64(), ENDED: pl.Int64()} if self.is_keyed else {}
        span = {WINDOW: pl.Int8(), FIRST: pl.Int64(), LAST: pl.Int64(), **entered}
        return {**span, WEIGHT: pl.Int64(), **self.partials.columns}

    @cached_property
    def spans(self) -> list[pl.Expr]:
        """How the columns of entries other than the states are merged."""
        entered = [pl.col(SINCE).min(), pl.col(UNTIL).max(), pl.col(ENDED).sum()] if self.is_keyed else []
        return [pl.col(FIRST).min(), pl.col(LAST).max(), *entered, pl.col(WEIGHT).sum()]

    @property
    def forever(self) -> int | None:
        """The number of the window without beginning."""
        return next((number for number, window in enumerate(self.windows) if window.is_forever), None)

    # rows to partial entries

    def lift(self, rows: pl.DataFrame, *, grain: int | None = None) -> pl.DataFrame:
        """Return partial entries of changes, not yet of any window: one for each key and instant.

        Args:
            rows: changes.
            grain: where a tile of this length has too many instants to be kept apart, it becomes one entry.
        """
        placed = self._placed(rows)
        order = [FIRST, UNTIL] if self.is_keyed else [FIRST]
        ordered = runs.ordered(placed, [*self.keys, *order])
        instant = runs.changes(*(ordered[name].to_numpy() for name in order))
        key = runs.key_changes(ordered, self.keys)
        begins = key | instant
        if grain is not None:
            first = ordered[FIRST].to_numpy()
            tile = key | runs.changes(first // grain)
            begins = tile | (begins & ~crowded(tile, begins, self.tiling.exact))
        named = [pl.col(name).first() for name in self.keys]
        latest = [] if self.timestamp in self.keys else [pl.col(self.timestamp).max()]
        return self.partials.lift(ordered, begins, [*named, *latest, *self.spans])

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries of changes, as few as can be without losing what any window needs."""
        if self.is_retractable:
            return self.lift(rows)
        return self.lift(rows, grain=gcd(*map(int, self.grains)))

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        instant = pl.col(self.anchor).dt.epoch("us")
        placed = [instant.alias(FIRST), instant.alias(LAST)]
        if self.is_keyed:
            entered = pl.max_horizontal(instant, pl.col(AT).dt.epoch("us"))
            ended = pl.when(pl.col(AT) > pl.col(self.anchor)).then(-pl.col(WEIGHT)).otherwise(0)
            placed += [entered.alias(SINCE), entered.alias(UNTIL), ended.alias(ENDED)]
        read = dict.fromkeys(
            [*self.keys, self.timestamp, *(at.of for _, at in self.partials.parts if at.of), SEQ, WEIGHT]
        )
        return rows.select(*read, *placed)

    # partial entries to entries of windows

    def spread(self, partial: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries once for each window."""
        each = [self.for_window(partial, number) for number in range(len(self.windows))]
        return pl.concat(each) if len(each) > 1 else each[0]

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
        """The numbers of the windows that need each state column; where a window does not, it is null."""
        readers: dict[str, list[int]] = {name: [] for name in self.partials.columns}
        for number, window in enumerate(self.windows):
            for name in self.partials.only(each for each in self.aggregates if each.window == window).columns:
                readers[name] += [number, BASE] if window.is_forever else [number]
        return readers

    def _only_needed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return merged entries with null again where a window needs no state."""
        partly = [name for name, readers in self._readers.items() if len({*readers} - {BASE}) < len(self.windows)]
        return entries.with_columns(pl.when(pl.col(WINDOW).is_in(self._readers[name])).then(name) for name in partly)

    def fold(self, entries: pl.DataFrame, watermark: int | None) -> pl.DataFrame:
        """Return entries, old and new of some keys in any order, as they are kept: sorted by key, window and time.

        Args:
            entries: with `_key_id`.
            watermark: nothing older is still expected; µs, None when not known.
        """
        order = [ID, WINDOW, FIRST, UNTIL, LAST, SINCE] if self.is_keyed else [ID, WINDOW, FIRST]
        base, tiled = _apart(runs.ordered(entries, order))
        if self.is_keyed:
            tiled = self._netted(tiled, order)
        kept = self.partials.merge(tiled, self._begins(tiled, watermark), [pl.col(ID, WINDOW).first(), *self.spans])
        if watermark is not None:
            base, kept = retire(self, base, kept, watermark)
        both = pl.concat([base, kept]).sort(ID, WINDOW, maintain_order=True) if len(base) else kept
        return self._only_needed(both)

    def _netted(self, tiled: pl.DataFrame, order: list[str]) -> pl.DataFrame:
        """Return entries, in order, without effects that were taken back: they are not to count as instants of their key."""
        begins = runs.changes(*(tiled[name].to_numpy() for name in order))
        begins[1:] |= (tiled[FIRST] < tiled[LAST]).to_numpy()[1:] | (tiled[SINCE] < tiled[UNTIL]).to_numpy()[1:]
        merged = self.partials.merge(tiled, begins, [pl.col(ID, WINDOW).first(), *self.spans])
        return merged.filter(~self.is_void())

    def is_void(self) -> pl.Expr:
        """Return whether an entry of one effect holds nothing: what it held was taken back."""
        held = [_holds(pl.col(name), dtype) for name, dtype in self.partials.contents.items()]
        single = (pl.col(FIRST) == pl.col(LAST)) & (pl.col(SINCE) == pl.col(UNTIL))
        return single & ~self.has_lived() & ~pl.any_horizontal(pl.lit(value=False), *held)

    def has_lived(self) -> pl.Expr:
        """Return whether an entry holds rows, or held some that have ended; else what it held was taken back."""
        there = pl.col(WEIGHT) != 0
        return there | (pl.col(ENDED) != 0) if self.is_keyed else there

    def _begins(self, tiled: pl.DataFrame, watermark: int | None) -> Flags:
        """Return where a new entry begins among entries in order."""
        window, first = tiled[WINDOW].to_numpy(), tiled[FIRST].to_numpy()
        grain = self.grains[window]
        tile_number = first // grain
        tile = runs.changes(tiled[ID].to_numpy(), window, tile_number)
        instant = tile | runs.changes(first)
        whole = crowded(tile, instant, self.tiling.exact)
        whole |= _any_in_run(tile, first < tiled[LAST].to_numpy())
        if not self.is_keyed:
            return tile | (instant & ~whole)
        until = tiled[UNTIL].to_numpy()
        entered = instant | runs.changes(until)
        if watermark is not None:
            settled = ((tile_number + 1) * grain <= watermark) & (until <= watermark)
            entered = instant | (entered & ~settled)
        entered = instant | (entered & ~crowded(instant, entered, self.tiling.exact))
        return tile | (entered & ~whole)


def _apart(entries: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the bases among entries, and the others."""
    is_base = entries[WINDOW] == BASE
    return (entries.filter(is_base), entries.filter(~is_base)) if is_base.any() else (entries.clear(), entries)


def _holds(state: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return whether a column of a state says anything."""
    if isinstance(dtype, pl.List):
        return state.list.len().fill_null(0) > 0
    if isinstance(dtype, pl.Boolean):
        return state.fill_null(value=False)
    return state.fill_null(0) != 0 if dtype.is_numeric() else state.is_not_null()


def crowded(outer: Flags, inner: Flags, limit: int) -> Flags:
    """Return for each row whether its outer run has more than `limit` inner runs."""
    inside = np.add.reduceat(inner.astype(np.int64), np.flatnonzero(outer)) if len(outer) else np.empty(0, np.int64)
    return np.repeat(inside > limit, runs.lengths(outer))


def _any_in_run(begins: Flags, flags: Flags) -> Flags:
    """Return for each row whether any row of its run has the flag."""
    found = np.logical_or.reduceat(flags, np.flatnonzero(begins)) if len(begins) else flags
    return np.repeat(found, runs.lengths(begins))
