"""Session windows: rows of a key with gaps below a limit form one window.

An entry is a session: `_time_first` and `_time_last` (the span of its instants, µs), `_weight` and the partial states, stored by
its first instant. Where rows may be retracted, which can shorten or split a session, it has `_at_last` (the last instant that it
ever had) and `_at_retained` beside, and its instants are stored, too: see `umbel.windowing.session_instants`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.changes import runs
from umbel.changes.runs import Flags, Ints
from umbel.changes.versions import TIME, difference
from umbel.state.numbered_keys import KeyRanges
from umbel.state.tables import State
from umbel.types import epochs
from umbel.types.schema import AT, SEQ, WEIGHT
from umbel.types.windows import SECOND, Session
from umbel.windowing.grids import ALWAYS, LATER
from umbel.windowing.panes import BEGIN, END, INSTANT
from umbel.windowing.partials import Partials
from umbel.windowing.session_instants import SessionInstants
from umbel.windowing.stored_windows import Entries, Merged, nearby
from umbel.windowing.tiling import FIRST, ID, LAST, NEVER, RETAINED, UNTIL

ADDED = "_seq_added"


@dataclass(frozen=True)
class Sessions:
    """The sessions of keys: their entries and their emitted results.

    Args:
        keys: the columns of the group.
        timestamp: of the input.
        window: has the gap that ends a session.
        aggregates: the aggregates.
        partials: their states.
        is_retractable: True if rows may be retracted.
        is_final: True if a session is emitted only when it is over.
    """

    keys: tuple[str, ...]
    timestamp: str
    window: Session
    aggregates: tuple[Aggregate, ...]
    partials: Partials
    is_retractable: bool
    is_final: bool

    @cached_property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of an entry."""
        ever = {UNTIL: pl.Int64(), RETAINED: pl.Int64()} if self.is_retractable else {}
        return {FIRST: pl.Int64(), LAST: pl.Int64(), **ever, WEIGHT: pl.Int64(), **self.partials.columns}

    def is_partial(self, changes: pl.DataFrame) -> bool:
        """Return True if changes have been pre-aggregated by `combine`."""
        return FIRST in changes.columns

    def combine(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries of changes: one for each key and session.

        Where rows may be retracted it is one for each key and instant.
        """
        read = dict.fromkeys(
            [*self.keys, self.timestamp, *(at.of for _, at in self.partials.parts if at.of), SEQ, WEIGHT]
        )
        instant = pl.col(self.timestamp).dt.epoch("us")
        placed = rows.select(*read, instant.alias(FIRST), instant.alias(LAST))
        ordered = runs.ordered(placed, [*self.keys, FIRST])
        first = ordered[FIRST].to_numpy()
        cuts = runs.changes(first) if self.is_retractable else self._gaps(first, first)
        begins = runs.key_changes(ordered, self.keys) | cuts
        latest = pl.col(self.timestamp).filter(pl.col(WEIGHT) > 0).max()
        others = [pl.col(*self.keys).first(), latest, *_SPANS]
        return self.partials.lift(ordered, begins, others)

    def for_windows(self, partial: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries, with `_key_id`, as entries."""
        undecided = pl.lit(NEVER, pl.Int64).alias(RETAINED)
        return partial.with_columns(pl.col(LAST).alias(UNTIL), undecided).select(ID, *self.columns)

    def merged(self, before: pl.DataFrame, added: pl.DataFrame) -> Merged:
        """Return the sessions that added entries extend, connect or begin, before and after.

        Args:
            before: sessions near the added entries, in order.
            added: entries in order.
        """
        both = pl.concat([before, added])
        is_added = pl.Series(ADDED, np.arange(both.height) >= before.height)
        ordered = runs.ordered(both.with_columns(is_added), [ID, FIRST])
        begins = self._begins(ordered)
        flags = ordered[ADDED].to_numpy()
        touched = runs.any_in_run(begins, flags)
        if not touched.all():
            ordered, begins, flags = ordered.filter(touched), begins[touched], flags[touched]
        entries = ordered.drop(ADDED)
        owners = runs.numbers(begins)
        return Merged(entries.filter(~flags), self._merged(entries, begins), owners[~flags], owners[flags])

    def formed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return the sessions formed by entries in order."""
        return self._merged(entries, self._begins(entries))

    def at_instants(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return partial entries with those of one instant merged, and in order."""
        ordered = runs.ordered(entries, [ID, FIRST])
        return self._merged(ordered, runs.changes(ordered[ID].to_numpy(), ordered[FIRST].to_numpy()))

    def _merged(self, ordered: pl.DataFrame, begins: Flags) -> pl.DataFrame:
        ever = [pl.col(UNTIL).max(), pl.col(RETAINED).min()] if self.is_retractable else []
        return self.partials.merge(ordered, begins, [pl.col(ID).first(), *_SPANS, *ever])

    def _begins(self, ordered: pl.DataFrame) -> Flags:
        """Return a mask of the first entry of each session.

        A session begins at another key, or after more than the gap, in whole seconds.
        """
        ids = ordered[ID].to_numpy()
        return runs.changes(ids) | self._gaps(
            ordered[FIRST].to_numpy(), runs.running_maximum(ids, ordered[LAST].to_numpy())
        )

    def _gaps(self, first: Ints, reached: Ints) -> Flags:
        """Return a mask of rows that begin more than the gap after the last one."""
        begins = np.zeros(len(first), np.bool_)
        begins[1:] = self.is_apart(reached[:-1], first[1:])
        return begins

    def is_apart(self, earlier: Ints, later: Ints) -> Flags:
        """Return a mask of pairs of instants more than the gap apart.

        The end of the gap and the later instant are in whole seconds, so that instants up to the gap apart never are.
        """
        apart: Flags = later // SECOND * SECOND > self._end_of_gap(earlier)
        return apart

    def _end_of_gap(self, last: Ints) -> Ints:
        """Return the last whole second at which a session goes on after each instant."""
        end: Ints = (last + self.window.gap_us) // SECOND * SECOND
        return end

    # emission

    def _over(self, sessions: pl.DataFrame) -> Ints:
        """Return for each session the first instant at which it is over."""
        return self._end_of_gap(sessions[LAST].to_numpy()) + SECOND

    def corrections(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, mark: int) -> pl.DataFrame:
        """Return the changes to emitted sessions caused by added entries."""
        old, new = (self._rows(each, ALWAYS, mark) for each in (before, after))
        return difference(old, new)

    def emitted(self, entries: pl.DataFrame, mark: int, horizon: int) -> pl.DataFrame:
        """Return the sessions that are over after `mark` and at or before `horizon`."""
        return self._rows(entries, mark, horizon)

    def _rows(self, sessions: pl.DataFrame, mark: int, horizon: int) -> pl.DataFrame:
        if self.is_final:
            over = self._over(sessions)
            sessions = sessions.filter((mark < over) & (over <= horizon))
        end = (pl.col(LAST) + 1).clip(upper_bound=epochs.LAST).cast(INSTANT)
        spans = sessions.select(ID, end.alias(TIME), pl.col(FIRST).cast(INSTANT).alias(BEGIN), end.alias(END))
        values = self.partials.results(sessions, self.aggregates, for_emission=True)
        rows = pl.DataFrame([*spans.get_columns(), *values])
        return rows.with_columns(pl.col(TIME).alias(AT), pl.lit(1, pl.Int64).alias(WEIGHT))

    def due(self, entries: pl.DataFrame, after: int, keys: int) -> Ints:
        """Return for each key the first instant after `after` at which a session is over.

        `LATER` if there is none, or if results do not wait for the end.
        """
        due = np.full(keys, LATER)
        if self.is_final:
            over = self._over(entries)
            np.minimum.at(due, entries[ID].to_numpy()[over > after], over[over > after])
        return due

    # the entries near others

    def entries(self, state: State) -> Entries:
        """Return the stored entries of an operator: one concerns its own session and adjacent ones."""
        sessions = nearby(state, self)
        if not self.is_retractable:
            return sessions
        columns = {name: dtype for name, dtype in self.columns.items() if name not in (FIRST, LAST, UNTIL)}
        return SessionInstants(sessions, state.timed("instants", columns, (RETAINED, self.expiry[1])), self)

    @cached_property
    def stored(self) -> dict[str, pl.DataType]:
        """The columns of a stored entry.

        Its place is the first instant of its session, which is not stored again.
        """
        return {name: dtype for name, dtype in self.columns.items() if name != FIRST}

    @property
    def expiry(self) -> tuple[str, int]:
        """The column, and how many µs after it an entry is final.

        That is when its session is over, wherever that ever ended.
        """
        return UNTIL if self.is_retractable else LAST, self.window.gap_us + SECOND

    def placed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return entries as they are stored."""
        return entries.select(ID, pl.col(FIRST).alias(TIME), *self.stored)

    def restored(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return stored entries as entries."""
        return found.rename({TIME: FIRST}).select(ID, *self.columns)

    @property
    def is_wide(self) -> bool:
        """True: a session may reach from before a range into it."""
        return True

    def around(self, added: pl.DataFrame) -> KeyRanges:
        """Return the ranges of the first instants of sessions that added ones may join."""
        ordered = runs.ordered(added.select(ID, FIRST, LAST), [ID, FIRST])
        starts = np.flatnonzero(self._begins(ordered))
        reached = np.maximum.reduceat(ordered[LAST].to_numpy(), starts) if len(starts) else starts
        owners, low = (ordered[name].to_numpy()[starts].astype(np.int64) for name in (ID, FIRST))
        return KeyRanges(owners, low, self._end_of_gap(reached) + SECOND)

    def between(self, mark: int, horizon: int) -> tuple[int, int]:
        """Return the range of first instants of sessions that end in a time.

        They are over after `mark` and up to `horizon`.
        """
        return mark - self.window.gap_us - 2 * SECOND, horizon

    def changed(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
        """Return the addresses of the sessions before and after; all of them changed."""
        return pl.concat([before.select(ID, TIME), after.select(ID, TIME)]).unique()


_SPANS = [pl.col(FIRST).min(), pl.col(LAST).max(), pl.col(WEIGHT).sum()]
