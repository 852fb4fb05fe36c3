"""The partial states of an aggregation: one for each algebra, side by side in the columns of a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.columns import Columns
from umbel.operators.runs import Flags, Ints, lengths, numbers
from umbel.types.schema import WEIGHT, Schema

GROUP = "_key_group"


@dataclass(frozen=True)
class Partials:
    """The states of some aggregates; equal algebras share one.

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

    @property
    def contents(self) -> dict[str, pl.DataType]:
        """The columns that say what states hold, without those that say what the others are measured from."""
        origins = {at.name(part) for each, at in self.parts for part in each.origins}
        return {name: dtype for name, dtype in self.columns.items() if name not in origins}

    def only(self, aggregates: Iterable[Aggregate]) -> Partials:
        """Return the states these aggregates need."""
        needed = {each.algebra for each in aggregates}
        return Partials(tuple((each, at) for each, at in self.parts if each in needed))

    def lift(self, rows: pl.DataFrame, begins: Flags, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return one state for each run of rows, with `others`."""
        lifted = [expression for each, at in self.parts for expression in at.full(each.lift(at))]
        return self._tidied(_grouped(rows, begins).agg(*others, *lifted).drop(GROUP))

    def merge(self, states: pl.DataFrame, begins: Flags, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return one state for each run of states, with `others`; states alone in their run stay as they are."""
        sizes = lengths(begins)
        alone = sizes == 1
        if alone.all():
            return states
        is_alone = np.repeat(alone, sizes)
        merged = self._merged(states.filter(~is_alone), begins[~is_alone], others).select(states.columns)
        order = np.argsort(np.concatenate((np.flatnonzero(alone), np.flatnonzero(~alone))), kind="stable")
        return pl.concat([states.filter(is_alone), merged], rechunk=True)[order]

    def accumulate(self, states: pl.DataFrame, slots: Ints, others: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return for each state the merge of it and all before it in its slot; slots are in order."""
        places = np.arange(len(slots)) - np.searchsorted(slots, slots)
        reach, farthest = 1, int(places.max(initial=0))
        while reach <= farthest:
            later = np.flatnonzero(places >= reach)
            rows = np.concatenate((np.arange(len(slots)), later))
            sources = np.concatenate((np.arange(len(slots)), later - reach))
            order = np.argsort(rows, kind="stable")
            owners = rows[order]
            begins = np.concatenate(([True], owners[1:] != owners[:-1]))
            states = self.merge(states[sources[order]], begins, others)
            reach *= 2
        return states

    def settle(self, states: pl.DataFrame) -> pl.DataFrame:
        """Drop what states hold only so that rows can be taken back."""
        for each, at in self.parts:
            states = each.settle(states, at)
        return states

    def results(
        self, states: pl.DataFrame, aggregates: Iterable[Aggregate], *, are_told: bool = False
    ) -> list[pl.Series]:
        """Return the value of each aggregate, named after its field; null states have the empty value.

        Args:
            states: `_weight`, the state columns and, where aggregates need the instant asked for, `_time`.
            aggregates: those wanted.
            are_told: whether the values are those of rows, where nobody asks: what does not fit its type is null.
        """
        places = dict(self.parts)
        found: list[pl.Series] = []
        for each in aggregates:
            worth = each.told if are_told else each.result
            value = worth(states, places[each.algebra])
            column = states.select(value).to_series() if isinstance(value, pl.Expr) else value
            found.append(column.alias(each.into_field))
        return found

    def empty(self) -> list[pl.Expr]:
        """Return the states of nothing."""
        return [pl.lit(None, dtype).alias(name) for name, dtype in self.columns.items()]

    def _merged(self, states: pl.DataFrame, begins: Flags, others: Sequence[pl.Expr]) -> pl.DataFrame:
        parts = [expression for each, at in self.parts for expression in at.full(each.merge(at))]
        return self._tidied(_grouped(states, begins).agg(*others, *parts).drop(GROUP))

    def _tidied(self, states: pl.DataFrame) -> pl.DataFrame:
        for each, at in self.parts:
            states = each.tidy(states, at)
        return states.cast({name: dtype for name, dtype in self.columns.items() if states.schema[name] != dtype})


def _grouped(frame: pl.DataFrame, begins: Flags) -> pl.dataframe.group_by.GroupBy:
    """Group rows by the runs they are in; the runs being in order makes it a matter of cutting slices."""
    group = pl.Series(GROUP, numbers(begins).astype(np.uint32)).set_sorted()
    return frame.with_columns(group).group_by(GROUP, maintain_order=True)


def total_weight() -> pl.Expr:
    """Return the net number of rows of a group."""
    return pl.col(WEIGHT).sum()
