"""Integer ids for the groups of an aggregation, for key columns of any type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from umbel.changes import runs
from umbel.state.keys import encode_keys
from umbel.windowing.tiling import ID

CODE = "_key_code"
KEY = "_key"


class Groups:
    """The distinct groups among rows, numbered in order of first occurrence.

    Args:
        rows: the rows.
        columns: the key columns of the group.
    """

    def __init__(self, rows: pl.DataFrame, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._first = self._coded(rows.select(self._columns)).unique(CODE, keep="first", maintain_order=True)
        self._numbers = self._first.select(CODE).with_row_index(ID)

    def __len__(self) -> int:
        return self._first.height

    @property
    def columns(self) -> pl.DataFrame:
        """The key columns of each group."""
        return self._first.select(self._columns)

    def known(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that belong to these groups."""
        return self._coded(rows).join(self._numbers, on=CODE, how="semi").drop(CODE)

    def numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of these groups with `_key_id`, the number of their group."""
        return self._coded(rows).join(self._numbers, on=CODE, how="left", maintain_order="left").drop(CODE)

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with the key columns of their group in place of `_key_id`."""
        return pl.concat([self.columns[rows[ID]], rows.drop(ID)], how="horizontal")

    def _coded(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(encode_keys(rows.select(self._columns)).alias(CODE))


def numbered_keys(rows: pl.DataFrame, columns: tuple[str, ...]) -> tuple[pl.DataFrame, pl.Series]:
    """Return rows with `_key_id`, ordered by key, and the encoded keys.

    The encoded keys are sorted; `_key_id` is the position of a row's key among them.
    """
    ordered = runs.ordered(rows, columns)
    begins = runs.key_changes(ordered, columns)
    keys = encode_keys(ordered.filter(begins).select(columns)).alias(KEY)
    number = runs.numbers(begins)
    if not keys.is_sorted():
        order = keys.arg_sort().to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        number, keys = rank[number], keys.gather(order)
    return ordered.with_columns(pl.Series(ID, number.astype(np.uint32))), keys


def with_ids(rows: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    """Return rows with `_key_id`, the position of their key among `keys`.

    The key of every row must be in `keys`.
    """
    numbers = pl.DataFrame({KEY: keys}).with_row_index(ID)
    return rows.join(numbers, on=KEY, how="left", maintain_order="left")
