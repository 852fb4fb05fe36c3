"""The stored entries of discrete windows: whole groups, or those near what a batch adds.

Where an entry can only change the results of windows near it, entries are addressed by their key and their place in time. A batch
reads and writes those in reach of its own, and merges of the store drop those that are final. Of other windows, all entries of a
key are one group that is read and written as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl

from umbel.changes.runs import Ints
from umbel.state.collected import INSTANT
from umbel.state.numbered_keys import KeyRanges
from umbel.state.tables import State, Table, TimedTable
from umbel.windowing.tiling import ID, instant_of

TIME = "_time"
NAME = "windows"


@dataclass(frozen=True, slots=True)
class Merged:
    """Entries before and after others were merged in.

    Args:
        before: the entries, in order.
        after: in their place, in order.
        extended: the position in `after` of what became of each entry of `before`; empty where nobody needs it.
        added_to: likewise of each added entry.
    """

    before: pl.DataFrame
    after: pl.DataFrame
    extended: Ints
    added_to: Ints

    def replaced(self, after: pl.DataFrame) -> Merged:
        """Return the same with other entries after."""
        return replace(self, after=after)


class NearbyWindows(Protocol):
    """Windows whose results depend only on entries near them."""

    @property
    def stored(self) -> dict[str, pl.DataType]:
        """The columns of a stored entry."""

    @property
    def expiry(self) -> tuple[str, int]:
        """A stored column or `_time`, in µs, and the µs until an entry is final."""

    @property
    def is_wide(self) -> bool:
        """True if an entry may reach from before a range into it."""

    def placed(self, entries: pl.DataFrame) -> pl.DataFrame:
        """Return entries as they are stored: with `_key_id`, and `_time`, their place in µs."""

    def restored(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return stored entries, with `_key_id` and `_time`, as entries."""

    def around(self, added: pl.DataFrame) -> KeyRanges:
        """Return the ranges of places of the entries that concern added ones."""

    def merged(self, before: pl.DataFrame, added: pl.DataFrame) -> Merged:
        """Return entries with others merged in."""

    def between(self, mark: int, horizon: int) -> tuple[int, int]:
        """Return the places of entries with results in a time.

        The time is after `mark` and at or before `horizon`.
        """

    def changed(self, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
        """Return the addresses of changed entries, `_key_id` and `_time`, each once.

        Args:
            before: stored entries, as `placed` returns them.
            after: in their place.
            added: the entries that were added.
        """


class Retention(Protocol):
    """The retention of all entries of a key."""

    def merged(self, before: pl.DataFrame, added: pl.DataFrame) -> Merged:
        """Return entries with others merged in."""

    def forget(self, entries: pl.DataFrame, final: int, keys: int) -> pl.DataFrame:
        """Return entries without those no longer needed once everything up to `final` is final."""


@dataclass(frozen=True, slots=True)
class WholeGroups:
    """The entries of a key as one group.

    Args:
        table: of the groups.
        windows: forget what is final.
    """

    table: Table
    windows: Retention

    def all(self, keys: pl.Series) -> pl.DataFrame:
        """Return all entries of some keys, with `_key_id`."""
        return self.table.numbered(keys)

    def merged(self, keys: pl.Series, added: pl.DataFrame) -> Merged:
        """Return the entries of the keys with others merged in."""
        return self.windows.merged(self.table.numbered(keys), added)

    def due(self, keys: pl.Series, mark: int, horizon: int) -> pl.DataFrame:
        """Return the entries with results in a time, and the next entry.

        The time is after `mark` and up to `horizon`; the next entry is that of each key.
        """
        return self.table.numbered(keys)

    def write(
        self, keys: pl.Series, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, final: int | None
    ) -> None:
        """Store the entries of some keys.

        Args:
            keys: encoded keys, each once.
            before: as read.
            after: in their place.
            added: in `after`, and not in `before`.
            final: the instant, in µs, up to which nothing changes any more; None when unknown.
        """
        self.emitted(keys, after, final)

    def emitted(self, keys: pl.Series, entries: pl.DataFrame, final: int | None) -> None:
        """Forget what is final of entries whose results were emitted."""
        retained = entries if final is None else self.windows.forget(entries, final, len(keys))
        self.table.renumber(keys, retained)


@dataclass(frozen=True, slots=True)
class NearbyEntries:
    """Entries by key and place.

    Args:
        table: of the entries.
        windows: know which entries are near.
    """

    table: TimedTable
    windows: NearbyWindows

    def merged(self, keys: pl.Series, added: pl.DataFrame) -> Merged:
        """Return the entries that concern added ones, with these merged in."""
        return self.windows.merged(self.near(keys, added), added)

    def near(self, keys: pl.Series, added: pl.DataFrame) -> pl.DataFrame:
        """Return the entries that concern added ones."""
        found = self.table.numbered(keys, self.windows.around(added), before=self.windows.is_wide)
        return self.windows.restored(found.with_columns(pl.col(TIME).to_physical()))

    def due(self, keys: pl.Series, mark: int, horizon: int) -> pl.DataFrame:
        """Return the entries with results in a time, and the next entry.

        The time is after `mark` and up to `horizon`; the next entry is that of each key.
        """
        low, high = self.windows.between(mark, horizon)
        ranges = KeyRanges(np.arange(len(keys)), np.full(len(keys), low), np.full(len(keys), high))
        found = self.table.numbered(keys, ranges, before=self.windows.is_wide, after=True)
        return self.windows.restored(found.with_columns(pl.col(TIME).to_physical()))

    def write(
        self, keys: pl.Series, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, final: int | None
    ) -> None:
        """Store the entries of some keys that changed.

        The arguments are those of `WholeGroups.write`.
        """
        rows = self.windows.placed(after)
        changed = self.windows.changed(self.windows.placed(before), rows, added)
        rows = rows.join(changed, on=[ID, TIME], how="semi", maintain_order="left")
        gone = changed.join(rows, on=[ID, TIME], how="anti")
        self.table.put(addressed(rows, keys), addressed(gone, keys))
        self.emitted(keys, after, final)

    def emitted(self, keys: pl.Series, entries: pl.DataFrame, final: int | None) -> None:
        """Let what is final expire."""
        if final is not None:
            self.table.expire(instant_of(final))


class Entries(Protocol):
    """The stored entries of windows of one kind."""

    def merged(self, keys: pl.Series, added: pl.DataFrame) -> Merged:
        """Return the entries that concern added ones, with these merged in.

        Args:
            keys: encoded keys, each once.
            added: entries with `_key_id`.
        """

    def due(self, keys: pl.Series, mark: int, horizon: int) -> pl.DataFrame:
        """Return the entries with results in a time, and the next entry."""

    def write(
        self, keys: pl.Series, before: pl.DataFrame, after: pl.DataFrame, added: pl.DataFrame, final: int | None
    ) -> None:
        """Store the entries of some keys; see `WholeGroups.write`."""

    def emitted(self, keys: pl.Series, entries: pl.DataFrame, final: int | None) -> None:
        """Forget what is final of entries whose results were emitted."""


def whole(state: State, windows: Retention, columns: dict[str, pl.DataType]) -> WholeGroups:
    """Return the entries of windows as whole groups."""
    return WholeGroups(state.table(NAME, columns), windows)


def nearby(state: State, windows: NearbyWindows) -> NearbyEntries:
    """Return the entries of windows by key and place."""
    return NearbyEntries(state.timed(NAME, windows.stored, windows.expiry), windows)


def addressed(rows: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    """Return rows with `_key_id` and the place in µs with their key and an instant."""
    return rows.select(keys.gather(rows[ID]).alias("_key"), pl.col(TIME).cast(INSTANT), pl.exclude(ID, TIME))
