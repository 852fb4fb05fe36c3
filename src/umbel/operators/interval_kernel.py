"""The table-table join kernel: one row per overlap of a left and a right lifetime.

Join keys are numbers, left rows and right versions indices into frames: columns are read where rows are compared or emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.numbered import (
    LOWEST,
    NEVER,
    Versions,
    advanced,
    are_equal,
    identities,
    instants,
    micros,
    sequence,
    taken,
)
from umbel.changes.runs import Flags, Ints
from umbel.changes.versions import ALIVE, KEY, TIME, consolidate
from umbel.state.collected import CollectedTable
from umbel.state.numbered_keys import KeyRanges, NumberedKeys
from umbel.state.runs.sorting import gathered, order_of
from umbel.state.tables import TimedTable
from umbel.types.schema import AT, WEIGHT


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Distinct left rows with their lifetimes before and after a batch.

    They are sorted by key and time.

    Args:
        owners: the number of each one's key.
        rows: the index of each one's row in a frame.
        before: begin and end of each before, `NEVER` for none.
        after: the same afterwards.
    """

    owners: Ints
    rows: Ints
    before: tuple[Ints, Ints]
    after: tuple[Ints, Ints]

    def where(self, mask: Flags) -> Lifetimes:
        """Return some of the lifetimes."""
        before, after = ((begin[mask], end[mask]) for begin, end in (self.before, self.after))
        return Lifetimes(self.owners[mask], self.rows[mask], before, after)


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Overlaps of left lifetimes with right versions, sorted by lifetime and begin.

    Args:
        lives: the index of each one's left lifetime.
        begins: in µs.
        ends: in µs, `NEVER` for none.
        rows: the index of the right row, -1 where there is none.
    """

    lives: Ints
    begins: Ints
    ends: Ints
    rows: Ints


def step(
    left: pl.DataFrame,
    right: pl.DataFrame,
    lifetimes: CollectedTable,
    versions_table: TimedTable,
    fields: Sequence[str],
    *,
    inner: bool,
    timestamp: str,
) -> pl.DataFrame:
    """Return the changes of the joined rows.

    Of a left row that changed, all overlaps are computed before and after; of the others only those at changed right rows.

    Args:
        left: changes with `_key` (the join key) and `_time` (the left row's timestamp).
        right: changes with `_key`, already in `versions_table`.
        lifetimes: the left rows' beginnings and ends; written.
        versions_table: the right dataset's version history.
        fields: right columns in the output.
        inner: True if the part of a lifetime without a right row is dropped.
        timestamp: the left's timestamp column; in the result, the begin of the overlap.
    """
    keys, numbers = NumberedKeys.of(pl.concat([left[KEY], right[KEY]]))
    left_owners, right_owners = numbers[: left.height], numbers[left.height :]
    first, last = _extent(len(keys.keys), right_owners, micros(right, AT))
    lives, left_rows = _lives(left, left_owners, keys, first, lifetimes)
    number, stored = _versions(versions_table, keys, lives, first, last)
    columns = [name for name in stored.columns if name not in (TIME, ALIVE)]
    right_rows = pl.concat([stored.select(columns), right.select(columns)])
    versions = Versions.of(stored, number)
    weights = right[WEIGHT].to_numpy()
    changes = Versions(right_owners, micros(right, AT), weights > 0, np.arange(right.height) + stored.height)
    former = _rewound(versions, changes, weights, right_rows, columns)
    before = _overlaps(lives, lives.before, former, inner)
    after = _overlaps(lives, lives.after, versions, inner)
    found = _difference(before, after, right_rows, fields)
    return _emitted(found, lives, left_rows, right_rows.select(fields), timestamp)


def _extent(keys: int, owners: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Return the first and the last time of each key; `NEVER` and `LOWEST` for none."""
    first, last = np.full(keys, NEVER), np.full(keys, LOWEST)
    np.minimum.at(first, owners, times)
    np.maximum.at(last, owners, times)
    return first, last


def _lives(
    left: pl.DataFrame, owners: Ints, keys: NumberedKeys, first: Ints, lifetimes: CollectedTable
) -> tuple[Lifetimes, pl.DataFrame]:
    """Store the left changes; return the lifetimes whose overlaps may change, and their rows.

    These are the rows that changed, and those of changed right rows that do not end before the first of these changes.

    Args:
        left: the left changes.
        owners: the number of each one's key.
        keys: the keys of both sides.
        first: the first right change of each key, `NEVER` for none.
        lifetimes: the left rows' beginnings and ends.
    """
    times, is_changed = micros(left, TIME), first != NEVER
    order = order_of(owners, times)
    points = order[runs.changes(owners[order], times[order]) & ~is_changed[owners[order]]]
    (whole,) = is_changed.nonzero()
    own = np.concatenate((owners[points], whole))
    low = np.concatenate((times[points], np.full(len(whole), LOWEST)))
    high = np.concatenate((times[points] + 1, np.full(len(whole), NEVER)))
    ranges = KeyRanges(own, low, high)
    number, stored = lifetimes.entries(keys, ranges)
    lifetimes.append_numbered(keys, owners[order], gathered(left, order))
    rows = pl.concat([stored, left.select(stored.columns)])
    found = _lifetimes(rows, np.concatenate((own[number], owners)), stored.height)
    (_, ends) = found.after
    moved = (found.before[0] != found.after[0]) | (found.before[1] != ends)
    return found.where(moved | (is_changed[found.owners] & (ends > first[found.owners]))), rows


def _lifetimes(rows: pl.DataFrame, owners: Ints, stored: int) -> Lifetimes:
    """Return each left row once, with its lifetimes before and after.

    Args:
        rows: changes, the stored ones first.
        owners: the number of each one's key.
        stored: how many are stored.
    """
    columns = [name for name in rows.columns if name not in (KEY, TIME, AT, WEIGHT)]
    index = np.arange(rows.height)
    order, starts = identities(rows, columns, index, owners, micros(rows, TIME), sequence(rows))
    number = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    at, weights = micros(rows, AT)[order], rows[WEIGHT].to_numpy()[order]
    by_time = order_of(number, at)
    number, at, weights, is_stored = number[by_time], at[by_time], weights[by_time], order[by_time] < stored
    before = _ends(len(starts), number[is_stored], at[is_stored], weights[is_stored])
    begins = np.flatnonzero(runs.changes(number, at))
    net = np.add.reduceat(weights, begins) if len(begins) else weights
    after = _ends(len(starts), number[begins], at[begins], net)
    first = order[starts]
    return Lifetimes(owners[first], first, before, after)


def _ends(lives: int, number: Ints, at: Ints, weights: Ints) -> tuple[Ints, Ints]:
    """Return the first instants of a positive and of a negative weight."""
    found = []
    for mask in (weights > 0, weights < 0):
        instant = np.full(lives, NEVER)
        instant[number[mask][::-1]] = at[mask][::-1]  # the first one is assigned last
        found.append(instant)
    return found[0], found[1]


def _versions(
    versions_table: TimedTable, keys: NumberedKeys, lives: Lifetimes, first: Ints, last: Ints
) -> tuple[Ints, pl.DataFrame]:
    """Return versions in the lifetimes of rows and around changes, with their keys' numbers.

    A row of a key with changes may have begun before the first of these versions or end after the last one. The overlaps with the
    versions left out are the same before and after, provided that a live version is the first and the last one: a tombstone
    may be one of several in a gap, and all versions of its key are returned.
    """
    low, high = first.copy(), np.where(last == LOWEST, LOWEST, last + 1)
    for begin, end in (lives.before, lives.after):
        exists = begin != NEVER
        np.minimum.at(low, lives.owners[exists], begin[exists])
        np.maximum.at(high, lives.owners[exists], end[exists])
    (owners,) = (low != NEVER).nonzero()
    ranges = KeyRanges(owners, low[owners], high[owners])
    number, found = versions_table.entries(keys, ranges, before=True, after=True)
    dead = ~found[ALIVE].to_numpy()
    begins = runs.changes(number)
    edges = begins | np.append(begins[1:], True)[: len(begins)]
    gaps = np.unique(owners[number[dead & edges]])
    gaps = gaps[first[gaps] != NEVER]
    if not len(gaps):
        return owners[number], found
    is_other = ~np.isin(owners[number], gaps)
    ranges = KeyRanges(gaps, np.full(len(gaps), LOWEST), np.full(len(gaps), NEVER))
    again, whole = versions_table.entries(keys, ranges)
    every = np.concatenate((owners[number[is_other]], gaps[again]))
    order = every.argsort(kind="stable")
    return every[order], pl.concat([found.filter(pl.Series(is_other)), whole])[order]


def _rewound(
    versions: Versions, changes: Versions, weights: Ints, rows: pl.DataFrame, columns: Sequence[str]
) -> Versions:
    """Return versions as of before the right changes.

    A tombstone that ends no row is in no change: it may have come with them, so it must not end what was there before.

    Args:
        versions: as of now.
        changes: the right changes.
        weights: of these.
        rows: the rows of both.
        columns: those that identify a row.
    """
    if not len(changes.owners):
        return versions
    is_changed = np.isin(versions.owners, changes.owners)
    effective = versions.where(~is_changed | versions.alive | versions.follows_alive(first=True))
    return advanced(effective, changes, -weights, rows, columns).replaced(effective)


def _overlaps(lives: Lifetimes, lifetime: tuple[Ints, Ints], versions: Versions, inner: bool) -> Overlaps:
    """Return the overlaps of left rows with the current right rows, gaps included.

    Args:
        lives: the left rows.
        lifetime: begin and end of each.
        versions: the right rows.
        inner: True if the parts without a right row are dropped.
    """
    # a tombstone after a gap ends no row: it must not cut the gap in two
    versions = versions.where(versions.alive | versions.follows_alive(first=False))
    begin, end = lifetime
    (exists,) = (begin < end).nonzero()
    owners, begin, end = lives.owners[exists], begin[exists], end[exists]
    index = runs.Sorted(versions.owners, versions.times)
    bottom = index.first_at_or_after(owners, np.full(len(owners), LOWEST))
    top = index.first_at_or_after(owners, end)
    life, place = runs.expand(index.first_after(owners, begin) - 1, top)
    is_within = place >= bottom[life]
    times, alive, rows = (
        np.append(each, [each.dtype.type(0)]) for each in (versions.times, versions.alive, versions.rows)
    )
    begins = np.where(is_within, np.maximum(times[place], begin[life]), begin[life])
    ends = np.where(place + 1 < top[life], times[place + 1], end[life])
    right = np.where(is_within & alive[place], rows[place], -1)
    found = exists[life], begins, ends, right
    if inner:
        matched = right >= 0
        found = exists[life][matched], begins[matched], ends[matched], right[matched]
    return Overlaps(*found)


@dataclass(frozen=True, slots=True)
class Events:
    """Begins and ends of overlaps.

    Args:
        lives: the index of each one's left lifetime.
        begins: of the overlap, in µs.
        at: when it takes effect.
        weights: 1 or -1.
        rows: the index of the right row, -1 where there is none.
    """

    lives: Ints
    begins: Ints
    at: Ints
    weights: Ints
    rows: Ints


def _difference(before: Overlaps, after: Overlaps, right: pl.DataFrame, fields: Sequence[str]) -> Events:
    """Return what begins and ends differently: retractions first.

    Args:
        before: the overlaps before.
        after: those after.
        right: the right rows.
        fields: the right columns in the output.
    """
    count = len(before.lives)
    lives, begins = (np.concatenate((getattr(before, name), getattr(after, name))) for name in ("lives", "begins"))
    order = order_of(lives, begins)
    (again,) = (~runs.changes(lives[order], begins[order])).nonzero()
    one, other = order[again - 1], order[again] - count
    is_equal = are_equal(right, fields, before.rows[one], after.rows[other])
    one, other = one[is_equal], other[is_equal]
    parts = []
    for overlaps, own, sign in ((before, one, -1), (after, other, 1)):
        begun, ended = np.ones(len(overlaps.lives), np.bool_), overlaps.ends != NEVER
        begun[own] = False
        ended[own[before.ends[one] == after.ends[other]]] = False
        for mask, at, weight in ((begun, overlaps.begins, sign), (ended, overlaps.ends, -sign)):
            weights = np.full(np.count_nonzero(mask), weight)
            parts.append((overlaps.lives[mask], overlaps.begins[mask], at[mask], weights, overlaps.rows[mask]))
    return Events(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _emitted(events: Events, lives: Lifetimes, left: pl.DataFrame, right: pl.DataFrame, timestamp: str) -> pl.DataFrame:
    """Return events as changes.

    Args:
        events: the events.
        lives: the left lifetimes.
        left: the left rows.
        right: the right columns of the output.
        timestamp: the column that gets the begin of the overlap.
    """
    own = gathered(left.drop(KEY, TIME, AT, WEIGHT, strict=False), lives.rows[events.lives])
    found = own.hstack(taken(right, events.rows)).with_columns(
        instants(timestamp, events.begins), instants(AT, events.at), pl.Series(WEIGHT, events.weights, pl.Int64)
    )
    # rows of one key and number that differ in their timestamps only are joined to equal rows
    number = sequence(left)[lives.rows]
    order = order_of(lives.owners, number)
    is_alone = runs.changes(lives.owners[order], number[order]).all()
    return found if is_alone else consolidate(found)
