"""The partial states of an aggregation: one per algebra, as columns of a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.columns import Columns
from umbel.changes import runs
from umbel.changes.runs import Flags, Ints, lengths, numbers
from umbel.state.runs.sorting import gathered
from umbel.state.values import Array
from umbel.types.schema import WEIGHT, Schema

GROUP = "_key_group"
DOUBLED = 64
"""Up to so many states, the number of calls costs more than what each of them merges."""


@dataclass(frozen=True)
class Partials:
    """The partial states of some aggregates; equal algebras share one.

    Args:
        parts: each algebra with its columns.
    """

    parts: tuple[tuple[Aggregate, Columns], ...]

    @classmethod
    def of(cls, aggregates: Iterable[Aggregate], rows: Schema, *, is_retractable: bool) -> Partials:
        """Return the states of `aggregates` over `rows`."""
        algebras = dict.fromkeys(each.algebra for each in aggregates)
        parts = (
            (each, Columns(each.column or "", each.input(rows), f"_state{number}.", is_retractable))
            for number, each in enumerate(algebras)
        )
        return cls(tuple(parts))

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of all states."""
        return {name: dtype for each, at in self.parts for name, dtype in at.schema(each.state(at)).items()}

    @cached_property
    def _lifted(self) -> list[pl.Expr]:
        return [expression for each, at in self.parts for expression in at.full(each.lift(at))]

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns of rows that their states are made of."""
        return frozenset(name for each in self._lifted for name in each.meta.root_names())

    def only(self, aggregates: Iterable[Aggregate]) -> Partials:
        """Return the states needed by some aggregates."""
        needed = {each.algebra for each in aggregates}
        return Partials(tuple((each, at) for each, at in self.parts if each in needed))

    def lift(self, rows: pl.DataFrame, begins: Flags, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return one state for each run of rows, with the expressions in `others`."""
        return self._tidied(_grouped(rows, begins).agg(*others, *self._lifted).drop(GROUP))

    def merge(self, states: pl.DataFrame, begins: Flags, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return one merged state for each run of states, with the expressions in `others`.

        States alone in their run are returned unchanged.
        """
        sizes = lengths(begins)
        alone = sizes == 1
        if alone.all():
            return states
        is_alone = np.repeat(alone, sizes)
        merged = self._merged(states.filter(~is_alone), begins[~is_alone], others).select(states.columns)
        if not alone.any():
            return merged
        places = np.where(alone, np.flatnonzero(begins), len(states) - 1 + np.cumsum(~alone))
        return gathered(pl.concat([states, merged], rechunk=True), places)

    def accumulate(self, states: pl.DataFrame, slots: Ints, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return for each state its running merge within its slot; slots are in order.

        The running merges of pairs of neighbours are those of every second state, and the others continue from them: each result
        is merged once, from two states.
        """
        positions = np.arange(len(slots)) - np.searchsorted(slots, slots)
        if len(slots) <= DOUBLED or not positions.any():
            return self._doubled(states, positions, others)
        begins = positions % 2 == 0
        pairs = self.accumulate(self.merge(states, begins, others), slots[begins], others)
        mine = numbers(begins)
        before = np.where(begins, mine - 1, mine)
        sources = np.stack((before, len(pairs) + np.arange(len(slots)))).T
        read = np.stack((positions > 0, begins)).T
        owners = np.nonzero(read)[0]
        both = gathered(pl.concat([pairs, states], rechunk=True), sources[read])
        return self.merge(both, runs.changes(owners), others)

    def _doubled(self, states: pl.DataFrame, positions: Ints, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return the same, by half as many calls, each of which merges nearly all states."""
        offset = 1
        while (later := np.flatnonzero(positions >= offset)).size:
            rows = np.concatenate((np.arange(len(positions)), later))
            sources = np.concatenate((np.arange(len(positions)), later - offset))
            order = np.argsort(rows, kind="stable")
            states = self.merge(states[sources[order]], runs.changes(rows[order]), others)
            offset *= 2
        return states

    def accumulate_in_order(self, states: pl.DataFrame, slots: Ints, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return the same, with floats added one after the other.

        What continues from a merge of the first states, which then are forgotten, has the same last digit.
        """
        floats = [(each, at) for each, at in self.parts if any(t.is_float() for t in each.state(at).values())]
        rounded = [part for part in floats if not part[0].is_associative]
        slow = Partials(tuple(part for part in rounded if not part[0].is_additive))
        fast = Partials(tuple(part for part in self.parts if part not in slow.parts))
        merged = fast.accumulate(states.drop(slow.columns), slots, others)
        bounds = [*np.flatnonzero(runs.changes(slots)).tolist(), len(slots)]
        sums = list[pl.Series]()
        for each, at in rounded:
            if each.is_additive:
                parts = each.addends(states, at, slots).select(list(at.schema(each.state(at))))
                decay = each.decay(states, at, slots)
                sums += [_running(part, bounds, decay) for part in parts if _has_floats(part)]
        return merged.with_columns(*sums, *slow._one_by_one(states, slots)).select(states.columns)

    def _one_by_one(self, states: pl.DataFrame, slots: Ints) -> list[pl.Series]:
        """Return the columns of running merges, of which each continues the one before it."""
        states = states.select(list(self.columns))
        if states.is_empty():  # or no part is merged so
            return states.get_columns()
        positions = np.arange(len(slots)) - np.searchsorted(slots, slots)
        rows = np.argsort(positions, kind="stable")
        bounds = np.flatnonzero(np.diff(positions[rows], prepend=-1, append=-1))
        levels = [states[rows[: bounds[1]]]]
        for start, low, high in zip(bounds, bounds[1:], bounds[2:], strict=False):
            mine = rows[low:high]
            earlier = np.searchsorted(rows[start:low], mine - 1)
            pairs = np.stack((earlier, np.arange(low - start, high - start))).T.ravel()
            both = pl.concat([levels[-1], states[mine]])[pairs]
            levels.append(self._merged(both, np.tile([True, False], len(mine)), []).select(states.columns))
        order = np.empty(len(rows), np.int64)
        order[rows] = np.arange(len(rows))
        return pl.concat(levels, rechunk=True)[order].get_columns()

    def settle(self, states: pl.DataFrame) -> pl.DataFrame:
        """Compact states: drop the parts needed only for retractions."""
        for each, at in self.parts:
            states = each.settle(states, at)
        return states

    def results(
        self, states: pl.DataFrame, aggregates: Iterable[Aggregate], *, for_emission: bool = False
    ) -> list[pl.Series]:
        """Return the value of each aggregate, named after its field.

        Null states have the empty value.

        Args:
            states: `_weight`, the state columns and, where aggregates need the queried instant, `_time`.
            aggregates: the requested aggregates.
            for_emission: True for values of emitted rows, which are null if they do not fit their type; otherwise such values
                raise.
        """
        positions = dict(self.parts)
        found: list[pl.Series] = []
        for each in aggregates:
            worth = each.emitted if for_emission else each.result
            value = worth(states, positions[each.algebra])
            column = states.select(value).to_series() if isinstance(value, pl.Expr) else value
            found.append(column.alias(each.into_field))
        return found

    def empty(self) -> list[pl.Expr]:
        """Return expressions for an empty state: nulls."""
        return [pl.lit(None, dtype).alias(name) for name, dtype in self.columns.items()]

    def _merged(self, states: pl.DataFrame, begins: Flags, others: Sequence[pl.Expr]) -> pl.DataFrame:
        parts = [expression for each, at in self.parts for expression in at.full(each.merge(at))]
        return self._tidied(_grouped(states, begins).agg(*others, *parts).drop(GROUP))

    def _tidied(self, states: pl.DataFrame) -> pl.DataFrame:
        for each, at in self.parts:
            states = each.tidy(states, at)
        return states.cast({name: dtype for name, dtype in self.columns.items() if states.schema[name] != dtype})


def _has_floats(part: pl.Series) -> bool:
    return part.dtype.is_float() and part.null_count() < len(part)


def _running(values: pl.Series, bounds: Sequence[int], decay: Array | None) -> pl.Series:
    """Return running sums between bounds: the one before, times its decay, plus a value."""
    found = values.fill_null(0.0).to_numpy(writable=True)
    for low, high in pairwise(bounds):
        if decay is None:
            np.add.accumulate(found[low:high], out=found[low:high])
        else:
            pairs = zip(decay[low:high].tolist(), found[low:high].tolist(), strict=True)
            found[low:high] = list(accumulate(pairs, lambda total, pair: total * pair[0] + pair[1], initial=0.0))[1:]
    return pl.Series(values.name, found)


def _grouped(frame: pl.DataFrame, begins: Flags) -> pl.dataframe.group_by.GroupBy:
    """Group rows by their runs; runs are in order, so that grouping only slices."""
    group = pl.Series(GROUP, numbers(begins).astype(np.uint32)).set_sorted()
    return frame.with_columns(group).group_by(GROUP, maintain_order=True)


PAIRS = 4_000_000
"""The maximum number of (point, state) pairs processed at once, and of the items of their states."""
ASKER = "_key_asker"

Counted = Callable[[Ints, Ints], Flags]
"""Returns a mask of the pairs that count, from the positions of their points and of their states."""


def fold(
    states: pl.DataFrame, low: Ints, high: Ints, partials: Partials, counted: Counted | None = None
) -> pl.DataFrame:
    """Return the merged state of each range [low, high) of states.

    The columns are `_weight` and the state columns, which are null for an empty range.

    Args:
        states: with `_weight`.
        low: one for each point.
        high: one for each point.
        partials: the states that are merged.
        counted: selects the states of a range that count; all when None.
    """
    columns = states.select(WEIGHT, *partials.columns)
    found = list[pl.DataFrame]()
    for part in parts_of(high - low):
        point, entry = runs.expand(low[part], high[part])
        point = point + part.start
        if counted is not None:
            requested = counted(point, entry)
            point, entry = point[requested], entry[requested]
        found += merged_in_portions(columns, point, entry, partials)
    return spread(columns, found, len(low))


def merged_by_point(states: pl.DataFrame, points: Ints, rows: Ints, partials: Partials) -> pl.DataFrame:
    """Return the merged state of each point that has states, with the point's position.

    Args:
        states: `_weight` and the state columns.
        points: a position for each of their states, in order.
        rows: the positions of these.
        partials: the states that are merged.
    """
    pairs = gathered(states, rows).with_columns(pl.Series(ASKER, points))
    return partials.merge(pairs, runs.changes(points), [pl.col(ASKER).first(), pl.col(WEIGHT).sum()])


def merged_in_portions(states: pl.DataFrame, points: Ints, rows: Ints, partials: Partials) -> Iterator[pl.DataFrame]:
    """Yield the results of `merged_by_point`, each of a bounded number of items.

    Args:
        states: `_weight` and the state columns.
        points: a position for each of their states, in order.
        rows: the positions of these.
        partials: the states that are merged.
    """
    starts = np.flatnonzero(runs.changes(points))
    sizes = items_of(states)
    if sizes is None or not len(starts):
        yield merged_by_point(states, points, rows, partials)
        return
    ends = np.append(starts, len(points))
    for part in parts_of(np.add.reduceat(sizes[rows], starts)):
        mine = slice(ends[part.start], ends[part.stop])
        yield merged_by_point(states, points[mine], rows[mine], partials)


def items_of(states: pl.DataFrame) -> Ints | None:
    """Return the size of each state: one, and the items of its lists or bytes.

    None if states have no such columns.
    """
    lists = [pl.col(name).list.len() for name, dtype in states.schema.items() if isinstance(dtype, pl.List)]
    binary = [pl.col(name).bin.size() // 8 for name, dtype in states.schema.items() if dtype == pl.Binary]
    sizes = [each.cast(pl.Int64).fill_null(0) for each in (*lists, *binary)]
    return states.select(1 + pl.sum_horizontal(sizes)).to_series().to_numpy() if sizes else None


def spread(states: pl.DataFrame, merged: Sequence[pl.DataFrame], count: int) -> pl.DataFrame:
    """Return the merged state of each of `count` points, null where it has none.

    Args:
        states: with the columns of the result.
        merged: results of `merged_by_point`.
        count: the number of points.
    """
    empty = states.clear().with_columns(pl.lit(0, pl.Int64).alias(ASKER))
    found = pl.concat([empty, *merged], rechunk=True)
    position = np.full(count, -1)
    position[found[ASKER].to_numpy()] = np.arange(len(found))
    index = pl.Series(position).set(pl.Series(position < 0), None)
    return found.select(pl.exclude(ASKER).gather(index)).with_columns(pl.col(WEIGHT).fill_null(0))


def parts_of(sizes: Ints, most: int | None = None) -> Iterator[slice]:
    """Yield slices of the points with a bounded number of pairs each, by default `PAIRS`."""
    total = np.cumsum(np.maximum(sizes, 0))
    start = 0
    while start < len(sizes):
        done = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + (most or PAIRS), "right")))
        yield slice(start, stop)
        start = stop
