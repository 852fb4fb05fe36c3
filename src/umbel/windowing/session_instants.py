"""Sessions of retractable rows: a state per session and per instant.

A batch merges what it adds into the states of sessions, and reads the instants only where it has to: those that it adds to, the
neighbours of those that vanish, and all of a session that falls apart. So its cost does not grow with the length of sessions.

The instants of a session must not expire before it does. Their expiry is beyond its end, by the gap and `AHEAD` times its length;
when the session reaches beyond that they are written anew. It is then several times as long, so most instants are written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.runs import Flags, Ints
from umbel.state.collected import INSTANT
from umbel.state.numbered_keys import KeyRanges
from umbel.state.tables import TimedTable
from umbel.types.schema import WEIGHT
from umbel.windowing.stored_windows import TIME, Merged, NearbyEntries, addressed
from umbel.windowing.tiling import FIRST, ID, LAST, NEVER, RETAINED, UNTIL, instant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from umbel.types.windows import Session

AHEAD = 4
"""How many times the length of a session, besides the gap, its instants are retained after its end."""


class SplittableSessions(Protocol):
    """Sessions whose entries have `_at_last` and `_at_retained`."""

    @property
    def window(self) -> Session:
        """The window, which has the gap."""

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns of an entry."""

    def at_instants(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries with those of one instant merged, and in order."""

    def merged(self, before: pl.DataFrame, added: pl.DataFrame) -> Merged:
        """Return the sessions that added entries extend, connect or begin, before and after."""

    def formed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return the sessions formed by entries in order."""

    def is_apart(self, earlier: Ints, later: Ints) -> Flags:
        """Return a mask of pairs of instants with more than the gap between them."""


@dataclass(frozen=True, slots=True)
class SessionInstants:
    """Sessions by key and first instant, and their instants by key and instant.

    Args:
        sessions: the sessions.
        instants: the table of the instants.
        windows: know the gap.
    """

    sessions: NearbyEntries
    instants: TimedTable
    windows: SplittableSessions

    def merged(self, keys: pl.Series, added: pl.DataFrame) -> Merged:
        """Merge added instants into their sessions; return those that changed.

        The instants are written, the sessions are not.
        """
        added = self.windows.at_instants(added)
        near = self.sessions.near(keys, added)
        known = self._read(keys, _points(added, _inside(near, added)))
        now, is_known = self._updated(known, added)
        exists = (now[WEIGHT] != 0).to_numpy()
        counts = is_known | exists
        merged = self.windows.merged(near, added if counts.all() else added.filter(counts))
        owners = merged.added_to
        gone, now, added_to = now.filter(~exists & is_known), now.filter(exists), owners[exists[counts]]
        merged = self._retained_longer(keys, merged, now, added_to, gone)
        if gone.is_empty():
            return merged
        return self._without(keys, merged, gone, owners[~exists[counts]])

    def due(self, keys: pl.Series, mark: int, horizon: int) -> pl.DataFrame:
        """Return the sessions with results in a time, and the next one; see `NearbyEntries.due`."""
        return self.sessions.due(keys, mark, horizon)

    def write(
        self, keys: pl.Series, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, final: int | None
    ) -> None:
        """Store the sessions of some keys that changed; see `NearbyEntries.write`."""
        self.sessions.write(keys, before, after, added, None)
        self.emitted(keys, after, final)

    def emitted(self, keys: pl.Series, entries: pl.DataFrame, final: int | None) -> None:
        """Let what is final expire."""
        if final is not None:
            self.sessions.emitted(keys, entries, final)
            self.instants.expire(instant_of(final))

    def _updated(self, known: pl.DataFrame, added: pl.DataFrame) -> tuple[pl.DataFrame, Flags]:
        """Return added instants merged with stored ones, and a mask of these."""
        is_known = np.zeros(added.height, np.bool_)
        if known.is_empty():
            return added, is_known
        is_known[_positions(added, known)] = True
        updated = self.windows.at_instants(pl.concat([known, added.filter(is_known)]))
        order = np.concatenate((np.flatnonzero(is_known), np.flatnonzero(~is_known))).argsort(kind="stable")
        return pl.concat([updated, added.filter(~is_known)], rechunk=True)[order], is_known

    def _retained_longer(
        self, keys: pl.Series, merged: Merged, now: pl.DataFrame, added_to: Ints, gone: pl.DataFrame
    ) -> Merged:
        """Write instants; return the sessions with the instant until which theirs are retained.

        Args:
            keys: encoded keys, each once.
            merged: the sessions.
            now: the instants that exist.
            added_to: the session of each.
            gone: those that exist no more.
        """
        first, until, retained = (merged.after[name].to_numpy() for name in (FIRST, UNTIL, RETAINED))
        is_short = (until > retained) | (retained == NEVER)
        retained = np.where(is_short, until + self.windows.window.gap_us + AHEAD * (until - first), retained)
        rows, owners = [now], [added_to]
        stale = is_short[merged.extended]
        if stale.any():
            sessions = merged.before.filter(stale)
            known = self._read(keys, KeyRanges(_ids(sessions), *_spans(sessions)))
            written = pl.concat([now.select(ID, FIRST), gone.select(ID, FIRST)])
            rows.append(known.join(written, on=[ID, FIRST], how="anti", maintain_order="left"))
            owners.append(merged.extended[stale][_owners(sessions, rows[-1])])
        entries, longer = pl.concat(rows), retained[np.concatenate(owners)]
        stored = entries[RETAINED].to_numpy()  # never less than before: see `ReplaceRule.in_order`
        entries = entries.with_columns(
            pl.Series(RETAINED, np.where(stored == NEVER, longer, np.maximum(stored, longer)))
        )
        if len(rows) > 1:
            entries = runs.ordered(entries, [ID, FIRST])
        if gone.height:
            removed = addressed(gone.select(ID, pl.col(FIRST).alias(TIME)), keys)
            self.instants.put(addressed(entries.clear().rename({FIRST: TIME}), keys), removed)
        self.instants.renumber(keys, entries.with_columns(pl.col(FIRST).cast(INSTANT).alias(TIME)))
        return merged.replaced(merged.after.with_columns(pl.Series(RETAINED, retained)))

    def _without(self, keys: pl.Series, merged: Merged, gone: pl.DataFrame, owners: Ints) -> Merged:
        """Return sessions shortened, split or removed where instants have vanished.

        Args:
            keys: encoded keys, each once.
            merged: the sessions as if these were there.
            gone: the instants that vanished, in order.
            owners: the session of each, in order.
        """
        holes = _Holes.of(merged.after, gone, owners)
        ranges = KeyRanges(_ids(merged.after)[holes.sessions], holes.low, holes.high)
        left = self._read(keys, ranges, with_neighbours=True)
        shortened, exists, is_split = holes.shortened(merged.after, left, self.windows.is_apart)
        whole = shortened.filter(exists & ~is_split)
        if not is_split.any():
            return merged.replaced(whole)
        parts = self._split(keys, shortened.filter(is_split))
        return merged.replaced(runs.ordered(pl.concat([whole, parts]), [ID, FIRST]))

    def _split(self, keys: pl.Series, sessions: pl.DataFrame) -> pl.DataFrame:
        """Return the sessions formed by the instants of some sessions."""
        found = self._read(keys, KeyRanges(_ids(sessions), *_spans(sessions)))
        until = sessions[UNTIL].gather(_owners(sessions, found))
        return self.windows.formed(found.with_columns(until))

    def _read(self, keys: pl.Series, ranges: KeyRanges, *, with_neighbours: bool = False) -> pl.DataFrame:
        """Return the stored instants in some ranges as entries, in order.

        Args:
            keys: encoded keys, each once.
            ranges: of these keys.
            with_neighbours: with the last instant before each range, and the first one after it.
        """
        found = self.instants.numbered(keys, ranges, before=with_neighbours, after=with_neighbours)
        at = pl.col(TIME).to_physical()
        return found.with_columns(at.alias(name) for name in (FIRST, LAST, UNTIL)).select(ID, *self.windows.columns)


@dataclass(frozen=True, slots=True)
class _Holes:
    """The ranges in which instants of sessions vanished, one per session.

    Args:
        sessions: the positions of the sessions, ascending.
        low: the first instant that vanished of each.
        high: the end of the range of these.
    """

    sessions: Ints
    low: Ints
    high: Ints

    @classmethod
    def of(cls, sessions: pl.DataFrame, gone: pl.DataFrame, owners: Ints) -> _Holes:
        """Return the holes left by instants that vanished, in the order of their sessions."""
        starts, at = np.flatnonzero(runs.changes(owners)), gone[FIRST].to_numpy()
        return cls(owners[starts], np.minimum.reduceat(at, starts), np.maximum.reduceat(at, starts) + 1)

    def shortened(
        self, sessions: pl.DataFrame, left: pl.DataFrame, is_apart: Callable[[Ints, Ints], Flags]
    ) -> tuple[pl.DataFrame, Flags, Flags]:
        """Return all sessions with their new spans, and two masks.

        They are of the sessions that are left, and of those that fall apart.

        Args:
            sessions: as if nothing had vanished.
            left: the instants that are there in the holes, and the nearest ones around each, in order.
            is_apart: tells for pairs of instants whether there is more than the gap between them.
        """
        points, hole = self._within(sessions, left)
        first, last = (sessions[name].to_numpy().copy() for name in (FIRST, LAST))
        exists, is_split = np.ones(len(first), np.bool_), np.zeros(len(first), np.bool_)
        exists[self.sessions] = np.bincount(hole, minlength=len(self.sessions)) > 0
        lowest, highest = np.full(len(self.sessions), last.max()), np.full(len(self.sessions), first.min())
        np.minimum.at(lowest, hole, points)
        np.maximum.at(highest, hole, points)
        first[self.sessions] = np.where(self.low == first[self.sessions], lowest, first[self.sessions])
        last[self.sessions] = np.where(self.high - 1 == last[self.sessions], highest, last[self.sessions])
        # What was read as a neighbour of another session's hole may be far from this one, with unread instants between.
        adjacent = hole[1:] == hole[:-1]
        adjacent &= (points[:-1] < self.high[hole[1:]]) & (points[1:] >= self.low[hole[1:]])
        is_split[self.sessions[hole[1:][adjacent & is_apart(points[:-1], points[1:])]]] = True
        return sessions.with_columns(pl.Series(FIRST, first), pl.Series(LAST, last)), exists, is_split

    def _within(self, sessions: pl.DataFrame, left: pl.DataFrame) -> tuple[Ints, Ints]:
        """Return the instants in sessions that have a hole, and the number of the hole."""
        numbers = np.full(sessions.height + 1, -1)  # the last is for instants in no session
        numbers[self.sessions] = np.arange(len(self.sessions))
        hole = numbers[_owners(sessions, left)]
        return left[FIRST].to_numpy()[hole >= 0], hole[hole >= 0]


def _ids(entries: pl.DataFrame) -> Ints:
    return entries[ID].to_numpy().astype(np.int64)


def _spans(entries: pl.DataFrame) -> tuple[Ints, Ints]:
    """Return the spans of sessions as ranges."""
    return entries[FIRST].to_numpy(), entries[LAST].to_numpy() + 1


def _points(added: pl.DataFrame, which: Flags) -> KeyRanges:
    at = added[FIRST].to_numpy()[which]
    return KeyRanges(_ids(added)[which], at, at + 1)


def _owners(sessions: pl.DataFrame, instants: pl.DataFrame) -> Ints:
    """Return for each instant the position of the session with it, −1 for none.

    Args:
        sessions: in order; those of a key do not overlap.
        instants: in any order.
    """
    if sessions.is_empty():
        return np.full(instants.height, -1)
    ids, at = _ids(instants), instants[FIRST].to_numpy()
    found = runs.Sorted(_ids(sessions), sessions[FIRST].to_numpy()).first_after(ids, at) - 1
    inside = (found >= 0) & (_ids(sessions)[found] == ids) & (at <= sessions[LAST].to_numpy()[found])
    return np.where(inside, found, -1)


def _inside(sessions: pl.DataFrame, instants: pl.DataFrame) -> Flags:
    """Return a mask of the instants within sessions."""
    return _owners(sessions, instants) >= 0


def _positions(added: pl.DataFrame, known: pl.DataFrame) -> Ints:
    """Return the position of each known instant among the added ones.

    These are in order and have it.
    """
    search = runs.Sorted(_ids(added), added[FIRST].to_numpy())
    return search.first_at_or_after(_ids(known), known[FIRST].to_numpy())
