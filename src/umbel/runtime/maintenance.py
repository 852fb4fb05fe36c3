"""Periodic maintenance beside the batches: deletes old logs, merges small files."""

from __future__ import annotations

import threading
import time
import time as clock
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from umbel.catalog.removals import Removals
from umbel.connectors.credentials import provide_vault
from umbel.connectors.staging import folder_of
from umbel.connectors.webhook import EndpointSource
from umbel.errors import UmbelError
from umbel.graph.graph import Graph, GraphNode
from umbel.log.features import FeatureLog
from umbel.log.segments import ORIGIN, LogPosition
from umbel.runtime.deployment import Deployment
from umbel.runtime.limits import Limits
from umbel.runtime.plans import BatchPlan
from umbel.runtime.progress import EventTimeProgress
from umbel.runtime.reporting import report_event
from umbel.runtime.retention import drop_changes
from umbel.runtime.sources import open_sources


def forget_removed(deployment: Deployment, before: Graph, now: Graph, time: EventTimeProgress) -> None:
    """Record the data of removed pipelines' operators for deletion: state, change logs, event time.

    Nodes of datasets with sources of their own are retained, for their data cannot be computed again: a source that comes back
    resumes from its position. May be interrupted and repeated.

    Args:
        deployment: the deployment.
        before: the graph of the batch before.
        now: the graph of the batch that will run next.
        time: forgets the removed operators.
    """
    retained = {node.state_id for node in (*now.nodes, *fed(before))}
    removed = [node for node in before.nodes if node.state_id not in retained]
    Removals(deployment.catalog).add({node.state_id: node.log for node in removed}, clock.time())
    for node in removed:
        time.stream_times.pop(node.state_id, None)
        time.moved.pop(node.state_id, None)


def delete_removed(deployment: Deployment, graph: Graph, retained_for: float) -> None:
    """Delete the data recorded for deletion, except for operators that came back.

    May be interrupted and repeated.

    Args:
        deployment: the deployment.
        graph: the graph that runs now.
        retained_for: seconds the data was retained for readers.
    """
    found = Removals(deployment.catalog).until(clock.time() - retained_for)
    back = {node.state_id for node in graph.nodes}
    for state_id, log in found.items():
        if state_id not in back:  # else its backfill begins by emptying it
            deployment.store.drop(state_id)
            deployment.changes.drop(log)
    Removals(deployment.catalog).done(found)


def fed(graph: Graph) -> Iterator[GraphNode]:
    """Yield the nodes of datasets that have sources of their own."""
    for name, entry in graph.entries.items():
        node = graph.outputs[name]
        while node is not entry:
            yield node
            (node,) = node.parents
        yield entry


PERIOD = 3600.0
"""Seconds between two passes."""
FIRST = 300.0
"""Seconds from the start of a worker to its first pass: one that starts anew every hour needs maintenance, too."""


class Maintenance:
    """The maintenance of a deployment, in a thread of its own beside the batches.

    Args:
        deployment: the deployment.
        period: seconds between two passes.
        clock: monotonic seconds.
    """

    def __init__(
        self, deployment: Deployment, period: float = PERIOD, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._deployment, self._period, self._clock = deployment, period, clock
        self._due = clock() + min(period, FIRST)
        self._read: Mapping[str, Any] | None = None
        self._running: threading.Thread | None = None

    def after(self, plan: BatchPlan) -> None:
        """Begin a pass if one is due; call it after each finished batch.

        Args:
            plan: of the batch.
        """
        if self._read is None:
            self._read = plan.positions
        if self._clock() < self._due or (self._running is not None and self._running.is_alive()):
            return
        self._due = self._clock() + self._period
        # Of one pass ago, or of the first batch: one that is run again after a crash still finds its input.
        read, self._read = self._read, plan.positions
        self._running = threading.Thread(target=self._run, args=(plan.revision, read), name="maintenance", daemon=True)
        self._running.start()

    def wait(self) -> None:
        """Wait for the pass that is running."""
        if self._running is not None:
            self._running.join()

    def _run(self, revision: int, read: Mapping[str, Any]) -> None:
        try:
            graph, limits = self._deployment.graph(revision), Limits.from_environment()
        except Exception as error:  # noqa: BLE001  the job goes on without maintenance; an event is recorded
            self._failed(error)
            return
        for work in self._works(graph, limits, read):
            try:
                work()
            except Exception as error:  # noqa: BLE001  what else is to be done does not wait for it
                self._failed(error)

    def _works(self, graph: Graph, limits: Limits, read: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
        """Yield the parts of a pass."""
        place = self._deployment
        yield partial(expire, place, graph, read)
        yield partial(expire_features, place, limits)
        yield partial(retire, place, graph)
        yield from (partial(place.changes.tidy, node) for node in graph.nodes if node.is_logged)
        yield partial(drop_changes, place, graph, limits)

    def _failed(self, error: Exception) -> None:
        report_event(self._deployment.catalog, f"maintenance: {error}", "error")


def expire(deployment: Deployment, graph: Graph, read: Mapping[str, Any]) -> None:
    """Delete ingested events past their retention that every dataset has read.

    Args:
        deployment: the deployment.
        graph: the graph of the datasets.
        read: the position of each source, by its key.
    """
    now, errors = time.time_ns() // 1000, list[Exception]()
    for endpoint, keys in _endpoints(deployment, graph).items():
        reached = [LogPosition.from_json(read[key]) if key in read else ORIGIN for key in keys]
        try:
            endpoint.expire(now, min(reached), Limits.from_environment().ingest_bytes)
        except (UmbelError, OSError) as error:  # the logs of other endpoints do not grow for it
            errors.append(error)
    if errors:
        raise errors[0]


def expire_features(deployment: Deployment, limits: Limits) -> None:
    """Delete the oldest days of the feature log by age and size, except today.

    Args:
        deployment: the deployment.
        limits: with age and bytes.
    """
    before = None
    if limits.feature_log_age:
        before = datetime.now(UTC) - timedelta(seconds=limits.feature_log_age)
    FeatureLog(deployment.directory / "features").expire(before, limits.feature_log_bytes)


def retire(deployment: Deployment, graph: Graph) -> None:
    """Release what servers retain for sources that no commit in force has.

    Args:
        deployment: the deployment.
        graph: of the commits in force.
    """
    folder = deployment.directory / "staged"
    if not folder.is_dir():
        return
    provide_vault(deployment.vault)
    used = {folder_of(deployment.directory, each.key) for each in graph.sources()}
    unused = {each for each in folder.iterdir() if each not in used}
    for revision in range(deployment.catalog.latest(), 0, -1):
        if not unused:
            return
        for opened in open_sources(deployment.directory, deployment.graph(revision)):
            place = folder_of(deployment.directory, opened.key)
            if place in unused:
                unused.remove(place)
                opened.reading.retire()


def _endpoints(deployment: Deployment, graph: Graph) -> Mapping[EndpointSource, list[str]]:
    found: dict[EndpointSource, list[str]] = {}
    for key, connector in _webhooks(graph):
        found.setdefault(EndpointSource(deployment.directory, connector), []).append(key)
    return found


def _webhooks(graph: Graph) -> Iterator[tuple[str, Any]]:
    for each in graph.sources():
        if each.definition.connector.kind == "webhook":
            yield each.key, each.definition.connector
