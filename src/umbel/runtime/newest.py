"""The newest rows of a dataset, to be looked at."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import polars as pl

from umbel.operators.aggregate import Aggregate
from umbel.operators.groups import Groups
from umbel.plan.graph import Branch
from umbel.query.history import replay
from umbel.query.lookups import Lookups
from umbel.runtime.deployment import Deployment


def newest(deployment: Deployment, branch: Branch, dataset: str, limit: int) -> pl.DataFrame:
    """Return the newest rows of a dataset, superseded ones included, by time.

    Of a dataset whose values depend on the instant they are asked for: those of now, of the groups that got rows last.

    Args:
        deployment: where they are.
        branch: what the dataset is looked for in.
        dataset: its name.
        limit: at most so many rows.
    """
    node, changes = branch.outputs[dataset], deployment.changes
    operator = node.operator
    if not operator.is_terminal:
        return changes.newest(node, limit)
    assert isinstance(operator, Aggregate)
    events = replay(node, partial(changes.inserted, limit=limit))
    groups = Groups(events.sort(operator.parents[0].schema.timestamp, descending=True), operator.keys).columns.head(
        limit
    )
    at = pl.Series([datetime.now(UTC)], dtype=pl.Datetime("us", "UTC")).new_from_index(0, groups.height)
    rows, found = Lookups(branch, deployment.store, partial(replay, read=changes.read)).online(dataset, groups, at)
    return rows.filter(found).sort(operator.schema.timestamp)
