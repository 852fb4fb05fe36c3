"""The values of the newest groups of an aggregate that is computed at read time."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from umbel.operators.aggregate import LookedUpAggregation
from umbel.query.execute import repeated
from umbel.query.session import LookupSource
from umbel.windowing.groups import Groups


def newest_groups(
    source: LookupSource, dataset: str, operator: LookedUpAggregation, events: pl.DataFrame, limit: int
) -> pl.DataFrame:
    """Return values as of now, by time.

    Args:
        source: answers lookups.
        dataset: its name.
        operator: the one that makes the dataset.
        events: the newest rows that the operator consumes.
        limit: the largest number of groups.
    """
    recent = events.sort(operator.parents[0].schema.timestamp, descending=True)
    groups = Groups(recent, operator.keys).columns.head(limit)
    rows, found = source.online(dataset, groups, repeated(datetime.now(UTC), groups.height))
    return rows.filter(found).sort(operator.schema.timestamp)
