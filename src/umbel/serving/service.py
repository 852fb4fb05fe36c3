"""What a server knows: the definitions in force, and how to answer on them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from umbel.catalog.vault import Vault
from umbel.errors import UmbelError, UnknownName, did_you_mean
from umbel.log.ingest import IngestLog, IngestLogs
from umbel.plan.definitions import DatasetDefinition, Definitions
from umbel.plan.graph import Graph, Node
from umbel.query.execute import QueryEngine
from umbel.query.history import replay
from umbel.query.lookups import Lookups
from umbel.runtime.deployment import Deployment

EVERY = 0.25
"""Seconds between two looks at which revision is in force."""

log = logging.getLogger("umbel.serve")


class NeedsHistory(Exception):
    """The answer is in the change logs; reading them takes too long for the thread that serves everybody."""


@dataclass(frozen=True)
class InForce:
    """One revision, ready to answer.

    Args:
        revision: its number.
        definitions: what was committed.
        graph: its operators.
        engine: answers queries on them.
        endpoints: the datasets behind each webhook endpoint.
    """

    revision: int
    definitions: Definitions
    graph: Graph
    engine: QueryEngine
    endpoints: dict[tuple[str, str], list[DatasetDefinition]]


class Service:
    """The state of a server process.

    Args:
        deployment: where things are.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.vault = Vault(deployment.catalog, deployment.directory / "secret.key")
        self._logs = IngestLogs(deployment.directory)
        self._loading = threading.Lock()
        self._hasty: int | None = None
        self.current = self._loaded(deployment.catalog.revision())

    def refresh(self) -> bool:
        """Ask the catalog for the revision in force; return whether it is another one than before."""
        with self._loading:
            revision = self.deployment.catalog.revision()
            if revision == self.current.revision:
                return False
            self.current = self._loaded(revision)
            return True

    async def follow(self) -> None:
        """Keep up with commits, until cancelled. This thread is from now on too busy to read change logs."""
        self._hasty = threading.get_ident()
        while True:
            await asyncio.sleep(EVERY)
            try:
                await asyncio.to_thread(self.refresh)
            except UmbelError as error:
                log.error("cannot follow the catalog: %s", error)

    async def endpoint(self, webhook: str, endpoint: str) -> IngestLog:
        """Return the ingest log of an endpoint that some dataset reads.

        Raises:
            UnknownName: none does.
        """
        if (webhook, endpoint) not in self.current.endpoints:
            await asyncio.to_thread(self.refresh)
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
        return InForce(revision, definitions, graph, engine, _endpoints(definitions.datasets.values()))

    def _history(self, node: Node) -> pl.DataFrame:
        if threading.get_ident() == self._hasty:
            raise NeedsHistory
        return replay(node, self.deployment.changes.read)


def _endpoints(datasets: Iterable[DatasetDefinition]) -> dict[tuple[str, str], list[DatasetDefinition]]:
    found: dict[tuple[str, str], list[DatasetDefinition]] = {}
    for dataset in datasets:
        for source in dataset.sources:
            endpoint = getattr(source.connector, "endpoint", None)
            if source.connector.kind == "webhook" and endpoint is not None:
                found.setdefault((source.connector.source_name, endpoint), []).append(dataset)
    return found
