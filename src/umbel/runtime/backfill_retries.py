"""Steps of backfills that end the worker each time are taken back.

Their rows are read in smaller ones, as `retries` does with batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from umbel.runtime.backfill_state import BackfillState
from umbel.runtime.batch_sizes import GROWTH
from umbel.runtime.retries import BOUND, ENDED, EXCUSED, undo, warn

if TYPE_CHECKING:
    from umbel.graph.graph import Graph
    from umbel.runtime.deployment import Deployment
    from umbel.state.port import Stamp


def begun_again(
    deployment: Deployment, graph: Graph, state: BackfillState, stamp: Stamp, sizes: Mapping[int, int]
) -> BackfillState:
    """Return the state with a worker that runs its step.

    If the step has ended the worker twice, what it stored is undone, and its rows are read in smaller steps.

    Args:
        deployment: the deployment.
        graph: the operators that are computed, and their inputs.
        state: the state before.
        stamp: of the step.
        sizes: rows of history of each batch that was not read as a whole yet.
    """
    state = state.tried(stamp.epoch, deployment.catalog.noted(EXCUSED))
    history = state.sizes(sizes)
    rows = history.left(state.position) - history.left(state.end)
    is_begun = state.end > state.position
    if not is_begun or state.ended < ENDED or rows < 2 or _is_logged(deployment, graph, state):
        return state
    limit = max(1, rows // GROWTH)
    ends = f"a step of the backfill has ended a process {state.ended} times"
    warn(deployment.catalog, ends, f"{rows:,} rows of history", limit)
    undo(deployment.store, graph, stamp, frozenset(state.state_ids))
    return state.divided(sizes, limit, max(limit, rows // BOUND))


def _is_logged(deployment: Deployment, graph: Graph, state: BackfillState) -> bool:
    """Return whether the table of a change log has the step.

    If it were taken back, the table would have its rows twice.
    """
    computed = [node for node in graph.nodes if node.state_id in state.state_ids]
    return any(deployment.changes.has_step(node, state.step) for node in computed)
