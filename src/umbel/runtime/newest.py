"""The newest rows of a dataset, for inspection."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import polars as pl

from umbel.graph.graph import Branch
from umbel.operators.aggregate import LookedUpAggregation
from umbel.query.lookups import Lookups
from umbel.runtime.completeness import DeploymentCompleteness
from umbel.runtime.deployment import Deployment
from umbel.runtime.history import replayed
from umbel.windowing.groups import Groups


def newest(deployment: Deployment, branch: Branch, dataset: str, limit: int) -> pl.DataFrame:
    """Return the newest rows of a dataset, superseded ones included, by time.

    For a dataset whose values depend on the query time: the values as of now, of the groups with the newest rows.

    Args:
        deployment: the deployment.
        branch: the branch of the dataset.
        dataset: its name.
        limit: the largest number of rows.
    """
    node, changes = branch.outputs[dataset], deployment.changes
    operator = node.operator
    if not operator.is_terminal:
        return changes.newest(node, limit)
    assert isinstance(operator, LookedUpAggregation)
    events = replayed(deployment, node, read=lambda each, _: changes.inserted(each, limit))
    groups = Groups(events.sort(operator.parents[0].schema.timestamp, descending=True), operator.keys).columns.head(
        limit
    )
    at = pl.Series([datetime.now(UTC)], dtype=pl.Datetime("us", "UTC")).new_from_index(0, groups.height)
    known = DeploymentCompleteness(deployment)
    lookups = Lookups(branch, deployment.store, partial(replayed, deployment), known)
    rows, found = lookups.online(dataset, groups, at)
    return rows.filter(found).sort(operator.schema.timestamp)
