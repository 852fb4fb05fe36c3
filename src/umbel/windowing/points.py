"""Points (keys as of instants) for lookups of aggregates, and the form of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.changes.runs import Flags, Ints, Sorted
from umbel.state.runs.sorting import order_of
from umbel.windowing.tiling import ID

FOUND, HISTORY, CHANGED = "_at_found", "_at_history", "_at_changed"
TIME = "_time"


@dataclass(frozen=True, slots=True)
class RequestedColumns:
    """The columns that lookups compute.

    Args:
        aggregates: those requested.
        has_timestamp: False if the instants at which values changed last are not requested. Finding them takes half of a lookup.
    """

    aggregates: tuple[Aggregate, ...]
    has_timestamp: bool = True


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a query: keys, each as of an instant.

    Args:
        ids: of the keys, from 0.
        at: the instants, µs.
    """

    ids: Ints
    at: Ints

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Points:
        """Return the points of a frame with `_key_id` and `_time`."""
        return cls(frame[ID].to_numpy().astype(np.int64), frame[TIME].dt.epoch("us").to_numpy())

    def part(self, rows: slice) -> Points:
        """Return some of the points."""
        return Points(self.ids[rows], self.at[rows])

    def sorted(self) -> Sorted:
        """Return the points by key and instant, for searches."""
        order = order_of(self.ids, self.at)
        return Sorted(self.ids[order], self.at[order])


def shown(
    aggregates: tuple[Aggregate, ...], values: Mapping[str, pl.Series], found: Flags, changed: Ints | None
) -> pl.DataFrame:
    """Return the values of points with `_at_found`, and `_at_changed` if it is requested.

    Keys not found have the missing value of each aggregate; `_at_changed` is the instant since when the values have
    been unchanged.
    """
    mask = pl.Series(FOUND, found)
    columns = [mask]
    for each in aggregates:
        value = values[each.into_field]
        missing = pl.Series([each.missing], dtype=value.dtype)
        columns.append(value.zip_with(mask, missing.new_from_index(0, len(value))).alias(each.into_field))
    if changed is not None:
        columns.append(pl.Series(CHANGED, changed).set(~mask, None).cast(pl.Datetime("us", "UTC")))
    return pl.DataFrame(columns)
