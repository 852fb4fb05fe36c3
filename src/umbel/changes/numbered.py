"""Version histories and changes as arrays: keys are numbers, rows are indices into a frame.

Kernels compute with them, and read the columns of rows only where rows are compared or emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.versions import ALIVE, TIME
from umbel.state.runs.sorting import gathered, order_of
from umbel.types.schema import AT, SEQ, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from umbel.changes.runs import Flags, Ints

INSTANT = pl.Datetime("us", "UTC")
LOWEST, NEVER = -(2**63), 2**63 - 1
"""The instants, in µs, before all others and after all others."""
GONE, ENDED, BEGUN = -1, 0, 1
"""What there is at an instant: nothing, a tombstone, or a row."""


def micros(frame: pl.DataFrame, name: str) -> Ints:
    """Return a column of instants in µs."""
    found: Ints = frame[name].to_physical().to_numpy()
    return found


def sequence(frame: pl.DataFrame) -> Ints:
    """Return `_seq` of each row; the lowest number for null."""
    column = frame[SEQ]
    found: Ints = (column.fill_null(LOWEST) if column.null_count() else column).to_numpy()
    return found


def instants(name: str, micros: Ints) -> pl.Series:
    """Return a column of instants from µs."""
    return pl.Series(name, micros, pl.Int64).cast(INSTANT)


def taken(rows: pl.DataFrame, index: Ints) -> pl.DataFrame:
    """Return some rows of a frame in the order of an index.

    Where it is -1, a row of nulls.
    """
    if rows.width and len(index) and index.min() >= 0:
        return gathered(rows, index)
    places = pl.Series(index)
    found = pl.select(pl.when(pl.lit(places) >= 0).then(pl.lit(places))).to_series()
    return pl.DataFrame([column.gather(found) for column in rows.iter_columns()])


def order_by_sequence(sequence: Ints, *position: Ints) -> Ints:
    """Return the stable order of rows by their position, then by `_seq`.

    The latter is mostly in order already.
    """
    order = order_of(*position)
    begins = runs.changes(*(each[order] for each in position))
    ordered = sequence[order]
    if (~begins[1:] & (ordered[1:] < ordered[:-1])).any():
        tied = runs.in_company(begins)
        order[tied] = order[tied[order_of(runs.numbers(begins)[tied], ordered[tied])]]
    return order


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of numbered keys, sorted by key and time.

    Args:
        owners: the number of each version's key.
        times: when each begins, in µs.
        alive: mask of those that are not tombstones.
        rows: the index of each one's row in a frame, -1 for none.
    """

    owners: Ints
    times: Ints
    alive: Flags
    rows: Ints

    @classmethod
    def of(cls, frame: pl.DataFrame, owners: Ints) -> Versions:
        """Return the versions of a sorted frame.

        Args:
            frame: the versions.
            owners: the number of each one's key.
        """
        return cls(owners, micros(frame, TIME), frame[ALIVE].to_numpy(), np.arange(frame.height))

    def where(self, mask: Flags | Ints) -> Versions:
        """Return some of the versions, by a mask or by their indices."""
        return Versions(self.owners[mask], self.times[mask], self.alive[mask], self.rows[mask])

    def follows_alive(self, *, first: bool) -> Flags:
        """Return a mask of the versions whose predecessor is alive; `first` for those without one."""
        found = np.full(len(self.owners), first)
        is_same = self.owners[1:] == self.owners[:-1]
        found[1:][is_same] = self.alive[:-1][is_same]
        return found

    def ends(self) -> Ints:
        """Return when the successor of each begins, `NEVER` without one."""
        found = np.full(len(self.owners), NEVER)
        is_same = self.owners[1:] == self.owners[:-1]
        found[:-1][is_same] = self.times[1:][is_same]
        return found

    def merged(self, other: Versions) -> Versions:
        """Return the versions of both, which have none at the same instant of a key."""
        owners, times, alive, rows = (
            np.concatenate((getattr(self, name), getattr(other, name))) for name in ("owners", "times", "alive", "rows")
        )
        order = order_of(owners, times)
        return Versions(owners[order], times[order], alive[order], rows[order])


@dataclass(frozen=True, slots=True)
class States:
    """Instants of keys, sorted, with what is there after some changes.

    Args:
        owners: the number of each one's key.
        times: in µs.
        states: `GONE`, `ENDED` or `BEGUN`.
        rows: the index of the row that begins.
    """

    owners: Ints
    times: Ints
    states: Ints
    rows: Ints

    def replaced(self, versions: Versions) -> Versions:
        """Return versions with those at these instants replaced."""
        at = found_at(self.owners, self.times, versions.owners, versions.times)
        there = self.states != GONE
        made = Versions(self.owners[there], self.times[there], self.states[there] == BEGUN, self.rows[there])
        return versions.where(at < 0).merged(made)


def found_at(owners: Ints, times: Ints, by: Ints, at: Ints) -> Ints:
    """Return the index of each instant among sorted instants of keys, -1 for none.

    Args:
        owners: of the sorted ones.
        times: of the sorted ones.
        by: the keys of those that are searched.
        at: their instants.
    """
    if not len(owners):
        return np.full(len(by), -1)
    found = runs.Sorted(owners, times).first_at_or_after(by, at)
    place = np.minimum(found, len(owners) - 1)
    return np.where((owners[place] == by) & (times[place] == at), place, -1)


def advanced(
    versions: Versions, changes: Versions, weights: Ints, rows: pl.DataFrame, columns: Sequence[str]
) -> States:
    """Return what there is at the instants of changes after they are applied.

    Args:
        versions: every version at an instant of a change, and for each key the one before the earliest of these.
        changes: the rows that begin or end at an instant, in any order.
        weights: of the changes.
        rows: the frame that both have their rows in.
        columns: those that identify a row, `_seq` among them.
    """
    order = order_of(changes.owners, changes.times)
    begins = runs.changes(changes.owners[order], changes.times[order])
    first = order[begins]
    owners, times = changes.owners[first], changes.times[first]
    point_of = np.empty(len(order), np.int64)
    point_of[order] = runs.numbers(begins)
    at = found_at(owners, times, versions.owners, versions.times)
    begun = np.flatnonzero((at >= 0) & versions.alive)
    ended = np.flatnonzero((at >= 0) & versions.follows_alive(first=False))
    index = np.concatenate((versions.rows[begun], versions.rows[ended - 1], changes.rows))
    point = np.concatenate((at[begun], at[ended], point_of))
    weight = np.concatenate((np.ones(len(begun), np.int64), np.full(len(ended), -1), weights))
    ordered, starts = identities(rows, columns, index, point, sequence(rows)[index])
    net = np.add.reduceat(weight[ordered], starts) if len(starts) else weight
    there, row = point[ordered[starts]], index[ordered[starts]]
    states, found = np.full(len(owners), GONE), np.full(len(owners), -1)
    states[there[net != 0]] = ENDED
    (is_begun,) = (net > 0).nonzero()
    if len(is_begun) and not runs.changes(there[is_begun]).all():  # of several the last one, by `_seq`
        at_once = sequence(rows)[row[is_begun]]
        is_begun = is_begun[np.lexsort((ordered[starts[is_begun]], at_once, there[is_begun]))]
    states[there[is_begun]] = BEGUN
    found[there[is_begun]] = row[is_begun]
    return States(owners, times, states, found)


def identities(rows: pl.DataFrame, columns: Sequence[str], index: Ints, *position: Ints) -> tuple[Ints, Ints]:
    """Return an order with equal rows adjacent, and the start of each distinct row.

    It is sorted by the position. Rows at different positions differ; those at one are compared. The first of equal rows is the
    first one provided.

    Args:
        rows: a frame.
        columns: those that are compared.
        index: the rows in question, by their index in the frame.
        position: numbers of each of these, the most significant first; the last one is `_seq`.
    """
    order = order_by_sequence(position[-1], *position[:-1])
    begins = runs.changes(*(each[order] for each in position))
    several = runs.in_company(begins)
    frame = gathered(rows.select(columns), index[order[several]])
    if not _differ(frame, begins[several]):
        return order, np.flatnonzero(begins)
    numbers, hashes = runs.numbers(begins)[several], frame.hash_rows().to_numpy() >> np.uint64(24)
    by_hash = order_of(numbers, hashes.astype(np.int64))
    starts = runs.changes(numbers[by_hash], hashes[by_hash])
    if _differ(frame[by_hash], starts):  # rows that share a hash
        members = frame.with_columns(pl.Series("_seq_position", numbers)).with_row_index("_seq_row")
        grouped = members.group_by("_seq_position", *columns, maintain_order=True).agg("_seq_row")
        by_hash = grouped["_seq_row"].explode().to_numpy().astype(np.int64)
        starts = np.zeros(len(by_hash), np.bool_)
        lengths = grouped["_seq_row"].list.len().to_numpy().astype(np.int64)
        starts[np.cumsum(lengths) - lengths] = True
    order[several], begins[several] = order[several[by_hash]], starts
    return order, np.flatnonzero(begins)


def _differ(rows: pl.DataFrame, begins: Flags) -> bool:
    """Return whether a row that begins nothing differs from the one before it."""
    follows = pl.Series(~begins)
    return any((column.ne_missing(column.shift()) & follows).any() for column in rows.iter_columns())


def are_equal(rows: pl.DataFrame, columns: Iterable[str], one: Ints, other: Ints) -> Flags:
    """Return a mask of the pairs of rows that are equal in some columns.

    Args:
        rows: a frame.
        columns: those that are compared.
        one: indices of rows, -1 for one whose columns are null.
        other: those to compare with.
    """
    found: Flags = one == other
    (left,) = (~found).nonzero()
    for name in sorted(columns, key=lambda each: not rows.schema[each].is_temporal()):  # instants differ most often
        if not len(left):
            return found
        column = rows.select(name)
        pair = [taken(column, each[left]).to_series() for each in (one, other)]
        left = left[pair[0].eq_missing(pair[1]).to_numpy()]
    found[left] = True
    return found


def emitted(rows: pl.DataFrame, index: Ints, at: Ints, weights: Ints) -> pl.DataFrame:
    """Return changes of some rows.

    Args:
        rows: a frame.
        index: the row of each change.
        at: the instant of each, in µs.
        weights: of each.
    """
    return gathered(rows, index).with_columns(instants(AT, at), pl.Series(WEIGHT, weights, pl.Int64))
