"""Discrete windows as panes: a result is emitted when a window closes.

A *pane* is the longest span not cut by any window of a length and stride; a window is the merge of its panes. The stored panes of
a key are those of windows still open, or not final yet. In addition enough of the past is stored to compute the newest result
again, so that it can be retracted when the next one supersedes it.

Columns of a pane: `_time_window` (the number of the window), `_time_pane` (its begin, µs), `_at_last` (keyed input only: the
instant its changes take effect, µs), `_weight`, `_weight_ended` (keyed input only: the checksum of changes that take effect after
their rows' instants) and the partial states.
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
from umbel.changes.runs import Flags, Ints, Sorted
from umbel.changes.versions import ALIVE, KEY, TIME, changelog, difference
from umbel.state.numbered_keys import KeyRanges
from umbel.state.runs.sorting import order_of
from umbel.state.tables import State
from umbel.types import epochs
from umbel.types.schema import AT, SEQ, WEIGHT
from umbel.types.windows import Continuous, Hopping, Tumbling
from umbel.windowing.grids import ALWAYS, LATER, Grid, HoppingGrid, grid_of
from umbel.windowing.pane_tree import LEAST, Windowed, fold_by_tree
from umbel.windowing.partials import Partials, fold
from umbel.windowing.stored_windows import Entries, Merged, nearby, whole
from umbel.windowing.tiling import ENDED, FIRST, ID, UNTIL, WINDOW

PANE = "_time_pane"
BEGIN, END = "_time_begin", "_time_end"
INSTANT = pl.Datetime("us", "UTC")
AXIS = "_time_axis"


@dataclass(frozen=True, slots=True)
class Results:
    """Results as pairs of a key and an emission instant, in order."""

    ids: Ints
    ends: Ints

    def only(self, requested: Flags) -> Results:
        """Return the results selected by a mask."""
        return Results(self.ids[requested], self.ends[requested])


@dataclass(frozen=True)
class Panes:
    """The panes of some windows: their partial states, results and retention.

    Args:
        keys: the columns of the group.
        timestamp: of the input.
        along: the column used as time axis instead.
        windows: the distinct windows.
        aggregates: the aggregates.
        partials: their states.
        is_key: True if the window is a key of the result.
        is_keyed: True if changes take effect at an instant apart from the row's time.
        is_retractable: True if rows may be retracted.
    """

    keys: tuple[str, ...]
    timestamp: str
    along: str | None
    windows: tuple[Continuous | Tumbling | Hopping, ...]
    aggregates: tuple[Aggregate, ...]
    partials: Partials
    is_key: bool
    is_keyed: bool
    is_retractable: bool

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The grid of each window."""
        return tuple(grid_of(window) for window in self.windows)

    @cached_property
    def _is_cumulative(self) -> bool:
        return any(grid.is_cumulative for grid in self.grids)

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of a pane."""
        entered = {UNTIL: pl.Int64()} if self.is_keyed else {}
        counts = dict.fromkeys(self._counts, pl.Int64())
        return {WINDOW: pl.Int8(), PANE: pl.Int64(), **entered, **counts, **self.partials.columns}

    @cached_property
    def _counts(self) -> list[str]:
        """The counts of a pane: net rows, and a checksum of later changes.

        A pane whose counts are all 0 is dropped. The end of a row cancels the beginning of another one in the net count, so what
        takes effect after its row's instant is also summed up with a number of its row: 0 only if all of it was retracted.
        """
        return [WEIGHT, ENDED] if self.is_keyed else [WEIGHT]

    @cached_property
    def positions(self) -> list[str]:
        """The columns that identify a pane within its window."""
        return [PANE, UNTIL] if self.is_keyed else [PANE]

    # rows to panes

    def is_partial(self, changes: pl.DataFrame) -> bool:
        """Return True if changes have been pre-aggregated by `combine`."""
        return PANE in changes.columns

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return partial panes of changes, not yet assigned to windows.

        Their length is the greatest common divisor of the pane lengths of all windows.
        """
        ordered = runs.ordered(self._placed(rows), [*self.keys, *self.positions])
        begins = runs.key_changes(ordered, self.keys) | runs.changes(
            *(ordered[name].to_numpy() for name in self.positions)
        )
        latest = pl.col(AXIS).filter(pl.col(WEIGHT) > 0).max().alias(self.timestamp)
        return self.partials.lift(
            ordered, begins, [pl.col(*self.keys, *self.positions).first(), latest, pl.col(*self._counts).sum()]
        )

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        axis = pl.col(self.along or self.timestamp)
        size = gcd(*(grid.size for grid in self.grids))
        entered = {UNTIL: pl.max_horizontal(axis, AT)} if self.is_keyed else {}
        positions = [(at.dt.epoch("us") // size * size).alias(name) for name, at in {PANE: axis, **entered}.items()]
        read = dict.fromkeys([*self.keys, *(at.of for _, at in self.partials.parts if at.of), SEQ, WEIGHT])
        placed = rows.select(*read, axis.alias(AXIS), axis.dt.epoch("us").alias(FIRST), *positions, AT)
        if self.is_keyed:
            later = pl.when(pl.col(AT) > pl.col(AXIS)).then(pl.col(WEIGHT) * _numbers(placed)).otherwise(0)
            placed = placed.with_columns(later.alias(ENDED))
        return placed.drop(AT)

    def for_windows(self, partial: pl.DataFrame) -> pl.DataFrame:
        """Return partial panes, with `_key_id`, once for each window."""
        return pl.concat([self._for_window(partial, number) for number in range(len(self.windows))])

    def _for_window(self, partial: pl.DataFrame, number: int) -> pl.DataFrame:
        grid = self.grids[number]
        at = pl.col(UNTIL if self.is_keyed and grid.is_cumulative else PANE)
        position = at // grid.size * grid.size
        entered = [position.alias(UNTIL)] if self.is_keyed and grid.is_cumulative else []
        needed = self._needed(number).columns
        unneeded = [
            pl.lit(None, dtype).alias(name) for name, dtype in self.partials.columns.items() if name not in needed
        ]
        panes = partial.with_columns(pl.lit(number, pl.Int8).alias(WINDOW), position.alias(PANE), *entered, *unneeded)
        return panes.select(ID, *self.columns)

    def _needed(self, number: int) -> Partials:
        window = self.windows[number]
        return self.partials.only(each for each in self.aggregates if self.window_of(each) == window)

    def window_of(self, aggregate: Aggregate) -> Continuous | Tumbling | Hopping:
        """Return the window of an aggregate: its own, or that of the groupby."""
        return aggregate.window or self.windows[0]

    def fold(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Return panes, old and new of some keys in any order, merged and in order."""
        ordered = runs.ordered(panes, [ID, WINDOW, *self.positions])
        begins = runs.changes(*(ordered[name].to_numpy() for name in (ID, WINDOW, *self.positions)))
        merged = self.partials.merge(
            ordered, begins, [pl.col(ID, WINDOW, *self.positions).first(), pl.col(*self._counts).sum()]
        )
        return merged.filter(pl.any_horizontal(pl.col(*self._counts) != 0))

    def merged(self, before: pl.DataFrame, added: pl.DataFrame) -> Merged:
        """Return panes with others merged in."""
        nowhere = np.empty(0, np.int64)
        return Merged(before, self.fold(pl.concat([before, added])), nowhere, nowhere)

    # the emission instants of results

    def results(self, panes: pl.DataFrame, low: Ints, high: Ints) -> Results:
        """Return the results due to panes, `low` < instant <= `high`, with bounds per key."""
        found = [self._window_results(panes, number, low, high) for number in range(len(self.windows))]
        ids, ends = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = order_of(ids, ends)
        ids, ends = ids[order], ends[order]
        return Results(ids, ends).only(runs.changes(ids, ends))

    def _window_results(self, panes: pl.DataFrame, number: int, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        ids, pane, entered = self._arrays(panes.filter(pl.col(WINDOW) == number))
        row, ends = self.grids[number].ends(ids, pane, entered, low[ids], high[ids])
        return ids[row], ends

    def due(self, panes: pl.DataFrame, after: int, keys: int) -> Ints:
        """Return for each key the instant of its first result after `after`; `LATER` if none."""
        due = np.full(keys, LATER)
        for number, grid in enumerate(self.grids):
            ids, pane, entered = self._arrays(panes.filter(pl.col(WINDOW) == number))
            np.minimum.at(due, ids, grid.due(pane, entered, after))
        return due

    def _arrays(self, panes: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
        pane = panes[PANE].to_numpy()
        return panes[ID].to_numpy().astype(np.int64), pane, panes[UNTIL].to_numpy() if self.is_keyed else pane

    # the values of results

    def values(self, panes: pl.DataFrame, results: Results, *, for_emission: bool = True) -> pl.DataFrame:
        """Return the rows of results.

        The columns are `_key_id`, `_time` (the instant), begin and end of the window if it is a key, and the aggregates.
        """
        columns: dict[str, pl.Series] = {}
        instants = pl.Series(TIME, results.ends).cast(INSTANT)
        for number, window in enumerate(self.windows):
            states = self._states(panes.filter(pl.col(WINDOW) == number), number, results)
            mine = [each for each in self.aggregates if self.window_of(each) == window]
            found = self.partials.results(states.with_columns(instants), mine, for_emission=for_emission)
            columns |= {column.name: column for column in found}
        return pl.DataFrame(
            [
                pl.Series(ID, results.ids.astype(np.uint32)),
                instants,
                *self._span(results),
                *(columns[each.into_field] for each in self.aggregates),
            ]
        )

    def _span(self, results: Results) -> list[pl.Series]:
        if not self.is_key:
            return []
        low, high = self.grids[0].covers(results.ends)
        # before year 1 there are no instants: no user's function or lookup could take such a begin
        return [pl.Series(BEGIN, np.maximum(low, epochs.FIRST)).cast(INSTANT), pl.Series(END, high).cast(INSTANT)]

    def _states(self, panes: pl.DataFrame, number: int, results: Results) -> pl.DataFrame:
        grid, partials = self.grids[number], self._needed(number)
        ids, pane, entered = self._arrays(panes)
        first, last = grid.covers(grid.current(results.ends))
        if grid.panes >= LEAST and not self.is_keyed:
            windows = Windowed(results.ids, first // grid.size, last // grid.size)
            return fold_by_tree(panes, ids, pane // grid.size, windows, partials, grid.panes)
        search = Sorted(ids, pane)
        low, high = search.first_at_or_after(results.ids, first), search.first_at_or_after(results.ids, last)
        if grid.is_cumulative:
            panes = partials.accumulate_in_order(
                panes.select(ID, WEIGHT, *partials.columns), ids, [pl.col(ID).first(), pl.col(WEIGHT).sum()]
            )
            low = np.maximum(high - 1, low)
        if not self.is_keyed or grid.is_cumulative:
            return fold(panes, low, high, partials)
        return fold(panes, low, high, partials, lambda asker, pane: entered[pane] <= results.ends[asker])

    # retention

    def forget(self, panes: pl.DataFrame, final: int, keys: int) -> pl.DataFrame:
        """Return panes without those needed only for final results at or before `final`.

        The newest of these results can still be computed.
        """
        emitted = np.full(keys, final)
        if not self.is_key:
            past = self.results(panes, np.full(keys, ALWAYS), emitted)
            emitted = np.full(keys, ALWAYS)
            np.maximum.at(emitted, past.ids, past.ends)
        mine = (panes.filter(pl.col(WINDOW) == number) for number in range(len(self.windows)))
        entries_left = pl.concat([self._forget_window(each, number, emitted) for number, each in enumerate(mine)])
        return runs.ordered(self._compacted(entries_left, final), [ID, WINDOW, *self.positions])

    def _forget_window(self, panes: pl.DataFrame, number: int, emitted: Ints) -> pl.DataFrame:
        grid = self.grids[number]
        ids, pane, _ = self._arrays(panes)
        if not grid.is_cumulative:
            return panes.filter(pane > emitted[ids] - grid.retention())
        absorbed = pane + grid.size <= emitted[ids]
        newest = np.full(len(emitted), ALWAYS)
        np.maximum.at(newest, ids[absorbed], pane[absorbed])
        position = pl.Series(PANE, np.where(absorbed, newest[ids], pane))
        merged = panes.with_columns(position, *([position.alias(UNTIL)] if self.is_keyed else []))
        spans = [pl.col(ID, WINDOW, *self.positions).first(), pl.col(*self._counts).sum()]
        begins = runs.changes(ids, position.to_numpy())
        found = self.partials.accumulate_in_order(merged, runs.numbers(begins), spans)
        return found[np.append(np.flatnonzero(begins)[1:], len(found)) - 1] if len(found) else found

    def _compacted(self, panes: pl.DataFrame, final: int) -> pl.DataFrame:
        if self.is_keyed or not self.is_retractable:
            return panes
        sizes = np.array([grid.size for grid in self.grids], np.int64)
        compacted = panes[PANE].to_numpy() + sizes[panes[WINDOW].to_numpy()] <= final
        return pl.concat([self.partials.settle(panes.filter(compacted)), panes.filter(~compacted)])

    # the entries near others

    def entries(self, state: State) -> Entries:
        """Return the stored panes of an operator that emits results.

        Apart where each result has a row of its own and depends on a bounded time.
        """
        is_near = self.is_key and isinstance(self.grids[0], HoppingGrid)
        return nearby(state, self) if is_near else whole(state, self, self.columns)

    @property
    def stored(self) -> dict[str, pl.DataType]:
        """The columns of a stored pane, whose place is its begin."""
        return {name: dtype for name, dtype in self.columns.items() if name != PANE}

    @property
    def expiry(self) -> tuple[str, int]:
        """The column, and how many µs after it a pane is final."""
        return TIME, self.grids[0].retention()

    def placed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return panes as they are stored."""
        return entries.select(ID, pl.col(PANE).alias(TIME), *self.stored)

    def restored(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return stored panes as panes."""
        return found.rename({TIME: PANE}).select(ID, *self.columns)

    @property
    def is_wide(self) -> bool:
        """False: a pane is within its windows."""
        return False

    def around(self, added: pl.DataFrame) -> KeyRanges:
        """Return the ranges of panes that concern added ones.

        These are the panes of their windows, and of the windows before these.
        """
        reach = self.grids[0].retention()
        places = added.select(ID, PANE).unique().sort(ID, PANE)
        ids, pane = places[ID].to_numpy().astype(np.int64), places[PANE].to_numpy()
        starts = np.flatnonzero(runs.changes(ids) | (np.diff(pane, prepend=pane[:1]) > 2 * reach))
        if not len(starts):
            return KeyRanges(ids, pane, pane)
        return KeyRanges(ids[starts], pane[starts] - reach, np.maximum.reduceat(pane, starts) + reach)

    def between(self, mark: int, horizon: int) -> tuple[int, int]:
        """Return the range of panes with results in a time.

        The time is after `mark` and up to `horizon`.
        """
        return mark - self.grids[0].retention(), horizon

    def changed(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
        """Return the addresses of the panes that changed."""
        return added.select(ID, pl.col(PANE).alias(TIME)).unique()

    # emission

    def corrections(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, mark: int) -> pl.DataFrame:
        """Return the changes to results at or before `mark` caused by added panes."""
        keys = int(added[ID].to_numpy().max(initial=0)) + 1
        all_past, until_mark = np.full(keys, ALWAYS), np.full(keys, mark)
        ever = self.results(added, all_past, np.full(keys, LATER))
        touched = ever.only(ever.ends <= mark)
        if not len(touched.ids):
            return self._changes(self.values(after.clear(), touched))
        low, high = np.full(keys, LATER), np.full(keys, ALWAYS)
        np.minimum.at(low, touched.ids, touched.ends)
        # rows count until they leave the window, maybe after the mark: results in between are touched as well
        reached = np.full(len(ever.ids), mark) if self._is_cumulative else np.minimum(ever.ends, mark)
        np.maximum.at(high, ever.ids, reached)
        known = [self._results_of_touched(panes, all_past, until_mark, touched) for panes in (before, after)]
        if not self.is_key:
            low, high = _widened(known, low, high)
        spans = [each.only((low[each.ids] <= each.ends) & (each.ends <= high[each.ids])) for each in known]
        old, new = (self._changes(self.values(panes, each)) for panes, each in zip((before, after), spans, strict=True))
        return difference(old, new)

    def _results_of_touched(self, panes: pl.DataFrame, low: Ints, high: Ints, touched: Results) -> Results:
        """Return all results, within bounds, of the keys with touched results."""
        return self.results(panes.filter(pl.col(ID).is_in(touched.ids)), low, high)

    def emitted(self, panes: pl.DataFrame, mark: int, horizon: int) -> pl.DataFrame:
        """Return the changes of results after `mark` and at or before `horizon`."""
        keys = int(panes[ID].to_numpy().max(initial=0)) + 1
        every = self.results(panes, np.full(keys, ALWAYS), np.full(keys, horizon))
        newest = np.full(keys, LATER)
        old = every.only(every.ends <= mark)
        newest[old.ids] = old.ends
        before = every.only((every.ends == newest[every.ids]) & (not self.is_key))
        after = every.only((every.ends > mark) | ((every.ends == newest[every.ids]) & (not self.is_key)))
        return difference(self._changes(self.values(panes, before)), self._changes(self.values(panes, after)))

    def _changes(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Return the changes of some results.

        With the window as a key each result is a row; otherwise the next result supersedes it.
        """
        if self.is_key:
            return versions.with_columns(pl.col(TIME).alias(AT), pl.lit(1, pl.Int64).alias(WEIGHT))
        rows = versions.with_columns(pl.col(ID).alias(KEY), pl.lit(value=True).alias(ALIVE), pl.col(TIME).alias(END))
        return changelog(rows).drop(KEY).rename({END: TIME})


def _numbers(rows: pl.DataFrame) -> pl.Series:
    """Return a positive hash of the instant, number and effect of each row.

    Without the effect a row that comes after its instant and ends in the same pane would not have been there.

    It has 40 bits, so that millions of them can be summed up.
    """
    effects = hash64(rows[AT].dt.epoch("us")).reinterpret(signed=True)
    instants = hash64((rows[FIRST] ^ effects).alias(FIRST)).reinterpret(signed=True)
    numbered = hash64((rows[SEQ] ^ instants).alias(ENDED))
    return (numbered // 2**24).cast(pl.Int64) + 1


def _widened(known: list[Results], low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return ranges widened by the adjacent results on both sides.

    The adjacent results are needed to see which result supersedes which.
    """
    before, after = np.full(len(low), ALWAYS), np.full(len(high), LATER)
    for each in known:
        earlier, later = each.only(each.ends < low[each.ids]), each.only(each.ends > high[each.ids])
        np.maximum.at(before, earlier.ids, earlier.ends)
        np.minimum.at(after, later.ids, later.ends)
    return before, after
