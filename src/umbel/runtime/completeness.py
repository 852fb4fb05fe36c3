"""Completeness of a deployment's answers after old changes were dropped.

A change log says it of itself. State that was computed from a log which had lost its oldest changes is right from a later instant
on; that is noted in the catalog when its computation begins, and lookups before it are refused.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import TYPE_CHECKING

from umbel.errors import HistoryDropped
from umbel.operators.operator import ALWAYS, NEVER
from umbel.query.completeness import REMEDY, SETTINGS, computed_since, spelled
from umbel.types.epochs import EPOCH

if TYPE_CHECKING:
    from umbel.catalog.catalog import Catalog, JobEpoch
    from umbel.graph.graph import Graph, GraphNode
    from umbel.runtime.deployment import Deployment

MICROSECOND = timedelta(microseconds=1)
COMPLETE = "complete since"
"""The setting with the instants, in µs, from which on states are right; null for never."""


def noted_since(catalog: Catalog) -> dict[str, float]:
    """Return the instant since which each incomplete state is right, by state id."""
    found = catalog.noted(COMPLETE) or {}
    return {state_id: NEVER if at is None else float(at) for state_id, at in found.items()}


class DeploymentCompleteness:
    """The completeness of a deployment: of its states and its change logs.

    Args:
        deployment: the deployment.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._noted = noted_since(deployment.catalog)

    def refresh(self) -> None:
        """Read the noted instants again."""
        self._noted = noted_since(self._deployment.catalog)

    def of_state(self, state_id: str) -> float:
        """Return the instant from which on a state is right, in µs."""
        return self._noted.get(state_id, ALWAYS)

    def of_log(self, node: GraphNode) -> float:
        """Return the instant from which on a change log has all changes, in µs."""
        return max(self.of_state(node.state_id), self._deployment.changes.retained_since(node))


def since_of(deployment: Deployment, graph: Graph, fresh: Container[str]) -> dict[str, float]:
    """Return the instant since which operators computed now are right, by state id."""
    nodes = {node.state_id: node for node in graph.nodes if node.state_id in fresh}
    return computed_since(nodes, DeploymentCompleteness(deployment))


def note_since(deployment: Deployment, graph: Graph, fresh: AbstractSet[str], by: JobEpoch) -> None:
    """Note the completeness of operators whose computation begins.

    Args:
        deployment: the deployment.
        graph: with the operators.
        fresh: their state ids.
        by: the worker that computes them.

    Raises:
        Fenced: another worker has taken over.
    """
    deployment.catalog.check_epoch(by)
    before, found = noted_since(deployment.catalog), since_of(deployment, graph, fresh)
    after = {state_id: at for state_id, at in {**before, **found}.items() if at > ALWAYS}
    if after != before:
        plain = {state_id: None if at == NEVER else at for state_id, at in after.items()}
        deployment.catalog.note(COMPLETE, plain, by)


def check_computable(deployment: Deployment, graph: Graph, fresh: AbstractSet[str], old: Iterable[str] = ()) -> None:
    """Refuse to compute operators from history that was dropped.

    Args:
        deployment: the deployment.
        graph: with the operators.
        fresh: the state ids of those to be computed.
        old: those of them that exist, and must not become less complete.

    Raises:
        HistoryDropped: the answers of one would not be right now.
    """
    if not deployment.is_home:
        return  # the change logs are on the worker's machine, and it notes what is missing
    found, known, now = since_of(deployment, graph, fresh), noted_since(deployment.catalog), time.time() * 1e6
    worse = {each for each in old if found.get(each, ALWAYS) > known.get(each, ALWAYS)}
    bad = {state_id: at for state_id, at in found.items() if at > now or state_id in worse}
    if not bad:
        return
    names = sorted({name for node in graph.nodes if node.state_id in bad for name in _datasets(node)})
    at = max(bad.values())
    when = "they would never be right" if at == NEVER else f"they would be right from {spelled(at)} on"
    raise HistoryDropped(
        f"{', '.join(names)} cannot be computed from history: changes that this needs were dropped by the retention of change "
        f"logs ({SETTINGS}); {when}",
        hint=REMEDY,
    )


def check_sinks(deployment: Deployment, now: Graph, after: Graph) -> None:
    """Refuse new sinks that need dropped changes.

    Raises:
        HistoryDropped: there are some.
    """
    known = DeploymentCompleteness(deployment)
    had = {
        (now.outputs[name].state_id, each.connector.destination)
        for name, found in now.datasets.items()
        for each in found.sinks
    }
    for name, dataset in after.datasets.items():
        node = after.outputs[name]
        for sink in dataset.sinks:
            is_new = (node.state_id, sink.connector.destination) not in had
            since = known.of_log(node) if node.is_logged and is_new else ALWAYS
            begins = ALWAYS if sink.since is None else (sink.since - EPOCH) // MICROSECOND
            if begins < since:
                raise HistoryDropped(
                    f"a sink of dataset '{dataset.name}' would lack changes that were dropped by the retention of change logs "
                    f"({SETTINGS}); all are there from {spelled(since)} on",
                    where=sink.location,
                    hint="let it begin there: since=",
                )


def _datasets(node: GraphNode) -> set[str]:
    if node.dataset is not None:
        return {node.dataset}
    return set[str]().union(*(_datasets(reader) for reader, _ in node.readers))
