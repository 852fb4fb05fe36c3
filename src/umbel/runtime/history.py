"""Replay of history from change logs, without rows rejected earlier."""

from __future__ import annotations

import polars as pl

from umbel.functions.guarding import guarded
from umbel.graph.graph import GraphNode
from umbel.query.history import ReadLog, replay
from umbel.runtime.deployment import Deployment
from umbel.runtime.guard import WorkerGuard


def replayed(deployment: Deployment, node: GraphNode, read: ReadLog) -> pl.DataFrame:
    """Return the changes a node's inputs emitted, from the logs.

    Args:
        deployment: has the records of rejected rows.
        node: usually a terminal aggregate.
        read: reads the change log of a logged node.
    """
    with guarded(WorkerGuard(deployment, is_marked=False)):
        return replay(node, read)
