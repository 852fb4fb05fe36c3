"""Replay of history from change logs, without rows rejected earlier."""

from __future__ import annotations

import polars as pl

from umbel.changes.change_filter import ChangeFilter
from umbel.functions.guarding import guarded
from umbel.graph.graph import GraphNode
from umbel.query.history import ReadLog, replay
from umbel.runtime.deployment import Deployment
from umbel.runtime.guard import WorkerGuard


def replayed(
    deployment: Deployment, node: GraphNode, changes: ChangeFilter | None = None, read: ReadLog | None = None
) -> pl.DataFrame:
    """Return the changes a node's inputs emitted, from the logs.

    Args:
        deployment: has the logs, and the records of rejected rows.
        node: usually a terminal aggregate.
        changes: which of them are needed, all when None.
        read: reads the change log of a logged node, from `deployment` when None.
    """
    with guarded(WorkerGuard(deployment, is_marked=False)):
        return replay(node, read or deployment.changes.part, changes)
