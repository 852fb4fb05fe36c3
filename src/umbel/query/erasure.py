"""Erasure: delete rows by key, and refuse them on later ingestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import polars as pl

from umbel.query.session import LookupSource

if TYPE_CHECKING:
    from umbel.query.point_lookup import PointLookup
    from umbel.query.rows import Column, Instants


class Erased:
    """The erased keys per dataset."""

    def __init__(self, keys: dict[str, pl.DataFrame] | None = None) -> None:
        self._keys = keys or {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def keys(self, dataset: str) -> pl.DataFrame | None:
        """Return a dataset's erased keys, None if there are none."""
        return self._keys.get(dataset)

    def copy(self) -> Erased:
        """Return a copy of the record."""
        return Erased(dict(self._keys))

    def only(self, datasets: Iterable[str]) -> Erased:
        """Return the record restricted to some datasets."""
        return Erased({name: self._keys[name] for name in datasets if name in self._keys})

    def add(self, dataset: str, keys: pl.DataFrame) -> None:
        """Erase the rows equal to `keys` in these columns."""
        known = self._keys.get(dataset)
        self._keys[dataset] = keys if known is None else pl.concat([known, keys]).unique()

    def without(self, dataset: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a dataset that are not erased."""
        return rows.filter(~self.hits(dataset, rows)) if dataset in self._keys else rows

    def hits(self, dataset: str, rows: pl.DataFrame) -> pl.Series:
        """Return a mask of erased rows."""
        keys = self._keys.get(dataset)
        if keys is None or rows.is_empty():
            return pl.Series([False], dtype=pl.Boolean).new_from_index(0, rows.height)
        marked = keys.unique().with_columns(pl.lit(True).alias("_erased"))
        joined = rows.select(keys.columns).join(marked, on=keys.columns, how="left", maintain_order="left")
        return joined["_erased"].fill_null(False)


class Erasing:
    """A lookup source that hides erased rows of another source.

    Args:
        source: the other source.
        erased: the erased keys.
    """

    def __init__(self, source: LookupSource, erased: Erased) -> None:
        self._source, self._erased = source, erased

    def online(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys from the live state."""
        return self._masked(dataset, keys, *self._source.online(dataset, keys, at))

    def offline(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys as of any instant, from the history."""
        return self._masked(dataset, keys, *self._source.offline(dataset, keys, at))

    def point_lookup(self, dataset: str, keys: Mapping[str, Column], at: Instants) -> PointLookup | None:
        """Return a point lookup, None if unsupported or if keys were erased."""
        return None if self._erased.keys(dataset) is not None else self._source.point_lookup(dataset, keys, at)

    def _masked(
        self, dataset: str, keys: pl.DataFrame, rows: pl.DataFrame, found: pl.Series
    ) -> tuple[pl.DataFrame, pl.Series]:
        erased = self._erased.hits(dataset, keys)
        if not erased.any():
            return rows, found
        others = [name for name in rows.columns if name not in keys.columns]
        return rows.with_columns(pl.when(~erased).then(pl.col(name)).alias(name) for name in others), found & ~erased
