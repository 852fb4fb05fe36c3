"""Multisets as list columns: the state of aggregates that have no inverse.

There is one column for each part of an item and one for its count, all of equal length in a row. Counts may be negative as long
as the insertions they cancel have not been merged in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from umbel.aggregates.aggregate import Partial
from umbel.aggregates.columns import Columns
from umbel.aggregates.point_states import Ints, PointStates, Spans, counted

ROW = "_row"


@dataclass(frozen=True, slots=True)
class Bag:
    """The parts of the items of a multiset.

    Args:
        by: the parts that identify an item, in sort order.
        count: the part with the item's count.
    """

    by: tuple[str, ...]
    count: str

    @property
    def parts(self) -> list[str]:
        """All parts: those in `by`, then the count."""
        return [*self.by, self.count]

    def state(self, *dtypes: pl.DataType) -> dict[str, pl.DataType]:
        """Return the columns of the state; `dtypes` are the types of the parts in `by`."""
        return {part: pl.List(dtype) for part, dtype in zip(self.parts, [*dtypes, pl.Int64()], strict=True)}

    def lift(self, parts: Mapping[str, pl.Expr], where: pl.Expr | None = None) -> Partial:
        """Return the items of a group of rows, filtered by `where`."""
        return {part: value if where is None else value.filter(where) for part, value in parts.items()}

    def merge(self, state: Columns) -> Partial:
        """Return the concatenated items of all bags of a group."""
        return {part: state[part].explode(keep_nulls=False) for part in self.parts}

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Sum the counts of equal items, drop zero counts and sort."""
        return self.put(states, state, self.summed(self.rows(states, state)))

    def summed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the items with the counts of equal ones summed, sorted.

        Items with a count of zero are dropped.
        """
        counted = rows.group_by(ROW, *self.by).agg(pl.col(self.count).sum()).filter(pl.col(self.count) != 0)
        return counted.sort(ROW, *self.by)

    def rows(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Return one row per item, with `_row`, the position of its state."""
        lists = states.select(state[part].alias(part) for part in self.parts)
        return lists.with_row_index(ROW).explode(self.parts, keep_nulls=False)

    def put(self, states: pl.DataFrame, state: Columns, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the states with their items replaced.

        Args:
            states: the states.
            state: names the columns.
            rows: the new items, in the form returned by `rows`, ordered by `_row`.
        """
        lists = rows.group_by(ROW, maintain_order=True).agg(self.parts)
        columns = [self.spread(lists.select(ROW, part), states.height).alias(state.name(part)) for part in self.parts]
        return states.with_columns(columns)

    def present(self, states: PointStates, state: Columns) -> tuple[list[Any], Ints, Spans]:
        """Return the distinct values of a bag of values, and the values of each point.

        Returns:
            The distinct values in order, null first; the codes (positions in them) of each point's values, once each and in
            order; the points these codes belong to.
        """
        items = states.items(*map(state.name, self.parts))
        values, counts = items.values
        different, codes = values.ranked()
        firsts, sums = counted((items.owners, codes), counts.stored)
        firsts = firsts[sums > 0]
        return different, codes[firsts], Spans(items.owners[firsts], items.size)

    @staticmethod
    def spread(found: pl.DataFrame, height: int) -> pl.Series:
        """Align per-row values with a frame of `height` rows.

        The result has the second column of `found` at the positions in its `_row`; elsewhere null, or an empty list.
        """
        name = found.columns[1]
        numbers = pl.select(pl.int_range(height, dtype=pl.UInt32).alias(ROW))
        values = numbers.join(found.cast({ROW: pl.UInt32}), on=ROW, how="left", maintain_order="left")[name]
        return values.fill_null([]) if isinstance(values.dtype, pl.List) else values
