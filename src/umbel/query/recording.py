"""Lookups of queries, recorded with their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from umbel.query.functions import Answering
    from umbel.query.point_lookup import PointLookup
    from umbel.query.rows import Column, Fields, Instants
    from umbel.query.session import LookupSource
    from umbel.state.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class RecordedLookup:
    """A lookup that a query made.

    Args:
        dataset: its name.
        keys: one column for each key field.
        at: the instant of each row.
        fields: those requested; all when None.
        rows: the rows it returned.
        found: a mask of those that exist.
    """

    dataset: str
    keys: pl.DataFrame
    at: pl.Series
    fields: Fields
    rows: pl.DataFrame
    found: pl.Series


@dataclass
class RecordingLookups:
    """Answers lookups as another source does, and records them.

    Args:
        source: answers them.
        timestamps: the timestamp fields of datasets, which are looked up and recorded, too.
    """

    source: LookupSource
    timestamps: Mapping[str, str]
    made: list[RecordedLookup] = field(default_factory=list)

    def online(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys from the live state."""
        return self._recorded(self.source.online, dataset, keys, at, fields)

    def offline(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys as of any instant."""
        return self._recorded(self.source.offline, dataset, keys, at, fields)

    def _recorded(
        self, answer: Answering, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields
    ) -> tuple[pl.DataFrame, pl.Series]:
        with_timestamp = None if fields is None else frozenset((*fields, self.timestamps[dataset]))
        rows, found = answer(dataset, keys, at, with_timestamp)
        self.made.append(RecordedLookup(dataset, keys, at, fields, rows, found))
        return rows, found

    def point_lookup(
        self,
        dataset: str,
        keys: Mapping[str, Column],
        at: Instants,
        fields: Fields = None,
        snapshots: Snapshots | None = None,
    ) -> PointLookup | None:
        """Return None, so that frames answer, which are recorded."""
        return None
