"""Erasure: rows with erased keys vanish, and are refused when they come again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from umbel.query.session import LookupSource

if TYPE_CHECKING:
    from umbel.query.few import Few
    from umbel.query.rows import Column, Instants


class Erased:
    """The keys erased, per dataset."""

    def __init__(self, keys: dict[str, pl.DataFrame] | None = None) -> None:
        self._keys = keys or {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def keys(self, dataset: str) -> pl.DataFrame | None:
        """Return the keys erased of a dataset, None for none."""
        return self._keys.get(dataset)

    def copy(self) -> Erased:
        """Return another record of the same."""
        return Erased(dict(self._keys))

    def only(self, datasets: Iterable[str]) -> Erased:
        """Return the record of some datasets."""
        return Erased({name: self._keys[name] for name in datasets if name in self._keys})

    def add(self, dataset: str, keys: pl.DataFrame) -> None:
        """Erase by keys: rows equal in these columns."""
        known = self._keys.get(dataset)
        self._keys[dataset] = keys if known is None else pl.concat([known, keys]).unique()

    def without(self, dataset: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of a dataset without those erased."""
        return rows.filter(~self.hits(dataset, rows)) if dataset in self._keys else rows

    def hits(self, dataset: str, rows: pl.DataFrame) -> pl.Series:
        """Return which rows are erased."""
        keys = self._keys.get(dataset)
        if keys is None or rows.is_empty():
            return pl.Series([False], dtype=pl.Boolean).new_from_index(0, rows.height)
        marked = keys.unique().with_columns(pl.lit(True).alias("_erased"))
        joined = rows.select(keys.columns).join(marked, on=keys.columns, how="left", maintain_order="left")
        return joined["_erased"].fill_null(False)


class Erasing:
    """Answers lookups as another source does, except on what was erased.

    Args:
        source: the other source.
        erased: what was erased.
    """

    def __init__(self, source: LookupSource, erased: Erased) -> None:
        self._source, self._erased = source, erased

    def online(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys from the live state."""
        return self._masked(dataset, keys, *self._source.online(dataset, keys, at))

    def offline(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys as of any instant, from the history."""
        return self._masked(dataset, keys, *self._source.offline(dataset, keys, at))

    def few(self, dataset: str, keys: Sequence[Column], at: Instants) -> Few | None:
        """Return the same in a shorter way, where there is one and nothing was erased."""
        return None if self._erased.keys(dataset) is not None else self._source.few(dataset, keys, at)

    def _masked(
        self, dataset: str, keys: pl.DataFrame, rows: pl.DataFrame, found: pl.Series
    ) -> tuple[pl.DataFrame, pl.Series]:
        erased = self._erased.hits(dataset, keys)
        if not erased.any():
            return rows, found
        others = [name for name in rows.columns if name not in keys.columns]
        return rows.with_columns(pl.when(~erased).then(pl.col(name)).alias(name) for name in others), found & ~erased
