"""Tables: every row a dataset has had, as one frame."""

from __future__ import annotations

import numpy as np
import polars as pl

from umbel.local.runner import Runner
from umbel.operators.aggregate import Aggregate
from umbel.operators.points import TIME
from umbel.operators.timeline import consolidate
from umbel.types.schema import AT, SEQ, WEIGHT, Schema


def table(runner: Runner, dataset: str) -> pl.DataFrame:
    """Return all rows of a dataset, superseded ones included, by time.

    For a dataset that ends in an aggregate over continuous windows, these are the instants at which rows of a group come
    into a window or leave one, and the values from then on.
    """
    operator = runner.graph.outputs[dataset].operator
    if isinstance(operator, Aggregate) and operator.is_terminal:
        return change_points(runner, dataset, operator)
    return inserted(runner.changes(dataset), operator.schema)


def inserted(changes: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Return the rows that changes have inserted and that no correction has taken back."""
    net = consolidate(changes, [*schema.names, AT]).filter(pl.col(WEIGHT) > 0).sort(schema.timestamp, SEQ)
    copies = np.repeat(np.arange(net.height, dtype=np.uint32), net[WEIGHT].to_numpy())
    return net.select(schema.names)[copies]


def change_points(runner: Runner, dataset: str, operator: Aggregate) -> pl.DataFrame:
    """Return the values of each group at every instant at which a row comes into a window or leaves it."""
    schema = operator.schema
    history = runner.history(dataset)
    if history.is_empty():
        return pl.DataFrame(schema=schema.polars())
    points = operator.moments(history).sort(*operator.keys, TIME)
    rows, found = runner.lookups.offline(dataset, points.select(operator.keys), points[TIME])
    settled = [pl.lit(0.0).alias(each.into_field) for each in operator.aggregates if each.needs_instant]
    return rows.with_columns(settled).filter(found).sort(schema.timestamp, maintain_order=True)
