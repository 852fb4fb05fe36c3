"""Collected tables: weighted rows that are added to a shard without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import polars as pl

from umbel.state.runs.rules import KEY, KEY_ID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from umbel.state.numbered_keys import KeyRanges, NumberedKeys
    from umbel.state.port import Reader, Transaction
    from umbel.state.runs.addresses import Ints

INSTANT = pl.Datetime("us", "UTC")
TIME = "_time"


class StoredRows:
    """A table of a shard: a view, its full name, its columns in order."""

    __slots__ = ("_columns", "_name", "_reader")

    def __init__(self, reader: Reader, name: str, columns: Iterable[str]) -> None:
        self._reader, self._name, self._columns = reader, name, tuple(columns)

    def _ordered(self, found: pl.DataFrame, *address: pl.Series) -> pl.DataFrame:
        """Return found rows with their address and the columns as defined."""
        return pl.DataFrame([*address, *(found.get_column(name) for name in self._columns)])

    def expire(self, until: datetime) -> None:
        """Drop the rows that expire up to an instant.

        They are not returned any more, and the next merge removes them. Of a folded table, merges may drop what is behind it.
        """
        cast("Transaction", self._reader).expire(self._name, until)

    def _put(self, touched: pl.DataFrame, rows: pl.DataFrame) -> None:
        cast("Transaction", self._reader).replace(self._name, touched, rows)


class CollectedTable(StoredRows):
    """Weighted rows, addressed by an encoded key and an instant.

    Equal rows have the sum of their weights.

    Keys come from `umbel.state.keys.encode_keys`.
    """

    __slots__ = ()

    def scan(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of keys within time ranges.

        Args:
            ranges: [_key, _low, _high]: low <= time < high; null is unbounded. The ranges of a key do not overlap.

        Returns:
            [_key, _time, *columns, _weight], sorted by key and time.
        """
        keys, low, high = (ranges[name] for name in (KEY, "_low", "_high"))
        found = self._reader.ranges(self._name, keys, low, high).sort(KEY, TIME, maintain_order=True)
        return self._ordered(found, found[KEY], found[TIME])

    def entries(self, keys: NumberedKeys, ranges: KeyRanges) -> tuple[Ints, pl.DataFrame]:
        """Return the rows of numbered keys within time ranges, sorted by range and time.

        Args:
            keys: the keys.
            ranges: of these keys; the ranges of a key do not overlap.

        Returns:
            The number of each row's range, and the rows: [_time, *columns, _weight].
        """
        found = self._reader.ranges_of(self._name, keys, ranges)
        return found[KEY_ID].to_numpy(), self._ordered(found, found[TIME])

    def append(self, rows: pl.DataFrame) -> None:
        """Add rows: [_key, _time, *columns, _weight]. A negative weight takes equal rows away."""
        cast("Transaction", self._reader).append(self._name, rows)

    def append_numbered(self, keys: NumberedKeys, owners: Ints, rows: pl.DataFrame) -> None:
        """Add rows sorted by the number of their key and by time.

        Args:
            keys: the keys.
            owners: the number of each row's key.
            rows: [_time, *columns, _weight].
        """
        cast("Transaction", self._reader).append_numbered(self._name, keys, owners, rows)
