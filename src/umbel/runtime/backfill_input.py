"""The input of a backfill: slices of history, handed on to the new operators."""

from __future__ import annotations

from collections.abc import Callable, Container
from collections.abc import Set as AbstractSet
from dataclasses import replace

import polars as pl

from umbel.functions.guarding import applied, guarded
from umbel.graph.graph import Graph, GraphNode, leads_to
from umbel.graph.stages import StageOutput, emit
from umbel.operators.operator import Keyed, RowWise
from umbel.runtime.guard import WorkerGuard

Read = Callable[[AbstractSet[str] | None], pl.DataFrame]
"""Returns the rows of a slice with some columns, with all when None."""


def taken_in(
    node: GraphNode, read: Read, fresh: Container[str], new_guard: Callable[[], WorkerGuard]
) -> tuple[StageOutput, WorkerGuard]:
    """Return the changes in a slice of history to new readers, and their guard.

    Only the columns that these read are read. A rejected row becomes a dead letter as a whole: its slice is read again.

    Args:
        node: the node.
        read: reads the slice.
        fresh: the state ids of the new operators.
        new_guard: makes the guard.
    """
    columns = columns_needed(node, fresh)
    for needed in (columns, None):
        output, guard = StageOutput(), new_guard()
        with guarded(guard):
            hand_on(node, read(needed), fresh, output)
        if needed is None or not guard.counts:
            break
    return output, guard


def columns_needed(node: GraphNode, fresh: Container[str]) -> AbstractSet[str] | None:
    """Return the columns of a node's changes that its new readers read.

    None if they may read any.
    """
    found = set[str]()
    for reader, at in node.readers:
        if not leads_to(reader, fresh) or _is_known(reader, at, fresh):
            continue
        operator, needed = reader.operator, set[str]()
        if isinstance(operator, RowWise):
            below = columns_needed(reader, fresh)
            if below is None:
                return None
            needed = {*below, *(operator.schema.names if reader.is_logged else ())}
        read = operator.columns_read(needed)
        if read is None:
            return None
        found |= read
    return found


def hand_on(node: GraphNode, rows: pl.DataFrame, fresh: Container[str], output: StageOutput) -> None:
    """Emit a node's changes to its new readers, also through old row-wise ones."""
    new = [(reader, at) for reader, at in node.readers if reader.state_id in fresh and not _is_known(reader, at, fresh)]
    emit(replace(node, readers=new, is_logged=False), rows, output)
    for reader, _ in node.readers:
        is_between = reader.state_id not in fresh and not reader.is_logged and isinstance(reader.operator, RowWise)
        if is_between and leads_to(reader, fresh):
            assert isinstance(reader.operator, RowWise)
            hand_on(reader, applied(reader.operator, rows), fresh, output)


def calls_functions(graph: Graph, fresh: Container[str]) -> bool:
    """Return whether user functions are called to compute new operators."""
    return any(
        bool(node.operator.functions)
        for node in graph.nodes
        if isinstance(node.operator, RowWise) and leads_to(node, fresh)
    )


def _is_known(reader: GraphNode, position: int, fresh: Container[str]) -> bool:
    """Return whether an operator reads an input's history from an existing version history."""
    operator = reader.operator
    if not isinstance(operator, Keyed) or position not in operator.looked_up:
        return False
    versions_table = reader.aliases.get(operator.parents[position].id)
    return versions_table is not None and versions_table not in fresh
