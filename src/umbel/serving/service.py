"""What a server knows: the definitions in force, and how to answer on them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from umbel.errors import UnknownName, did_you_mean
from umbel.log.ingest import IngestLog, IngestLogs
from umbel.plan.definitions import DatasetDefinition, Definitions
from umbel.plan.graph import Graph, Node
from umbel.query.execute import QueryEngine
from umbel.query.history import replay
from umbel.query.lookups import Lookups
from umbel.runtime.deployment import Deployment

FRESH_FOR = 0.25
"""Seconds for which the revision in force is not asked for again."""


@dataclass(frozen=True)
class InForce:
    """One revision, ready to answer.

    Args:
        revision: its number.
        definitions: what was committed.
        engine: answers queries on them.
        endpoints: the datasets behind each webhook endpoint.
    """

    revision: int
    definitions: Definitions
    engine: QueryEngine
    endpoints: dict[tuple[str, str], list[DatasetDefinition]]


class Service:
    """The state of a server process.

    Args:
        deployment: where things are.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._logs = IngestLogs(deployment.directory)
        self._current: InForce | None = None
        self._asked = 0.0

    @property
    def current(self) -> InForce:
        """The revision in force, asked of the catalog now and then."""
        if self._current is None or time.monotonic() - self._asked > FRESH_FOR:
            self.refresh()
        assert self._current is not None
        return self._current

    def refresh(self) -> None:
        """Ask the catalog for the revision in force."""
        revision = self.deployment.catalog.revision()
        if self._current is None or revision != self._current.revision:
            self._current = self._loaded(revision)
        self._asked = time.monotonic()

    def endpoint(self, webhook: str, endpoint: str) -> IngestLog:
        """Return the ingest log of an endpoint that some dataset reads.

        Raises:
            UnknownName: none does.
        """
        known = self.current.endpoints
        if (webhook, endpoint) not in known:
            self.refresh()
            known = self.current.endpoints
        if (webhook, endpoint) not in known:
            name = f"{webhook}/{endpoint}"
            hint = did_you_mean(name, ("/".join(each) for each in known))
            raise UnknownName(f"no dataset reads the webhook endpoint '{name}'{hint}")
        return self._logs.log(webhook, endpoint)

    def close(self) -> None:
        """Write what is waiting, and release files."""
        self._logs.close()

    def _loaded(self, revision: int) -> InForce:
        definitions, graph = self.deployment.definitions(revision), self.deployment.graph(revision)
        lookups = Lookups(graph, self.deployment.store, self._history)
        engine = QueryEngine(definitions, lookups)
        return InForce(revision, definitions, engine, _endpoints(graph, definitions.datasets.values()))

    def _history(self, node: Node) -> pl.DataFrame:
        return replay(node, self.deployment.changes.read)


def _endpoints(graph: Graph, datasets: Iterable[DatasetDefinition]) -> dict[tuple[str, str], list[DatasetDefinition]]:
    found: dict[tuple[str, str], list[DatasetDefinition]] = {}
    for dataset in datasets:
        for source in dataset.sources:
            endpoint = getattr(source.connector, "endpoint", None)
            if source.connector.kind == "webhook" and endpoint is not None:
                found.setdefault((source.connector.source_name, endpoint), []).append(dataset)
    return found
