"""History: what a node has consumed, computed again from the change logs above it."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from umbel.operators.operator import RowWise
from umbel.plan.graph import Node

ReadLog = Callable[[Node], pl.DataFrame]
"""Returns the logged changes of a node."""


def replay(node: Node, read: ReadLog) -> pl.DataFrame:
    """Return the changes a node's inputs emitted, from the logs and the row-wise operators in between.

    Args:
        node: usually a terminal aggregate.
        read: reads the change log of a logged node.
    """
    return pl.concat([emitted(parent, read) for parent in node.parents])


def emitted(node: Node, read: ReadLog) -> pl.DataFrame:
    """Return the changes a node has emitted: as logged, or as its row-wise operator makes them of logged ones."""
    operator = node.operator
    if node.is_logged or not isinstance(operator, RowWise):
        return read(node)
    return pl.concat([operator.apply(emitted(parent, read)) for parent in node.parents])
