"""The newest rows of a dataset, for inspection."""

from __future__ import annotations

from functools import partial

import polars as pl

from umbel.graph.graph import Branch
from umbel.operators.aggregate import LookedUpAggregation
from umbel.query.lookups import Lookups
from umbel.query.newest_groups import newest_groups
from umbel.runtime.completeness import DeploymentCompleteness
from umbel.runtime.deployment import Deployment
from umbel.runtime.history import replayed


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
    known = DeploymentCompleteness(deployment)
    lookups = Lookups(branch, deployment.store, partial(replayed, deployment), known)
    return newest_groups(lookups, dataset, operator, events, limit)
