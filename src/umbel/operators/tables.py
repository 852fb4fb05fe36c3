"""What a kernel sees of the state: tables of its own operator in one shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl


class Table(Protocol):
    """Groups of rows addressed by an encoded key, or by an encoded key and an instant."""

    def get(self, keys: pl.Series) -> pl.DataFrame:
        """Return `[_key, *columns]` of the keys that exist."""

    def replace(self, keys: pl.Series, rows: pl.DataFrame) -> None:
        """Replace the rows of every key in `keys` by those in `rows` (`[_key, *columns]`)."""

    def scan(self, ranges: pl.DataFrame, *, before: bool = False, after: bool = False) -> pl.DataFrame:
        """Return `[_key, _time, *columns]` with `_low <= _time < _high` for `ranges` `[_key, _low, _high]`.

        Args:
            ranges: null bounds are open.
            before: add the nearest entry before each range.
            after: add the nearest entry after each range.
        """

    def floor(self, points: pl.DataFrame) -> pl.DataFrame:
        """Return `[_point, _time, *columns]`: the latest entry not after each point `[_key, _time]`."""

    def replace_at(self, entries: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Replace the rows of every entry `[_key, _time]` by those in `rows` (`[_key, _time, *columns]`)."""

    def all(self) -> pl.DataFrame:
        """Return `[_key, *columns]` of the whole shard."""

    def all_at(self) -> pl.DataFrame:
        """Return `[_key, _time, *columns]` of the whole shard."""


class State(Protocol):
    """One operator's tables in one shard, inside a transaction or a snapshot."""

    def table(self, name: str, columns: Mapping[str, pl.DataType]) -> Table:
        """Return one of the operator's tables."""

    def of(self, owner: str) -> State:
        """Return the state of another operator in the same shard."""
