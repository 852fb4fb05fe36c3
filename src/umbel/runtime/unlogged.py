"""Change logs that begin with a commit, of operators that ran before.

A new pipeline may share a keyed operator with an old one, and only begin with it to need that operator's changes; a dataset
that loses its index has the changes of the operator before it. There is no history of these: the operator is computed again
from the change logs of its inputs, with all that read it.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING

from umbel.errors import HistoryDropped, NotSupported
from umbel.graph.graph import Graph, GraphNode, history_sources
from umbel.runtime.changelogs import Dues
from umbel.runtime.completeness import check_computable, check_sinks
from umbel.runtime.deployment import JOB
from umbel.runtime.recovery.rebuild import planned

if TYPE_CHECKING:
    from umbel.catalog.catalog import JobEpoch
    from umbel.runtime.deployment import Deployment


def recompute_unlogged(deployment: Deployment, before: int, revision: int, dues: Dues, by: JobEpoch) -> frozenset[str]:
    """Mark operators with incomplete change logs as not backfilled; return their state ids.

    Args:
        deployment: the deployment.
        before: the commit whose definitions applied to the batch before.
        revision: the commit whose definitions apply next.
        dues: the content of the change logs after the last batch.
        by: the worker that computes them.

    Raises:
        Fenced: another worker has taken over.
    """
    graph, done = deployment.graph(revision), deployment.catalog.backfilled()
    fresh = {node.state_id for node in graph.nodes if node.state_id not in done}
    try:
        found = unlogged(deployment.graph(before), graph, fresh, dues)
        check_computable(deployment, graph, fresh | found, found)
    except (HistoryDropped, NotSupported) as error:
        deployment.catalog.record_event("work", "warning", f"a change log begins without history: {error.message}")
        return frozenset()
    deployment.catalog.backfill(found, done=False, by=by)
    return found


def check_history(deployment: Deployment, now: Graph, after: Graph) -> None:
    """Refuse a commit whose new operators and sinks need changes that were dropped.

    Args:
        deployment: the deployment.
        now: the graph in force.
        after: the graph with the commit.

    Raises:
        HistoryDropped: they do.
    """
    if deployment.catalog.progress(JOB, sys.maxsize) is None or not deployment.is_home:
        return
    known = {node.state_id for node in now.nodes}
    fresh, old = {node.state_id for node in after.nodes} - known, frozenset[str]()
    with suppress(NotSupported):  # the worker tells
        old = unlogged(now, after, fresh, deployment.dues())
    check_computable(deployment, after, fresh | old, old)
    check_sinks(deployment, now, after)


def unlogged(before: Graph, graph: Graph, fresh: AbstractSet[str], dues: Dues) -> frozenset[str]:
    """Return the old operators to be computed again, for their change logs would be incomplete.

    Args:
        before: the graph before.
        graph: with the new operators.
        fresh: the state ids of these.
        dues: the content of the change logs after the last batch.

    Raises:
        NotSupported: one belongs to a dataset that is read from a source.
    """
    lacking = {each for node in graph.nodes if node.state_id in fresh for each in _lacking(node, fresh, dues)}
    lacking |= _beginning(before, graph) - fresh
    return planned(graph, lacking).state_ids - fresh if dues and lacking else frozenset()


def _lacking(node: GraphNode, fresh: Container[str], dues: Dues) -> Iterator[str]:
    """Yield the old operators above a new one that have no complete change log."""
    for source in history_sources(node):
        if source.state_id not in fresh and not (source.is_logged and source.log in dues):
            yield source.state_id


def _beginning(before: Graph, graph: Graph) -> set[str]:
    """Return the operators whose change logs begin now, as of a dataset without its index."""
    was_logged = {node.state_id: node.is_logged for node in before.nodes}
    return {node.state_id for node in graph.nodes if node.is_logged and was_logged.get(node.state_id) is False}
