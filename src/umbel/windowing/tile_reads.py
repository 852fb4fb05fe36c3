"""Point lookups in tiles: values of keys as of instants.

They are computed from the stored entries or from the changes the entries were made of. Both ways place every row at an instant,
its own or the middle of its tile's span, and count the rows placed in the window. So they return the same values, rounding
included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from umbel.aggregates.point_states import Spans
from umbel.changes import runs
from umbel.changes.runs import Flags, Ints
from umbel.state.keys import encode_keys
from umbel.state.runs.sorting import order_of
from umbel.state.tables import State
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND
from umbel.windowing.groups import KEY, Groups, with_ids
from umbel.windowing.partials import Partials
from umbel.windowing.points import HISTORY, TIME, Points, RequestedColumns, shown
from umbel.windowing.stored_answer import Completion, StoredAnswer, cut_entries
from umbel.windowing.tile_folds import Placed, folded, portions
from umbel.windowing.tiles import Effects, Moments, Tiles, exceeds, middle
from umbel.windowing.tiling import BASE, CHECKSUM, ENDED, FIRST, ID, LAST, NEVER, RETRACTED, SINCE, UNTIL, WINDOW

POSITION, TILE = "_time_place", "_time_tile"
ROW = "_at_row"


@dataclass(frozen=True, slots=True)
class Exact:
    """Single changes at the positions of the entries of one window.

    They are sorted by key and time.

    Args:
        number: of the window.
        entries: the changes as entries.
        ids: of their keys.
        position: the instant, in µs, that determines whether a change is in the window.
        until: the instant it takes effect.
    """

    number: int
    entries: pl.DataFrame
    ids: Ints
    position: Ints
    until: Ints

    def changes(self, tiles: Tiles) -> Moments:
        """Return the instants at which they change the values of the window."""
        window, weight = np.full(len(self.ids), self.number), self.entries[WEIGHT].to_numpy()
        return Moments.of(self.ids, Effects.of(tiles, self.ids, window, self.position, self.until, self.until, weight))


@dataclass(frozen=True, slots=True)
class TileReader:
    """Point lookups.

    Args:
        tiles: the layout of the entries.
        answered: the columns to compute.
    """

    tiles: Tiles
    answered: RequestedColumns

    def lookup(self, state: State, points: pl.DataFrame) -> StoredAnswer:
        """Return the value of each point from the state.

        Args:
            state: of the operator.
            points: `_key` and `_time`.
        """
        keys = points[KEY].unique().sort()
        entries = _positioned(self.tiles.stored(state).numbered(keys))
        queries = with_ids(points.select(KEY, TIME), keys)
        report = self.answer(entries, queries)
        if self.tiles.is_keyed or not report[HISTORY].any():
            return StoredAnswer(report)
        partly = report[HISTORY] & ~pl.Series(self._are_behind(entries, Points.of(queries)))
        cut = cut_entries(entries, queries.filter(partly))
        if cut.is_empty():
            return StoredAnswer(report)
        first, last = cut.select(pl.col(FIRST).min(), pl.col(LAST).max()).row(0)

        def completed(changes: pl.DataFrame) -> pl.DataFrame:
            divided = self._divided(entries, cut, changes, keys)
            answered = self.answer(divided, queries.filter(partly)).insert_column(0, partly.arg_true().alias(ROW))
            others = report.with_row_index(ROW).filter(~partly)
            return pl.concat([others, answered.select(others.columns)]).sort(ROW).drop(ROW)

        return StoredAnswer(report, Completion(partly, first, last, completed))

    def answer(self, entries: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
        """Return the value of each point from the stored entries.

        Args:
            entries: with `_key_id` and the position, in stored order.
            queries: `_key_id` and `_time`.

        Returns:
            One row for each point: `_at_found`, `_at_history` (the entries do not have the value; `replay` must compute it),
            `_at_changed` (the instant since when the values have been unchanged) and the requested aggregates.
        """
        points = Points.of(queries)
        seen = SINCE if self.tiles.is_keyed else FIRST
        born = _born(entries.filter(self.tiles.existed()), seen, points)
        found = born <= points.at
        placed = (self._retained(entries, number) for number in range(len(self.tiles.windows)))
        values, cut = self._values(placed, points, queries[TIME])
        history = cut | (found & self._are_behind(entries, points)) | self._are_unknown(entries, points)
        changed = self._changed(map(self._changes, [entries]), points, found, born)
        return shown(self.answered.aggregates, values, found, changed).insert_column(1, pl.Series(HISTORY, history))

    def replay(self, changes: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
        """Return the value of each point from the changes of the input.

        It equals the value `answer` would return at that instant, once all changes up to it have arrived.

        Args:
            changes: of the input, at least those of the queried keys.
            queries: the key columns and `_time`.

        Returns:
            One row for each point: `_at_found`, `_at_changed` and the aggregates.
        """
        keys = Groups(queries, self.tiles.keys)
        points = Points.of(keys.numbered(queries))
        partial = self._lifted(changes, keys)
        born = _born(partial.filter(pl.col(WEIGHT) != 0), SINCE if self.tiles.is_keyed else FIRST, points)
        exact = [self._exact(partial, number) for number in range(len(self.tiles.windows))]
        values, _ = self._values((self._replayed(each, points) for each in exact), points, queries[TIME])
        found = born <= points.at
        changed = self._changed((each.changes(self.tiles) for each in exact), points, found, born)
        return shown(self.answered.aggregates, values, found, changed)

    def moments(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return every instant at which the values of a key change, once each.

        The columns are the key columns and `_time`.
        """
        partial = self._lifted(changes, keys := Groups(changes, self.tiles.keys))
        found = (self._exact(partial, number).changes(self.tiles).frame for number in range(len(self.tiles.windows)))
        return keys.named(pl.concat(found).unique())

    def _lifted(self, changes: pl.DataFrame, keys: Groups) -> pl.DataFrame:
        """Return the changes of some keys as partial entries, without retracted ones."""
        partial = keys.numbered(self.tiles.lift(keys.known(changes)))
        return partial.filter(~self.tiles.is_empty_entry()) if self.tiles.is_keyed else partial

    def _are_behind(self, entries: pl.DataFrame, points: Points) -> Flags:
        """Return a mask of the points before the last instant of their key's base."""
        base = entries.filter(pl.col(WINDOW) == BASE)
        horizon = np.full(_size(points, entries), -NEVER)
        horizon[base[ID].to_numpy()] = base[LAST].to_numpy()
        return points.at < horizon[points.ids]

    def _divided(
        self, entries: pl.DataFrame, cut: pl.DataFrame, changes: pl.DataFrame, keys: pl.Series
    ) -> pl.DataFrame:
        """Return entries with their changes in place of some of them, at their positions.

        Args:
            entries: in stored order.
            cut: those that are replaced.
            changes: of the input, at least those of these entries.
            keys: the encoded keys, by their number.
        """
        lifted = self.tiles.lift(changes)
        encoded = lifted.with_columns(encode_keys(lifted.select(self.tiles.keys)).alias(KEY))
        partial = encoded.join(pl.DataFrame({KEY: keys}).with_row_index(ID), on=KEY, how="inner")
        spans = self._with_tile(cut).select(
            ID, WINDOW, TILE, POSITION, pl.col(FIRST).alias("_from"), pl.col(LAST).alias("_to")
        )
        exact = self._with_tile(self.tiles.for_windows(partial)).join(spans, on=[ID, WINDOW, TILE], how="inner")
        exact = exact.filter(pl.col(FIRST).is_between("_from", "_to")).select(entries.columns)
        whole = entries.join(cut, on=[ID, WINDOW, FIRST], how="anti")
        return pl.concat([whole, exact]).sort(ID, WINDOW, FIRST, maintain_order=True)

    def _with_tile(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return entries with the number of their window's tile: none reaches over two."""
        grains = self.tiles.grains[entries[WINDOW].to_numpy()]
        return entries.with_columns(pl.Series(TILE, entries[FIRST].to_numpy() // grains, pl.Int64))

    def _retained(self, entries: pl.DataFrame, number: int) -> Placed:
        forever = self.tiles.windows[number].is_forever
        mine = entries.filter((pl.col(WINDOW) == number) | ((pl.col(WINDOW) == BASE) & forever))
        first, last = mine[FIRST].to_numpy(), mine[LAST].to_numpy()
        position = np.zeros(len(mine), np.int64) if forever else mine[POSITION].to_numpy()
        since, until = (mine[name].to_numpy() for name in (SINCE, UNTIL)) if self.tiles.is_keyed else (first, last)
        return Placed(
            mine, mine[ID].to_numpy().astype(np.int64), position, since, until, int(self.tiles.grains[number])
        )

    def _exact(self, partial: pl.DataFrame, number: int) -> Exact:
        entries = self.tiles.for_window(partial, number).sort(ID, FIRST)
        ids = entries[ID].to_numpy().astype(np.int64)
        until = entries[UNTIL if self.tiles.is_keyed else LAST].to_numpy()
        return Exact(number, entries, ids, self._rounded(entries, ids, number, until), until)

    def _replayed(self, exact: Exact, points: Points) -> Placed:
        """Return changes merged into the pieces of a window's entries that the points distinguish.

        There are as few pieces as the points allow.
        """
        number, entries, ids, until = exact.number, exact.entries, exact.ids, exact.until
        forever = self.tiles.windows[number].is_forever
        position = np.zeros(len(ids), np.int64) if forever else exact.position
        queries = points.sorted()
        piece = queries.first_at_or_after(ids, until)
        requested = piece < queries.first_at_or_after(ids + 1, np.full(len(ids), -NEVER))
        order = order_of(ids, position, piece, until)
        order = order[requested[order]]
        begins = runs.changes(ids[order], position[order], piece[order])
        partials = self._needed(number)
        columns = {POSITION: position[order], UNTIL: until[order]}
        states = (
            entries[order]
            .select(ID, WEIGHT, *partials.columns)
            .with_columns(pl.Series(*each) for each in columns.items())
        )
        spans = [pl.col(ID, POSITION).first(), pl.col(UNTIL).max(), pl.col(WEIGHT).sum()]
        pieces = partials.merge(states, begins, spans)
        if forever:
            pieces = partials.accumulate(pieces, pieces[ID].to_numpy(), spans)
        last = pieces[UNTIL].to_numpy()
        where = last if forever else pieces[POSITION].to_numpy()
        return Placed(
            pieces, pieces[ID].to_numpy().astype(np.int64), where, last, last, int(self.tiles.grains[number]), forever
        )

    def _rounded(self, entries: pl.DataFrame, ids: Ints, number: int, until: Ints) -> Ints:
        """Return the position of each of some exact entries in order.

        It is the entry's instant, or the middle of its tile if that is collapsed.
        """
        first = entries[FIRST].to_numpy()
        tile = runs.changes(ids, first // self.tiles.grains[number])
        instant, starts = tile | runs.changes(first), np.flatnonzero(tile)
        late = np.zeros(len(first), np.bool_)
        if self.tiles.is_keyed:
            late = self.tiles.are_late(np.full(len(first), number), first, until)
        whole = exceeds(tile, instant & runs.any_in_run(instant, ~late), self.tiles.tiling.exact)
        if not whole.any():
            return first
        low = np.minimum.reduceat(np.where(late, NEVER, first), starts)
        high = np.maximum.reduceat(np.where(late, -NEVER, first), starts)
        return np.where(whole, np.repeat(middle(low, high), runs.lengths(tile)), first)

    def _changed(self, moments: Iterable[Moments], points: Points, found: Flags, born: Ints) -> Ints | None:
        """Return the last change of each point's values; None if not requested."""
        if not self.answered.has_timestamp:
            return None
        last: Ints = np.maximum.reduce([np.where(found, born, -NEVER), *(each.before(points) for each in moments)])
        return last

    def _changes(self, entries: pl.DataFrame) -> Moments:
        """Return the instants at which entries, in stored order, change their keys' values."""
        ids, window, position, weight = (entries[name].to_numpy() for name in (ID, WINDOW, POSITION, WEIGHT))
        since, until = (entries[name].to_numpy() for name in ((SINCE, UNTIL) if self.tiles.is_keyed else (LAST, LAST)))
        ids = ids.astype(np.int64)
        return Moments.of(ids, Effects.of(self.tiles, ids, window, position, since, until, weight))

    def _are_unknown(self, entries: pl.DataFrame, points: Points) -> Flags:
        """Return a mask of the points whose values only history knows; see `are_unknown`."""
        mask = np.zeros(len(points.at), np.bool_)
        if not self.tiles.is_keyed or not (retracted := entries[RETRACTED].to_numpy()).any():
            return mask
        ids = entries[ID].to_numpy().astype(np.int64)
        (requested,) = np.isin(points.ids, ids[retracted]).nonzero()
        low, high = (np.searchsorted(ids, points.ids[requested], side) for side in ("left", "right"))
        owners, rows = runs.expand(low, high)
        mask[requested] = are_unknown(
            self.tiles, Spans(owners, len(requested)), points.at[requested], lambda name: entries[name].to_numpy()[rows]
        )
        return mask

    def _values(
        self, placed: Iterator[Placed], points: Points, instants: pl.Series
    ) -> tuple[dict[str, pl.Series], Flags]:
        values: dict[str, pl.Series] = {}
        cut = np.zeros(len(points.at), np.bool_)
        for number, entries in enumerate(placed):
            window, found = self.tiles.windows[number], list[list[pl.Series]]()
            mine = [each for each in self.answered.aggregates if each.window == window]
            for part in portions(entries, points, window):
                states, crossed = folded(entries, points.part(part), window, self._needed(number))
                cut[part] |= crossed
                found.append(self.tiles.partials.results(states.with_columns(instants[part].alias(TIME)), mine))
            values |= {columns[0].name: pl.concat(columns) for columns in zip(*found, strict=True)}
        return values, cut

    def _needed(self, number: int) -> Partials:
        window = self.tiles.windows[number]
        return self.tiles.partials.only(each for each in self.answered.aggregates if each.window == window)


def are_unknown(tiles: Tiles, spans: Spans, at: Ints, read: Callable[[str], Any]) -> Flags:
    """Return a mask of the points whose values only history knows.

    The instants of an entry may be those of retracted effects. That matters where such an entry may have changed the values
    last, may be all there is of its key, or is about to leave its window.

    Args:
        tiles: the layout of the entries.
        spans: the entries of the points' keys, in stored order.
        at: the instant of each point, µs.
        read: returns a column of the entries.
    """
    window, first, last, since, until = (read(name) for name in (WINDOW, FIRST, LAST, SINCE, UNTIL))
    weight, now, length = np.ascontiguousarray(read(WEIGHT)), spans.spread(at), tiles.lengths[window]
    retracted = read(RETRACTED) != 0
    here, left = retracted & (since <= now), last + length + SECOND
    effects = Effects.of(tiles, spans.owners, window, middle(first, last), since, until, weight).latest(now)
    unsure = np.where(here, np.maximum(effects, np.where(left <= now, left, -NEVER)), -NEVER)
    sure = np.where(retracted, -NEVER, effects)
    existed = ~retracted & ((window == BASE) | (weight != 0) | (read(ENDED) != 0) | (read(CHECKSUM) != 0))
    leaving = here & (first + length <= now) & (now <= left)
    mask: Flags = spans.largest(unsure, -NEVER) >= spans.largest(sure, -NEVER)
    mask |= spans.least(np.where(existed, since, NEVER), NEVER) > at
    mask |= spans.largest(leaving, empty=False)
    return mask & spans.largest(here, empty=False)


def _positioned(entries: pl.DataFrame) -> pl.DataFrame:
    """Return entries with the instant that determines whether they are in their window."""
    position = middle(*(entries[name].to_numpy() for name in (FIRST, LAST)))
    return entries.with_columns(pl.Series(POSITION, position, pl.Int64))


def _size(points: Points, entries: pl.DataFrame) -> int:
    return int(max(points.ids.max(initial=-1), entries[ID].to_numpy().max(initial=0))) + 1


def _born(existed: pl.DataFrame, seen: str, points: Points) -> Ints:
    """Return for each point the first instant of its key."""
    born = np.full(_size(points, existed), NEVER)
    np.minimum.at(born, existed[ID].to_numpy(), existed[seen].to_numpy())
    found: Ints = born[points.ids]
    return found
