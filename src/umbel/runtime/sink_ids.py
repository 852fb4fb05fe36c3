"""The sinks of a deployment, and their ids.

A sink's id names its position, here and at its destination. It is that of a dataset's change log and a destination. Where the
change log is computed anew, batches of before have other numbers or none, so that a position in them means nothing: the sink
begins again, under another id.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from umbel.catalog.catalog import Catalog, JobEpoch
from umbel.connectors.sinks import SinkPosition, WriteOptions
from umbel.definitions.records import SinkDefinition
from umbel.functions.fingerprint import fingerprint
from umbel.graph.graph import Graph, GraphNode
from umbel.runtime.deployment import Deployment

SINKS, RESTORED = "sinks", "sinks-restored"
"""The settings with the part of sinks' ids that tells deployments apart, and with that which tells restores apart."""
NOTHING = -1 << 62
"""Before all batches, also the steps of a backfill."""
ANEW = "sinks-anew:"
"""Begins the settings with what tells the last computation of an operator from those before."""
PREFIX = "sink"
"""The names of all settings of sinks begin with it."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink of a dataset.

    Args:
        id: unique among the sinks of all deployments, and the same after a restart.
        dataset: the name of the dataset in the graph.
        node: the node of its change log.
        definition: as committed.
        lineage: ends the id at the destination; another one after each restore.
    """

    id: str
    dataset: str
    node: GraphNode
    definition: SinkDefinition
    lineage: str = ""

    @property
    def options(self) -> WriteOptions:
        """The part of it that its writer needs."""
        renames = dict(self.definition.renames)
        return WriteOptions(
            id=self.id + self.lineage, dataset=self.dataset, schema=self.node.operator.schema, renames=renames
        )

    @property
    def period(self) -> tuple[datetime | None, datetime | None]:
        """The range of the event times of the changes that are sent."""
        return self.definition.since, self.definition.until


def sinks(deployment: Deployment, revision: int) -> dict[str, Sink]:
    """Return the sinks of a revision whose datasets are complete, by their ids."""
    graph = deployment.graph(revision)
    declared = [(name, each) for name, dataset in graph.datasets.items() for each in dataset.sinks]
    if not declared:
        return {}
    done, lineage = deployment.catalog.backfilled(), deployment.catalog.noted(RESTORED) or ""
    found = dict[str, Sink]()
    for name, definition in declared:
        node = graph.outputs[name]
        if node.is_logged and node.state_id in done:
            key = _id_of(deployment, node, definition)
            found[key] = Sink(key, name, node, definition, lineage)
    return found


def delivered_batch(deployment: Deployment, graph: Graph, node: GraphNode) -> int | None:
    """Return the last batch that all sinks of a node have, None without sinks."""
    definitions = [
        each for name, dataset in graph.datasets.items() if graph.outputs[name] is node for each in dataset.sinks
    ]
    if not definitions:
        return None
    return min(_batch_of(deployment.catalog, _id_of(deployment, node, each)) for each in definitions)


def _batch_of(catalog: Catalog, id: str) -> int:
    """Return the last batch that a sink has, or that has nothing for it."""
    noted, none = catalog.noted(f"sink:{id}"), SinkPosition().batch
    batch = max(noted[0] if noted else none, passed_batch(catalog, id))
    return NOTHING if batch == none else batch


def passed_batch(catalog: Catalog, id: str) -> int:
    """Return the last batch that was noted to have nothing more for a sink."""
    noted = catalog.noted(passed(id))
    return SinkPosition().batch if noted is None else int(noted)


def passed(id: str) -> str:
    """Return the name of the setting that `passed_batch` reads."""
    return f"sink-passed:{id}"


def _id_of(deployment: Deployment, node: GraphNode, definition: SinkDefinition) -> str:
    """Return the id of a sink.

    It is made once for a destination, and outlives other logins and options. There is another one after each time that the
    change log was computed anew.
    """
    anew = deployment.catalog.noted(f"{ANEW}{node.state_id}") or ""
    name = f"sink-id:{fingerprint(node.state_id, definition.connector.destination)}{anew}"
    known = deployment.catalog.noted(name)
    if known is None:
        own = deployment.catalog.setting(SINKS, uuid4().hex[:12])
        known = deployment.catalog.setting(name, f"{own}-{fingerprint(node.state_id, definition.connector)}{anew}")
    return str(known)


def begin_lineage(catalog: Catalog) -> None:
    """Let sinks begin at the positions of a restored catalog.

    Their destinations may be at batches that this deployment has yet to run, with other rows.
    """
    if catalog.noted(SINKS) is not None:
        catalog.note(RESTORED, f"-{uuid4().hex[:8]}")


def begin_anew(deployment: Deployment, graph: Graph, state_ids: Container[str], by: JobEpoch) -> None:
    """Let sinks begin from the start, before change logs are deleted.

    An event says so.

    Args:
        deployment: the deployment.
        graph: with the operators.
        state_ids: of them; their datasets are not complete.
        by: the worker that deletes them.
    """
    again = resending(deployment, graph, state_ids)
    for node in graph.nodes:
        if node.state_id in state_ids and node.is_logged:
            deployment.catalog.note(f"{ANEW}{node.state_id}", f"-{uuid4().hex[:8]}", by)
    if again:
        deployment.catalog.record_event("work", "warning", again)


def resending(deployment: Deployment, graph: Graph, state_ids: Container[str]) -> str:
    """Return a warning of the sinks that begin again with operators; empty for none."""
    found = {
        name: dataset.schema.is_keyed
        for name, dataset in graph.datasets.items()
        if (node := graph.outputs[name]).state_id in state_ids
        and any(deployment.catalog.noted(f"sink:{_id_of(deployment, node, each)}") for each in dataset.sinks)
    }
    if not found:
        return ""
    text = f"all rows of {', '.join(sorted(found))} are sent to their sinks again, as they are computed anew"
    keyless = sorted(name for name, is_keyed in found.items() if not is_keyed)
    return text + (f"; those of {', '.join(keyless)}, without keys, are there twice then" if keyless else "")
