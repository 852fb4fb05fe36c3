"""Upserts: rows as versions of their keys, and the resulting changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.changes.numbered import (
    BEGUN,
    GONE,
    LOWEST,
    NEVER,
    States,
    Versions,
    advanced,
    are_equal,
    emitted,
    instants,
    micros,
    order_by_sequence,
    sequence,
    taken,
)
from umbel.changes.versions import ALIVE, KEY, TIME, changelog, difference
from umbel.state.keys import encode_columns
from umbel.state.numbered_keys import KeyRanges, NumberedKeys
from umbel.state.runs.sorting import gathered, order_of
from umbel.types.schema import AT, REPLACING, SEQ, TRUNCATION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.changes.runs import Flags, Ints
    from umbel.state.tables import TimedTable


_REPLACES = "_seq_replaces"
_IS_REPLACED = pl.when(_REPLACES).then(SEQ).otherwise(LOWEST).cum_max().over(KEY) > pl.col(SEQ)
"""Of versions sorted by key, time and `_seq`: whether one before it that came later replaces it."""


def with_key(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Add `_key`, the encoded key of each row."""
    return frame.with_columns(encode_columns(frame, columns).alias(KEY))


def upsert(rows: pl.DataFrame, versions_table: TimedTable) -> pl.DataFrame:
    """Splice rows into the version history of their keys; return the resulting changes.

    Args:
        rows: changes with `_key`. A weight of +1 starts a version at `_at`, −1 ends the key's row there. Of one key and
            instant the row with the largest `_seq` wins; if rows of several sources have the same one, that with the largest
            values. A weight of ±`REPLACING` does the same, and removes the versions of smaller `_seq` that begin later.
        versions_table: the versions so far; written.
    """
    keys, owners = NumberedKeys.of(rows[KEY])
    starts = _begun(rows)
    replaces = starts[_REPLACES].to_numpy()
    spans = spans_of(len(keys.keys), owners, micros(rows, AT))
    spans.high[owners[replaces]] = NEVER
    number, before = versions_table.entries(keys, spans, before=True, after=True)
    both = pl.concat([before, starts.select(before.columns)])
    former = Versions.of(before, number)
    every = Versions.of(both, np.concatenate((number, owners)))
    winners = every.where(_winners(every, both, before.height))
    is_new = winners.rows >= before.height
    gone = np.zeros(len(winners.rows), np.bool_)
    if replaces.any():
        gone = _replaced(every, sequence(both), np.append(np.zeros(before.height, np.bool_), replaces))
    _write(winners, is_new, gone, both, keys, versions_table)
    return _difference(former, winners.where(~gone), is_new[~gone], both.drop(TIME, ALIVE))


def _begun(rows: pl.DataFrame) -> pl.DataFrame:
    """Return changes as versions.

    Added are when each begins, whether as a row, and whether it replaces later ones.
    """
    is_alive, replaces = pl.col(WEIGHT) > 0, pl.col(WEIGHT).abs() == REPLACING
    return rows.with_columns(pl.col(AT).alias(TIME), is_alive.alias(ALIVE), replaces.alias(_REPLACES))


def _replaced(every: Versions, sequence: Ints, replaces: Flags) -> Flags:
    """Return for each key and instant, sorted by these, whether the current version is replaced.

    Args:
        every: all versions, in any order.
        sequence: the `_seq` of each.
        replaces: mask of those that replace others.
    """
    rows = pl.DataFrame({KEY: every.owners, TIME: every.times, SEQ: sequence, _REPLACES: replaces})
    marked = rows.sort(KEY, TIME, SEQ).with_columns(_IS_REPLACED.alias(_REPLACES))
    found: Flags = marked.unique([KEY, TIME], keep="last", maintain_order=True)[_REPLACES].to_numpy()
    return found


def _write(
    versions: Versions,
    is_new: Flags,
    gone: Flags,
    rows: pl.DataFrame,
    keys: NumberedKeys,
    versions_table: TimedTable,
) -> None:
    """Write new versions, and remove what may be stored where they are gone."""
    written = versions.where(is_new | gone)
    if not gone.any():
        versions_table.write_numbered(keys, written.owners, gathered(rows, written.rows))
        return
    removed = gone[is_new | gone]
    entries = taken(rows.drop(TIME), np.where(removed, -1, written.rows)).with_columns(instants(TIME, written.times))
    versions_table.write_numbered(keys, written.owners, entries.select(rows.columns).cast(rows.schema), removed)


def spans_of(keys: int, owners: Ints, times: Ints) -> KeyRanges:
    """Return one range per numbered key: [smallest time, largest time + 1).

    Args:
        keys: how many there are; each owns a time.
        owners: the number of the key of each time.
        times: in µs.
    """
    low, high = np.full(keys, NEVER), np.full(keys, LOWEST)
    np.minimum.at(low, owners, times)
    np.maximum.at(high, owners, times)
    return KeyRanges(np.arange(keys), low, high + 1)


def _winners(every: Versions, rows: pl.DataFrame, stored: int) -> Ints:
    """Return the current version of each key and instant, sorted by these.

    That is the one with the largest `_seq`. A stored version stands for new ones that are equal to it.

    Args:
        every: versions in any order, the stored ones first.
        rows: their rows.
        stored: how many are stored.
    """
    order = order_by_sequence(sequence(rows), every.owners, every.times)
    is_same = ~runs.changes(every.owners[order], every.times[order])
    ordered = sequence(rows)[order]
    ties = is_same[1:] & (ordered[1:] == ordered[:-1])
    names = sorted({*rows.columns} - {TIME, SEQ, ALIVE})
    if ties.any():
        numbered = rows.with_columns(pl.Series(KEY, every.owners)).with_row_index("_seq_row")
        order = (
            numbered.sort(KEY, TIME, SEQ, ALIVE, *names, maintain_order=True)["_seq_row"].to_numpy().astype(np.int64)
        )
    is_last = np.append(~is_same[1:], len(order) > 0)[: len(order)]
    found: Ints = order[is_last]
    if ties.any():
        (last,) = is_last.nonzero()
        previous = np.maximum(last - 1, 0)
        pairs = np.flatnonzero(is_same[last] & (found >= stored) & (order[previous] < stored))
        own, other = found[pairs], order[previous[pairs]]
        pairs = pairs[are_equal(rows, [SEQ, ALIVE, *names], own, other)]
        found[pairs] = order[previous[pairs]]
    return found


def _difference(former: Versions, later: Versions, is_new: Flags, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the changes from some versions to later ones: retractions first.

    Args:
        former: the versions before.
        later: those after.
        is_new: mask of the later ones that were not there before.
        rows: the rows of both.
    """
    ends, until = former.ends(), later.ends()
    stays = later.rows[~is_new]
    after = np.full(len(ends), LOWEST)  # where a version does not stay
    after[stays] = until[~is_new]
    removed = former.alive & (after == LOWEST)
    reopened = former.alive & (ends != after) & (ends != NEVER)
    moved = former.alive & (ends != after) & (after != NEVER) & (after != LOWEST)
    begun = later.alive & is_new
    ended = begun & (until != NEVER)
    events = [
        (former.rows[removed], former.times[removed], -1),
        (former.rows[reopened], ends[reopened], 1),
        (later.rows[begun], later.times[begun], 1),
        (former.rows[moved], after[moved], -1),
        (later.rows[ended], until[ended], -1),
    ]
    index, at = (np.concatenate([event[part] for event in events]) for part in (0, 1))
    weights = np.repeat([weight for _, _, weight in events], [len(found) for found, _, _ in events])
    return emitted(rows, index, at, weights)


def spread(rows: pl.DataFrame, versions_table: TimedTable) -> pl.DataFrame:
    """Replace each truncation by the ends of all rows that are there then.

    A row before it that begins later ends where it begins.

    Args:
        rows: changes with `_key`; a truncation has the weight `TRUNCATION`.
        versions_table: the versions so far.
    """
    is_truncation = pl.col(WEIGHT) == TRUNCATION
    truncations = rows.filter(is_truncation).select(AT, SEQ).sort(SEQ).rows()
    if not truncations:
        return rows
    rest = rows.filter(~is_truncation)
    before = versions_table.all().with_columns(pl.lit(False).alias(_REPLACES))
    versions, ended = pl.concat([before, _begun(rest).select(before.columns)]), list[pl.DataFrame]()
    for at, seq in truncations:
        there = versions.filter(pl.col(SEQ) < seq).sort(KEY, TIME, SEQ).filter(~_IS_REPLACED)
        last = there.unique([KEY, TIME], keep="last", maintain_order=True)
        now = last.filter(pl.col(TIME) <= at).unique(KEY, keep="last", maintain_order=True)
        instant = pl.lit(at).cast(last.schema[TIME]).alias(TIME)
        ends = pl.concat([now.with_columns(instant), last.filter(pl.col(TIME) > at)]).filter(ALIVE)
        marks = (pl.lit(False).alias(name) for name in (ALIVE, _REPLACES))
        ended.append(ends.with_columns(pl.lit(seq, pl.Int64).alias(SEQ), *marks))
        versions = pl.concat([versions, ended[-1]])
    made = pl.concat(ended).with_columns(pl.col(TIME).alias(AT), pl.lit(-1, pl.Int64).alias(WEIGHT))
    return pl.concat([rest, made.select(rest.columns)])


def overlay(
    changes: pl.DataFrame, rows: pl.DataFrame, made: TimedTable, direct: TimedTable, versions_table: TimedTable
) -> pl.DataFrame:
    """Splice rows into the version history of a derived dataset; return the combined changes.

    Of one key and instant a row wins over one of the pipeline. The pipeline ends only its own rows: a row already superseded is
    not ended.

    Args:
        changes: changes with `_key`, as an operator emitted them.
        rows: changes with `_key`, each the current row of its key from its time on.
        made: the versions of `changes` so far; written.
        direct: those of `rows`; written.
        versions_table: both combined; written.
    """
    if changes.height:
        follow(changes, made)
    if rows.height:
        upsert(rows, direct)
    keys = pl.concat([changes.select(KEY), rows.select(KEY)]).unique()
    whole = keys.with_columns(pl.lit(None, pl.Datetime("us", "UTC")).alias(bound) for bound in ("_low", "_high"))
    parts = [each.scan(whole).with_columns(pl.lit(part).alias("_part")) for part, each in enumerate((made, direct))]
    after = _laid_over(pl.concat(parts))
    before = versions_table.scan(whole)
    versions_table.replace(pl.concat([each.select(KEY, TIME) for each in (before, after)]).unique(), after)
    return difference(changelog(before), changelog(after)).drop(KEY)


def _laid_over(versions: pl.DataFrame) -> pl.DataFrame:
    """Merge several version histories into one; the later `_part` wins at equal instants."""
    first = versions.sort(KEY, TIME, ALIVE, "_part").unique([KEY, TIME], keep="last", maintain_order=True)
    current = pl.when(ALIVE).then("_part").forward_fill().over(KEY)
    return first.filter(pl.col(ALIVE) | (pl.col("_part") == current)).drop("_part")


def follow(changes: pl.DataFrame, versions_table: TimedTable) -> None:
    """Apply the changes of a derived dataset to its stored version history.

    Args:
        changes: changes with `_key`, as an operator emitted them.
        versions_table: the versions so far; written.
    """
    if changes.is_empty():
        return
    keys, owners = NumberedKeys.of(changes[KEY])
    at, begins = micros(changes, AT), (changes[WEIGHT] > 0).to_numpy()
    order = order_by_sequence(sequence(changes), owners, at, begins.astype(np.int64))
    starts = runs.changes(owners[order], at[order])
    first, sizes = np.flatnonzero(starts), runs.lengths(starts)
    points = order[first]
    stored, known = versions_table.entries(keys, KeyRanges(owners[points], at[points], at[points] + 1))
    is_summed = _is_summed(changes, begins, order, first, sizes)
    is_summed[stored] = True
    chosen = order[(first + sizes - 1)[~is_summed]]
    found = States(owners[chosen], at[chosen], begins[chosen].astype(np.int64), np.where(begins[chosen], chosen, -1))
    rows, summed = changes, order[np.repeat(is_summed, sizes)]
    if len(summed):
        rows, more = _corrected(changes, summed, keys, owners, versions_table)
        found = _both(found, more)
    columns = [name for name in known.columns if name not in (TIME, ALIVE)]
    there = pl.when(pl.lit(pl.Series(found.states != GONE)))
    written = taken(rows.select(columns), found.rows).with_columns(
        instants(TIME, found.times), there.then(pl.lit(pl.Series(found.states == BEGUN))).alias(ALIVE)
    )
    ordered = written.select(known.columns).cast(known.schema)
    versions_table.write_numbered(keys, found.owners, ordered, found.states == GONE)


def _both(one: States, other: States) -> States:
    """Return the instants of both, sorted; none is in both."""
    owners, times, states, rows = (
        np.concatenate((getattr(one, name), getattr(other, name))) for name in ("owners", "times", "states", "rows")
    )
    order = order_of(owners, times)
    return States(owners[order], times[order], states[order], rows[order])


def _corrected(
    changes: pl.DataFrame, summed: Ints, keys: NumberedKeys, owners: Ints, versions_table: TimedTable
) -> tuple[pl.DataFrame, States]:
    """Return the states at the instants of some changes, and the rows they refer to.

    Versions may be stored at these instants.

    Args:
        changes: the changes.
        summed: the indices of those to apply.
        keys: of the changes.
        owners: the number of the key of each change.
        versions_table: the versions before.
    """
    at, own = micros(changes, AT), owners[summed]
    spans = spans_of(len(keys.keys), own, at[summed])
    used = np.flatnonzero(spans.low != NEVER)
    ranges = KeyRanges(used, spans.low[used], spans.high[used])
    number, before = versions_table.entries(keys, ranges, before=True)
    columns = [name for name in before.columns if name not in (TIME, ALIVE) and name in changes.columns]
    rows = pl.concat([changes.select(columns), before.select(columns)])
    stored = Versions.of(before, ranges.owners[number])
    versions = Versions(stored.owners, stored.times, stored.alive, stored.rows + changes.height)
    weights = changes[WEIGHT].to_numpy()[summed]
    applied = Versions(own, at[summed], weights > 0, summed)
    return rows, advanced(versions, applied, weights, rows, columns)


def _is_summed(changes: pl.DataFrame, begins: Flags, order: Ints, first: Ints, sizes: Ints) -> Flags:
    """Return a mask of the instants at which equal rows may cancel out.

    Sums decide there. At the others a row that begins decides, the last of several, else one that ends.

    Args:
        changes: the changes.
        begins: mask of those with a positive weight.
        order: of the changes by key, instant, weight and `_seq`.
        first: where each key and instant begins in the order.
        sizes: how many changes each has.
    """
    ended, begun = order[first], order[first + sizes - 1]
    is_mixed = ~begins[ended] & begins[begun]
    is_summed: Flags = is_mixed & (sizes > 2)
    pairs = np.flatnonzero(is_mixed & (sizes == 2))
    columns = [SEQ, *(name for name in changes.columns if name not in (SEQ, AT, KEY, WEIGHT))]
    is_summed[pairs] = are_equal(changes, columns, ended[pairs], begun[pairs])
    return is_summed
