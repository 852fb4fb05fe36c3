"""Numbers for the groups of an aggregation, whatever the types of their columns."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from umbel.operators.tiling import ID
from umbel.state.keys import encode_keys

CODE = "_key_code"


class Groups:
    """The different groups among rows, numbered in the order they first occur.

    Args:
        rows: where they are from.
        columns: those that make a group.
    """

    def __init__(self, rows: pl.DataFrame, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._first = self._coded(rows.select(self._columns)).unique(CODE, keep="first", maintain_order=True)
        self._numbers = self._first.select(CODE).with_row_index(ID)

    def __len__(self) -> int:
        return self._first.height

    @property
    def columns(self) -> pl.DataFrame:
        """What makes each group."""
        return self._first.select(self._columns)

    def known(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of these groups."""
        return self._coded(rows).join(self._numbers, on=CODE, how="semi").drop(CODE)

    def numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of these groups with `_key_id`, the number of theirs."""
        return self._coded(rows).join(self._numbers, on=CODE, how="left", maintain_order="left").drop(CODE)

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows that have `_key_id` with the columns of the group instead."""
        return pl.concat([self.columns[rows[ID]], rows.drop(ID)], how="horizontal")

    def _coded(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(encode_keys(rows.select(self._columns)).alias(CODE))
