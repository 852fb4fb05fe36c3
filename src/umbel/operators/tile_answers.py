"""What tiles answer: the values of a key as of an instant, from the entries kept or from the changes they were made of.

Both ways place every row at an instant, its own or the middle of its tile's span, and count those placed in the window. So they
give the same answer, rounding included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.operators import runs
from umbel.operators.folding import fold
from umbel.operators.groups import Groups
from umbel.operators.partials import Partials
from umbel.operators.points import FOUND, HISTORY, TIME, Points, shown
from umbel.operators.runs import Flags, Ints, Sorted
from umbel.operators.tile_changes import Effects, Moments, middle
from umbel.operators.tiles import Tiles, crowded
from umbel.operators.tiling import BASE, FIRST, ID, LAST, NEVER, SINCE, UNTIL, WINDOW
from umbel.types.schema import WEIGHT
from umbel.types.windows import SECOND, Continuous

PLACE = "_time_place"

__all__ = ["FOUND", "HISTORY", "answer", "answer_from_changes", "moments"]


@dataclass(frozen=True, slots=True)
class Placed:
    """The entries of one window, sorted by key and place.

    Args:
        states: their states and weights.
        ids: of their keys.
        place: the instant that decides whether the window reaches it.
        since: when the first of its changes takes effect.
        until: when the last one does.
        grain: how far from its instants an entry may be placed.
        is_running: whether each holds all entries before it as well.
    """

    states: pl.DataFrame
    ids: Ints
    place: Ints
    since: Ints
    until: Ints
    grain: int
    is_running: bool = False


def answer(tiles: Tiles, entries: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point from the entries kept.

    Args:
        tiles: what the entries belong to.
        entries: with `_key_id`, sorted as they are kept.
        asked: `_key_id` and `_time`.

    Returns:
        One row for each point: `_found`, `_history` (the entries do not know: ask the changes), `_changed` (since when the
        values have been these) and the aggregates.
    """
    points = Points.of(asked)
    seen = SINCE if tiles.is_keyed else FIRST
    lived = (pl.col(WINDOW) == BASE) | tiles.has_lived()
    born = _born(entries.filter(lived), seen, points)
    base = entries.filter(pl.col(WINDOW) == BASE)
    horizon = np.full(_size(points, entries), -NEVER)
    horizon[base[ID].to_numpy()] = base[LAST].to_numpy()
    found = born <= points.at
    placed = (_kept(tiles, entries, number) for number in range(len(tiles.windows)))
    values, cut = _values(tiles, placed, points, asked[TIME])
    history = cut | (found & (points.at < horizon[points.ids]))
    changed = _changes(tiles, entries).before(points)
    return shown(tiles.aggregates, values, found, changed).insert_column(1, pl.Series(HISTORY, history))


def answer_from_changes(tiles: Tiles, changes: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each point as `answer` would have at that instant, once everything up to it had arrived.

    Args:
        tiles: what would have been kept.
        changes: of the input, those of the keys asked at least.
        asked: the key columns and `_time`.

    Returns:
        One row for each point: `_found`, `_changed` and the aggregates.
    """
    keys = Groups(asked, tiles.keys)
    points = Points.of(keys.numbered(asked))
    partial = _lifted(tiles, changes, keys)
    born = _born(partial.filter(pl.col(WEIGHT) != 0), SINCE if tiles.is_keyed else FIRST, points)
    exact = [_exact(tiles, partial, number) for number in range(len(tiles.windows))]
    values, _ = _values(tiles, (_replayed(tiles, each, points) for each in exact), points, asked[TIME])
    changed = np.maximum.reduce([each.changes(tiles).before(points) for each in exact])
    return shown(tiles.aggregates, values, born <= points.at, changed)


def moments(tiles: Tiles, changes: pl.DataFrame) -> pl.DataFrame:
    """Return the key columns and `_time`, every instant at which the values of a key change, once each."""
    keys = Groups(changes, tiles.keys)
    partial = _lifted(tiles, changes, keys)
    found = (_exact(tiles, partial, number).changes(tiles).frame for number in range(len(tiles.windows)))
    return keys.named(pl.concat(found).unique())


def _lifted(tiles: Tiles, changes: pl.DataFrame, keys: Groups) -> pl.DataFrame:
    """Return the changes of some keys as partial entries, without what was taken back."""
    partial = keys.numbered(tiles.lift(keys.known(changes)))
    return partial.filter(~tiles.is_void()) if tiles.is_keyed else partial


# entries in their places


def _kept(tiles: Tiles, entries: pl.DataFrame, number: int) -> Placed:
    forever = tiles.windows[number].is_forever
    mine = entries.filter((pl.col(WINDOW) == number) | ((pl.col(WINDOW) == BASE) & forever))
    first, last = mine[FIRST].to_numpy(), mine[LAST].to_numpy()
    place = np.zeros(len(mine), np.int64) if forever else middle(first, last)
    since, until = (mine[name].to_numpy() for name in (SINCE, UNTIL)) if tiles.is_keyed else (first, last)
    return Placed(mine, mine[ID].to_numpy().astype(np.int64), place, since, until, int(tiles.grains[number]))


@dataclass(frozen=True, slots=True)
class Exact:
    """Changes where the entries of one window would have them, each on its own, sorted by key and time.

    Args:
        number: of the window.
        entries: the changes as entries.
        ids: of their keys.
        place: the instant that decides whether the window reaches it.
        until: when it takes effect.
    """

    number: int
    entries: pl.DataFrame
    ids: Ints
    place: Ints
    until: Ints

    def changes(self, tiles: Tiles) -> Moments:
        """Return the instants at which they change the values of the window."""
        window, weight = np.full(len(self.ids), self.number), self.entries[WEIGHT].to_numpy()
        return Moments.of(self.ids, Effects.of(tiles, self.ids, window, self.place, self.until, self.until, weight))


def _exact(tiles: Tiles, partial: pl.DataFrame, number: int) -> Exact:
    entries = tiles.for_window(partial, number).sort(ID, FIRST)
    ids = entries[ID].to_numpy().astype(np.int64)
    until = entries[UNTIL if tiles.is_keyed else LAST].to_numpy()
    return Exact(number, entries, ids, _rounded(tiles, entries, ids, number), until)


def _replayed(tiles: Tiles, exact: Exact, points: Points) -> Placed:
    """Return changes where the entries of a window would have them, in as few pieces as the points allow."""
    number, entries, ids, until = exact.number, exact.entries, exact.ids, exact.until
    forever = tiles.windows[number].is_forever
    place = np.zeros(len(ids), np.int64) if forever else exact.place
    order = np.lexsort((points.at, points.ids))
    asked = Sorted(points.ids[order], points.at[order])
    piece = asked.first_at_or_after(ids, until)
    wanted = piece < asked.first_at_or_after(ids + 1, np.full(len(ids), -NEVER))
    order = np.lexsort((until, piece, place, ids))
    order = order[wanted[order]]
    begins = runs.changes(ids[order], place[order], piece[order])
    partials = _needed(tiles, number)
    columns = {PLACE: place[order], UNTIL: until[order]}
    states = (
        entries[order].select(ID, WEIGHT, *partials.columns).with_columns(pl.Series(*each) for each in columns.items())
    )
    spans = [pl.col(ID, PLACE).first(), pl.col(UNTIL).max(), pl.col(WEIGHT).sum()]
    pieces = partials.merge(states, begins, spans)
    if forever:
        pieces = partials.accumulate(pieces, pieces[ID].to_numpy(), spans)
    last = pieces[UNTIL].to_numpy()
    where = last if forever else pieces[PLACE].to_numpy()
    return Placed(pieces, pieces[ID].to_numpy().astype(np.int64), where, last, last, int(tiles.grains[number]), forever)


def _rounded(tiles: Tiles, entries: pl.DataFrame, ids: Ints, number: int) -> Ints:
    """Return the place of each of some exact entries in order: its instant, or the middle of its crowded tile."""
    first = entries[FIRST].to_numpy()
    tile = runs.changes(ids, first // tiles.grains[number])
    whole = crowded(tile, tile | runs.changes(first), tiles.tiling.exact)
    starts = np.flatnonzero(tile)
    ends = np.append(starts[1:], len(first)) - 1
    halfway = np.repeat(middle(first[starts], first[ends[: len(starts)]]), runs.lengths(tile))
    return np.where(whole, halfway, first)


def _changes(tiles: Tiles, entries: pl.DataFrame) -> Moments:
    """Return the instants at which entries, sorted as they are kept, change the values of their keys."""
    ids, window, first, last, weight = (entries[name].to_numpy() for name in (ID, WINDOW, FIRST, LAST, WEIGHT))
    since, until = (entries[name].to_numpy() for name in ((SINCE, UNTIL) if tiles.is_keyed else (LAST, LAST)))
    ids = ids.astype(np.int64)
    return Moments.of(ids, Effects.of(tiles, ids, window, middle(first, last), since, until, weight))


# points and entries together


def _values(
    tiles: Tiles, placed: Iterator[Placed], points: Points, instants: pl.Series
) -> tuple[dict[str, pl.Series], Flags]:
    values: dict[str, pl.Series] = {}
    cut = np.zeros(len(points.at), np.bool_)
    for number, entries in enumerate(placed):
        window = tiles.windows[number]
        states, crossed = _folded(entries, points, window, _needed(tiles, number))
        cut |= crossed
        mine = [each for each in tiles.aggregates if each.window == window]
        results = tiles.partials.results(states.with_columns(instants.alias(TIME)), mine)
        values |= {column.name: column for column in results}
    return values, cut


def _folded(entries: Placed, points: Points, window: Continuous, partials: Partials) -> tuple[pl.DataFrame, Flags]:
    """Return the state of each point in a window, null where it holds nothing, and whether an entry is cut by the point."""
    low, high = _ranges(entries, points, window)
    cut = np.zeros(len(points.at), np.bool_)

    def counted(owner: Ints, entry: Ints) -> Flags:
        at = points.at[owner]
        is_in: Flags = entries.until[entry] <= at
        cut[owner[~is_in & (entries.since[entry] <= at)]] = True
        return is_in

    return fold(entries.states, low, high, partials, counted), cut


def _ranges(entries: Placed, points: Points, window: Continuous) -> tuple[Ints, Ints]:
    """Return for each point the range of the entries that may count."""
    search = Sorted(entries.ids, entries.place)
    if entries.is_running:
        high = search.first_after(points.ids, points.at)
        return np.maximum(high - 1, search.first_at_or_after(points.ids, np.full(len(points.at), -NEVER))), high
    if window.duration_us is None:
        ends = np.full(len(points.at), NEVER)
        return search.first_at_or_after(points.ids, -ends), search.first_after(points.ids, ends)
    begin = points.at // SECOND * SECOND - window.duration_us
    return search.first_at_or_after(points.ids, begin), search.first_after(points.ids, points.at + entries.grain)


def _needed(tiles: Tiles, number: int) -> Partials:
    return tiles.partials.only(each for each in tiles.aggregates if each.window == tiles.windows[number])


def _size(points: Points, entries: pl.DataFrame) -> int:
    return int(max(points.ids.max(initial=-1), entries[ID].to_numpy().max(initial=0))) + 1


def _born(lived: pl.DataFrame, seen: str, points: Points) -> Ints:
    """Return for each point the first instant of its key."""
    born = np.full(_size(points, lived), NEVER)
    np.minimum.at(born, lived[ID].to_numpy(), lived[seen].to_numpy())
    found: Ints = born[points.ids]
    return found
