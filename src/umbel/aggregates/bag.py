"""Values with how often they occur, as list columns: the state of aggregates that cannot be subtracted.

One column for each part of an item and one for its count, all of equal length in a row. Counts may be negative as long as the
insertions they cancel have not been merged in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from umbel.aggregates.aggregate import Partial
from umbel.aggregates.columns import Columns
from umbel.aggregates.held import Held, Ints, Spans, counted

ROW = "_row"


@dataclass(frozen=True, slots=True)
class Bag:
    """The parts of the items.

    Args:
        by: the parts that tell items apart, in the order they are sorted by.
        count: the part that counts them.
    """

    by: tuple[str, ...]
    count: str

    @property
    def parts(self) -> list[str]:
        """All parts."""
        return [*self.by, self.count]

    def state(self, *dtypes: pl.DataType) -> dict[str, pl.DataType]:
        """Return the columns of the state; `dtypes` are those of the parts in `by`."""
        return {part: pl.List(dtype) for part, dtype in zip(self.parts, [*dtypes, pl.Int64()], strict=True)}

    def lift(self, parts: Mapping[str, pl.Expr], where: pl.Expr | None = None) -> Partial:
        """Return the items of a group of rows, of those that fulfil `where`."""
        return {part: value if where is None else value.filter(where) for part, value in parts.items()}

    def merge(self, state: Columns) -> Partial:
        """Return the items of all bags of a group."""
        return {part: state[part].explode(keep_nulls=False) for part in self.parts}

    def tidy(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Sum the counts of equal items, drop what is zero, sort."""
        return self.put(states, state, self.summed(self.rows(states, state)))

    def summed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return items with the counts of equal ones summed, in order, without those that cancel out."""
        counted = rows.group_by(ROW, *self.by).agg(pl.col(self.count).sum()).filter(pl.col(self.count) != 0)
        return counted.sort(ROW, *self.by)

    def rows(self, states: pl.DataFrame, state: Columns) -> pl.DataFrame:
        """Return one row for each item, with `_row`, the number of the state it belongs to."""
        lists = states.select(state[part].alias(part) for part in self.parts)
        return lists.with_row_index(ROW).explode(self.parts, keep_nulls=False)

    def put(self, states: pl.DataFrame, state: Columns, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the states with other items: `rows` as `rows` returned them, ordered by `_row`."""
        lists = rows.group_by(ROW, maintain_order=True).agg(self.parts)
        columns = [self.spread(lists.select(ROW, part), states.height).alias(state.name(part)) for part in self.parts]
        return states.with_columns(columns)

    def present(self, held: Held, state: Columns) -> tuple[list[Any], Ints, Spans]:
        """Return the different values of a bag of values in order, null first; and those each question has, once and in order."""
        items = held.items(*map(state.name, self.parts))
        values, counts = items.values
        different, codes = values.ranked()
        firsts, sums = counted((items.owners, codes), counts.stored)
        firsts = firsts[sums > 0]
        return different, codes[firsts], Spans(items.owners[firsts], items.size)

    @staticmethod
    def spread(found: pl.DataFrame, height: int) -> pl.Series:
        """Return `height` values: those of the second column of `found` at the rows in its `_row`; else null, or no items."""
        name = found.columns[1]
        numbers = pl.select(pl.int_range(height, dtype=pl.UInt32).alias(ROW))
        values = numbers.join(found.cast({ROW: pl.UInt32}), on=ROW, how="left", maintain_order="left")[name]
        return values.fill_null([]) if isinstance(values.dtype, pl.List) else values
