"""Tables: every row a dataset has had, as one frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from umbel.local.runner import Runner
from umbel.operators.aggregate import Aggregate
from umbel.operators.timeline import consolidate
from umbel.state.keys import encode_keys
from umbel.types.schema import AT, SEQ, WEIGHT, Schema
from umbel.types.windows import Continuous

SECOND = pl.duration(seconds=1)


def table(runner: Runner, dataset: str) -> pl.DataFrame:
    """Return all rows of a dataset, superseded ones included, by time.

    For a dataset that ends in an aggregate over continuous windows, these are the instants at which the values of a
    group change, and the values from then on.
    """
    operator = runner.graph.outputs[dataset].operator
    if isinstance(operator, Aggregate) and operator.is_terminal:
        return change_points(runner, dataset, operator, runner.history(dataset))
    return inserted(runner.changes(dataset), operator.schema)


def inserted(changes: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Return the rows that changes have inserted and that no correction has taken back."""
    net = consolidate(changes, [*schema.names, AT]).filter(pl.col(WEIGHT) > 0).sort(schema.timestamp, SEQ)
    copies = np.repeat(np.arange(net.height, dtype=np.uint32), net[WEIGHT].to_numpy())
    return net.select(schema.names)[copies]


def change_points(runner: Runner, dataset: str, operator: Aggregate, events: pl.DataFrame) -> pl.DataFrame:
    """Return the values of the groups of events at every instant at which one of them changes."""
    schema = operator.schema
    points = pl.concat(_candidates(events, operator)).unique().sort(*operator.keys, schema.timestamp)
    if points.is_empty():
        return pl.DataFrame(schema=schema.polars())
    at = points[schema.timestamp]
    rows, found = runner.lookups.offline(dataset, points.select(operator.keys), at)
    settled = [pl.lit(0.0).alias(each.into_field) for each in operator.aggregates if each.needs_instant]
    values = rows.with_columns(at, *settled).filter(found)
    return _changes_only(values, schema).sort(schema.timestamp, maintain_order=True)


def row_times(runner: Runner, dataset: str, keys: pl.DataFrame, at: pl.Series) -> pl.Series | None:
    """Return when the values that each key has as of each instant began to be; null where there are none.

    Return None when the dataset's rows tell it themselves: when it does not end in an aggregate over continuous windows.

    Args:
        runner: which has the rows.
        dataset: its name.
        keys: one row for each point.
        at: an instant for each.
    """
    operator = runner.graph.outputs[dataset].operator
    if not isinstance(operator, Aggregate) or not operator.is_terminal:
        return None
    asked, events = _groups(keys, operator), runner.history(dataset)
    events = events.filter(_groups(events, operator).is_in(asked.implode()), _entry(operator) <= at.max())
    changed = change_points(runner, dataset, operator, events)
    begun = changed.select(_groups(changed, operator), pl.col(operator.schema.timestamp).alias("_begun"))
    points = pl.DataFrame([asked, at.alias("_point")]).with_row_index("_row").sort("_point")
    found = points.join_asof(
        begun.with_columns(pl.col("_begun").alias("_point")).sort("_point"),
        on="_point",
        by="_group",
        check_sortedness=False,
    )
    return found.sort("_row")["_begun"]


def _groups(rows: pl.DataFrame, operator: Aggregate) -> pl.Series:
    return encode_keys(rows.select(operator.keys)).alias("_group")


def _candidates(events: pl.DataFrame, operator: Aggregate) -> Iterator[pl.DataFrame]:
    """Yield groups with instants at which their values may change.

    An event may leave at a whole second or a second after its window's end: asking at both finds the change.
    """
    timestamp, entry = operator.schema.timestamp, _entry(operator)
    leaving = [
        end
        for window in operator.windows
        if isinstance(window, Continuous) and window.duration_us is not None
        for end in _leaves(entry + pl.duration(microseconds=window.duration_us))
    ]
    for instant in (entry, pl.col(AT), *leaving):
        yield events.select(*operator.keys, instant.alias(timestamp))


def _entry(operator: Aggregate) -> pl.Expr:
    return pl.col(operator.along or operator.schema.timestamp)


def _leaves(end: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    return end + SECOND, end.dt.truncate("1s") + SECOND


def _changes_only(values: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Drop the rows that say what the row of their group before them said."""
    same_group = _unchanged(values, schema.key_names)
    same_values = _unchanged(values, schema.value_names)
    return values.filter(~(same_group & same_values))


def _unchanged(values: pl.DataFrame, names: list[str]) -> pl.Series:
    same = [values[name].eq_missing(values[name].shift(1)) for name in names]
    first = pl.Series([False]).extend(pl.Series([True]).new_from_index(0, max(values.height - 1, 0)))[: values.height]
    return pl.select(pl.all_horizontal(first, *same)).to_series()
