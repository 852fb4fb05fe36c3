"""Rows that a source takes back by their values alone.

Of a dataset without keys nobody knows which insertion a deletion takes back: it has another place in the source, and an instant
of its own. Operators with state tell rows apart by both, beside the values, and would retain the deleted row and its deletion.
"""

from __future__ import annotations

import polars as pl

from umbel.graph.graph import GraphNode
from umbel.operators.leaf import Leaf
from umbel.operators.operator import RowWise
from umbel.types.schema import AT, SEQ


def takes_back(node: GraphNode) -> bool:
    """Return whether a node's retractions are known by the values of rows alone."""
    operator = node.operator
    if isinstance(operator, RowWise):
        return any(map(takes_back, node.parents))
    return isinstance(operator, Leaf) and not operator.schema.is_keyed and not operator.inserts_only


def as_corrections(node: GraphNode, changes: pl.DataFrame) -> pl.DataFrame:
    """Return changes of a node in which retractions equal the insertions.

    Where rows are taken back by their values, all changes take effect at the instant of their row, and none has a number: rows of
    equal instants are in the order of their values.

    Args:
        node: emits the changes.
        changes: as they are logged.
    """
    if not takes_back(node):
        return changes
    return changes.with_columns(pl.col(node.operator.schema.timestamp).alias(AT), pl.lit(0, pl.Int64).alias(SEQ))
