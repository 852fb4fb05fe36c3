"""Tables: all rows a dataset has had, as one frame."""

from __future__ import annotations

import numpy as np
import polars as pl

from umbel.changes.versions import insertions
from umbel.local.runner import LocalRunner
from umbel.operators.aggregate import LookedUpAggregation
from umbel.types import epochs
from umbel.types.schema import WEIGHT, Schema
from umbel.windowing.points import TIME


def table(runner: LocalRunner, dataset: str) -> pl.DataFrame:
    """Return all rows of a dataset by time, including superseded ones.

    For a dataset that ends in an aggregate over continuous windows, these are the instants at which rows of a group enter or
    leave a window, and the values from then on.
    """
    operator = runner.graph.outputs[dataset].operator
    if isinstance(operator, LookedUpAggregation):
        return change_points(runner, dataset, operator)
    return inserted(runner.changes(dataset), operator.schema)


def inserted(changes: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Return the inserted rows of a changelog that were not retracted."""
    net = insertions(changes, schema)
    copies = np.repeat(np.arange(net.height, dtype=np.uint32), net[WEIGHT].to_numpy())
    return net.select(schema.names)[copies]


def change_points(runner: LocalRunner, dataset: str, operator: LookedUpAggregation) -> pl.DataFrame:
    """Return each group's values at every instant a row enters or leaves a window."""
    schema = operator.schema
    history = runner.history(dataset)
    if history.is_empty():
        return pl.DataFrame(schema=schema.polars())
    moments = operator.moments(history)
    points = moments.filter(pl.col(TIME).to_physical() <= epochs.LAST).sort(*operator.keys, TIME)
    rows, found = runner.lookups.offline(dataset, points.select(operator.keys), points[TIME])
    compacted = [pl.lit(0.0).alias(each.into_field) for each in operator.aggregates if each.needs_instant]
    return rows.with_columns(compacted).filter(found).sort(schema.timestamp, maintain_order=True)
