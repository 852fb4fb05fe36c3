"""What a server knows: the definitions in force, and how to answer on them."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass

import polars as pl
from starlette.requests import Request

from umbel.connectors.webhook import WebhookConnector
from umbel.errors import UnknownName, did_you_mean
from umbel.log.ingest import IngestLog, IngestLogs
from umbel.plan.definitions import Definitions
from umbel.plan.graph import MAIN, Branch, Graph, Node
from umbel.query.erasure import Erased
from umbel.query.execute import QueryEngine
from umbel.query.history import replay
from umbel.runtime.deployment import Deployment
from umbel.runtime.engines import engine_of
from umbel.runtime.erasures import erased_on
from umbel.serving.requests import BRANCH_HEADER
from umbel.serving.threads import Threads

EVERY = 0.25
"""Seconds between two looks at which revision is in force."""

log = logging.getLogger("umbel.serve")


class NeedsHistory(Exception):
    """The answer is in the change logs; reading them takes too long for the thread that serves everybody."""


@dataclass(frozen=True)
class InForce:
    """What is in force on a branch, ready to answer.

    Args:
        revision: its number.
        definitions: what was committed.
        graph: its operators.
        engine: answers queries on them.
        erased: the keys erased on the branch.
    """

    revision: int
    definitions: Definitions
    graph: Branch
    engine: QueryEngine
    erased: Erased


class Service:
    """The state of a server process.

    Args:
        deployment: where things are.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.vault = deployment.vault
        self.threads = Threads()
        self._logs = IngestLogs(deployment.directory)
        self._loading = threading.Lock()
        self._hasty: int | None = None
        self._load(deployment.catalog.latest())

    def _load(self, latest: int) -> None:
        catalog = self.deployment.catalog
        self._heads = {MAIN: 0, **catalog.heads(latest)}
        self._graph, self._latest = self.deployment.graph(latest), latest
        self._others: dict[str, InForce] = {}
        self._endpoints = _endpoints(self._graph)
        self.current = self._loaded(MAIN)

    def refresh(self) -> bool:
        """Ask the catalog for what is in force; return whether something changed, on whichever branch."""
        with self._loading:
            latest = self.deployment.catalog.latest()
            if latest == self._latest:
                return False
            self._load(latest)
            return True

    async def of(self, request: Request) -> InForce:
        """Return what is in force on the branch a request is about.

        Raises:
            UnknownName: there is no such branch.
        """
        branch = request.headers.get(BRANCH_HEADER, MAIN)
        if branch == MAIN:
            return self.current
        known = self._others.get(branch)
        return await self.threads.following.do(self.branch, branch) if known is None else known

    def branch(self, name: str) -> InForce:
        """Return what is in force on a branch, made on another server process a moment ago, perhaps."""
        if name not in self._heads:
            self.refresh()
        with self._loading:
            if name not in self._heads:
                self.deployment.catalog.head(name)  # says which there are
            if name == MAIN:
                return self.current
            known = self._others.get(name)
            if known is None:
                known = self._others[name] = self._loaded(name)
            return known

    async def follow(self) -> None:
        """Keep up with commits, until cancelled. This thread is from now on too busy to read change logs."""
        self._hasty = threading.get_ident()
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.threads.following.do(self.refresh)
            except Exception as error:  # noqa: BLE001  whoever stops following answers by what has long been replaced
                log.error("cannot follow the catalog: %s", error)

    async def endpoint(self, webhook: str, endpoint: str) -> IngestLog:
        """Return the ingest log of an endpoint that some dataset reads, on whichever branch.

        Raises:
            UnknownName: none does.
        """
        if (webhook, endpoint) not in self._endpoints:
            await self.threads.following.do(self.refresh)
        known = self._endpoints
        if (webhook, endpoint) not in known:
            name = f"{webhook}/{endpoint}"
            hint = did_you_mean(name, ("/".join(each) for each in known))
            raise UnknownName(f"no dataset reads the webhook endpoint '{name}'{hint}")
        return self._logs.log(webhook, endpoint)

    def close(self) -> None:
        """Write what is waiting, and release files."""
        self._logs.close()
        self.threads.close()

    def _loaded(self, branch: str) -> InForce:
        revision, graph = self._heads[branch], self._graph.branch(branch)
        definitions = self.deployment.definitions(revision)
        erased = erased_on(self.deployment, branch, self._latest)
        engine = engine_of(definitions, graph, self.deployment.store, self._history, erased)
        return InForce(revision, definitions, graph, engine, erased)

    def _history(self, node: Node) -> pl.DataFrame:
        if threading.get_ident() == self._hasty:
            raise NeedsHistory
        return replay(node, self.deployment.changes.read)


def _endpoints(graph: Graph) -> frozenset[tuple[str, str]]:
    connectors = [each.definition.connector for each in graph.sources()]
    return frozenset((each.source_name, each.endpoint) for each in connectors if isinstance(each, WebhookConnector))
