"""Forgetting operators that are no longer in force: state nobody keeps fresh must not come back with a later commit."""

from __future__ import annotations

from collections.abc import Iterator

from umbel.plan.graph import Graph, Node
from umbel.runtime.deployment import Deployment
from umbel.runtime.progress import EventTime


def forget_removed(deployment: Deployment, before: Graph, now: Graph, time: EventTime) -> None:
    """Drop state, change logs and event time of the operators of pipelines that were removed.

    What a source fed is kept, for it cannot be computed again: the source goes on where it was if it comes back. May be cut
    short and repeated.

    Args:
        deployment: where they are.
        before: the graph of the batch before.
        now: the graph of the batch that will run next.
        time: loses the frontiers of what is forgotten.
    """
    kept = {node.owner for node in (*now.nodes, *_fed(before))}
    removed = [node for node in before.nodes if node.owner not in kept]
    deployment.catalog.backfill({node.owner for node in removed}, done=False)
    for node in removed:
        deployment.store.drop(node.owner)
        deployment.changes.drop(node)
        time.frontiers.pop(node.owner, None)


def _fed(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of datasets that have sources of their own."""
    for name, entry in graph.entries.items():
        node = graph.outputs[name]
        while node is not entry:
            yield node
            (node,) = node.parents
        yield entry
