"""History: recompute a node's input from the upstream change logs."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from umbel.functions.guarding import applied
from umbel.graph.graph import GraphNode
from umbel.operators.operator import RowWise

ReadLog = Callable[[GraphNode], pl.DataFrame]
"""Returns the logged changes of a node."""


def replay(node: GraphNode, read: ReadLog) -> pl.DataFrame:
    """Return the changes emitted by a node's inputs.

    They are read from the change logs; unlogged row-wise operators are run again.

    Args:
        node: usually a terminal aggregate.
        read: reads the change log of a logged node.
    """
    return pl.concat([emitted(parent, read) for parent in node.parents])


def emitted(node: GraphNode, read: ReadLog) -> pl.DataFrame:
    """Return the changes a node emitted: as logged, or recomputed.

    An unlogged row-wise operator is run again on the changes its inputs emitted.
    """
    operator = node.operator
    if node.is_logged or not isinstance(operator, RowWise):
        return read(node)
    return pl.concat([applied(operator, emitted(parent, read)) for parent in node.parents])
