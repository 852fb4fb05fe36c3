"""Upkeep: what a deployment needs now and then, beside its batches: old logs deleted, small files merged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from umbel.connectors.ingestlog import EndpointSource
from umbel.log.segments import ORIGIN, LogPosition
from umbel.plan.graph import Graph
from umbel.runtime.deployment import Deployment
from umbel.runtime.plans import Plan

PERIOD = 3600.0
"""Seconds between two passes."""

log = logging.getLogger("umbel.work")


class Upkeep:
    """The upkeep of a deployment, in a thread of its own while batches go on.

    Args:
        deployment: where things are.
        period: seconds between two passes.
        clock: seconds that only grow.
    """

    def __init__(
        self, deployment: Deployment, period: float = PERIOD, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._deployment, self._period, self._clock = deployment, period, clock
        self._due = clock() + period
        self._read: Mapping[str, Any] = {}
        self._running: threading.Thread | None = None

    def after(self, plan: Plan) -> None:
        """Begin a pass if one is due; call it after each finished batch.

        Args:
            plan: what the batch read.
        """
        if self._clock() < self._due or (self._running is not None and self._running.is_alive()):
            return
        self._due = self._clock() + self._period
        # Of one pass ago: a batch that is run again after a crash still finds what it read.
        read, self._read = self._read, plan.positions
        self._running = threading.Thread(target=self._run, args=(plan.revision, read), name="upkeep", daemon=True)
        self._running.start()

    def wait(self) -> None:
        """Wait for the pass that is running."""
        if self._running is not None:
            self._running.join()

    def _run(self, revision: int, read: Mapping[str, Any]) -> None:
        try:
            graph = self._deployment.graph(revision)
            expire(self._deployment, graph, read)
            for node in graph.nodes:
                if node.is_logged:
                    self._deployment.changes.tidy(node)
        except Exception as error:  # noqa: BLE001  the job goes on without upkeep, and somebody is told
            log.warning("upkeep: %s", error)
            self._deployment.catalog.tell("work", "error", f"upkeep: {error}")


def expire(deployment: Deployment, graph: Graph, read: Mapping[str, Any]) -> None:
    """Delete what webhooks accepted longer ago than they retain it, and every dataset has read.

    Args:
        deployment: where things are.
        graph: what reads.
        read: how far each source has been read, by its key.
    """
    now = time.time_ns() // 1000
    for endpoint, keys in _endpoints(deployment, graph).items():
        reached = [LogPosition.from_json(read[key]) if key in read else ORIGIN for key in keys]
        endpoint.expire(now, min(reached))


def _endpoints(deployment: Deployment, graph: Graph) -> Mapping[EndpointSource, list[str]]:
    found: dict[EndpointSource, list[str]] = {}
    for key, connector in _webhooks(graph):
        found.setdefault(EndpointSource(deployment.directory, connector), []).append(key)
    return found


def _webhooks(graph: Graph) -> Iterator[tuple[str, Any]]:
    for each in graph.sources():
        if each.definition.connector.kind == "webhook":
            yield each.key, each.definition.connector
