"""The state of a server: the definitions in force and their query engines."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import polars as pl
from polars.exceptions import PanicException
from starlette.requests import Request

from umbel.catalog.engine import AWAY
from umbel.changes.change_filter import ChangeFilter
from umbel.connectors.webhook import WebhookConnector
from umbel.definitions.records import DatasetDefinition, Definitions, FunctionExtractor
from umbel.errors import Transient, UmbelError, UnknownName, did_you_mean
from umbel.graph.graph import MAIN, Branch, Graph, GraphNode
from umbel.log.ingest import IngestLog, IngestLogs
from umbel.quality.totals import Counts, ExpectationResult, results
from umbel.query.erasure import Erased
from umbel.query.execute import QueryEngine
from umbel.request_errors import Backfilling
from umbel.runtime.completeness import DeploymentCompleteness
from umbel.runtime.deployment import RETAINED_FOR, Deployment, replaced
from umbel.runtime.engines import engine_of
from umbel.runtime.erasures import erased_on
from umbel.runtime.extractors import Extractors
from umbel.runtime.history import replayed
from umbel.runtime.limits import Limits
from umbel.runtime.switching import switches
from umbel.serving.backlog import Backlog
from umbel.serving.headers import branch_of
from umbel.serving.threads import Threads

EVERY = 0.25
"""Seconds between two looks at which revision is in force."""

STALE = RETAINED_FOR / 4
"""Seconds since the last read of the catalog after which a server reads it before it answers."""
PATIENCE = 0.5
"""Seconds it waits for that."""

log = logging.getLogger("umbel.serve")


class NeedsHistory(Exception):
    """The answer requires change logs, too slow for the event loop's thread."""


@dataclass(frozen=True)
class InForce:
    """The definitions in force on a branch, with their query engine.

    Args:
        revision: its number.
        definitions: the committed definitions.
        graph: its operators.
        engine: answers queries on them.
        erased: the keys erased on the branch.
        branch: its name.
        committed: the last commit of the branch, if that is being backfilled and does not serve yet.
    """

    revision: int
    definitions: Definitions
    graph: Branch
    engine: QueryEngine
    erased: Erased
    branch: str = MAIN
    committed: Committed | None = None

    def names(self, name: str) -> list[str]:
        """Return the names in the graph of a dataset of the branch.

        They are that which serves, and that of the last commit. While a version is backfilled it has the name that the one before
        had until then, of the same rows.
        """
        graphs = [self.graph] if self.committed is None else [self.graph, self.committed.graph]
        return list(dict.fromkeys(graph.names[name] for graph in graphs if name in graph.names))

    def expectations(self, name: str, counts: Counts) -> Iterator[ExpectationResult]:
        """Yield the cumulative results of the expectations of a dataset of the branch."""
        yield from results(self.dataset(name), self.names(name), self.graph.outputs[name].state_id, counts)

    def dataset(self, name: str) -> DatasetDefinition:
        """Return a dataset of the branch.

        Raises:
            UnknownName: there is no dataset of this name.
            Backfilling: there will be once its backfill is complete.
        """
        with self.explaining(lambda engine: engine.dataset(name)):
            return self.engine.dataset(name)

    @contextmanager
    def explaining(self, attempt: Callable[[QueryEngine], object]) -> Iterator[None]:
        """Raise `Backfilling` for an error that the last commit would not have.

        Args:
            attempt: repeats the block's work on the engine of the last commit.

        Raises:
            Backfilling: the last commit of the branch has the requested object, and does not serve yet.
        """
        try:
            yield
        except UmbelError as error:
            later = self.committed
            if later is None or isinstance(error, Transient):
                raise
            try:
                attempt(later.engine)
            except UmbelError:
                raise error from None
            serves = f"revision {self.revision} serves until then" if self.revision else "nothing serves yet"
            raise Backfilling(
                f"revision {later.revision} of branch '{self.branch}' is being backfilled; {serves}: {error.message}",
                hint="try again later; GET /api/v1/branch/status says how far it is",
            ) from None


@dataclass(frozen=True)
class Committed:
    """A commit that does not serve yet.

    Args:
        revision: its number.
        graph: its operators.
        engine: plans queries on it.
    """

    revision: int
    graph: Branch
    engine: QueryEngine


class Service:
    """The state of a server process.

    Args:
        deployment: the deployment it serves.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.vault = deployment.vault
        self.threads = Threads()
        self.limits = Limits.from_environment()
        self.backlog = Backlog(deployment, self.limits)
        self.extractors = Extractors()
        self._logs = IngestLogs(deployment.directory)
        self._known = DeploymentCompleteness(deployment)
        self._loading = threading.Lock()
        self._hasty: int | None = None
        self._looked_at = time.monotonic()
        self._load(deployment.catalog.latest())

    def _load(self, latest: int) -> None:
        catalog = self.deployment.catalog
        self._heads = {MAIN: 0, **catalog.heads(latest)}
        self._serving = {MAIN: 0, **catalog.serving(latest)}
        self._graph, self._latest = self.deployment.graph(latest), latest
        self._others: dict[str, InForce] = {}
        self._endpoints = _endpoints(self._graph)
        self._is_computing = self._computes()
        self.current = self._loaded(MAIN)

    def refresh(self) -> bool:
        """Reload the definitions if the catalog changed; return whether any branch changed."""
        with self._loading:
            latest = self.deployment.catalog.latest()
            self._looked_at = time.monotonic()
            if self._is_computing or latest != self._latest:
                self._known.refresh()
                self._is_computing = self._computes()
            if latest == self._latest:
                return False
            self._load(latest)
            return True

    def _computes(self) -> bool:
        """Return whether operators are computed from history: what they lack is noted when that begins."""
        return bool({node.state_id for node in self._graph.nodes} - self.deployment.catalog.backfilled())

    async def of(self, request: Request) -> InForce:
        """Return the definitions in force on the branch of a request.

        Raises:
            UnknownName: there is no such branch.
        """
        if time.monotonic() - self._looked_at > STALE:
            await self._look_again()
        branch = branch_of(request)
        if branch == MAIN:
            return self.current
        known = self._others.get(branch)
        return await self.threads.following.do(self.branch, branch) if known is None else known

    async def _look_again(self) -> None:
        """Refresh after a pause in which no request came.

        State that was replaced long ago may be deleted by then. It does not wait for a locked catalog.
        """
        self._looked_at = time.monotonic()
        with suppress(TimeoutError, OSError, *AWAY):
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self.threads.following.do(self.refresh))

    def branch(self, name: str) -> InForce:
        """Return the definitions in force on a branch.

        If the branch is unknown, the catalog is read again: another server process may just have made it.
        """
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

    def branches(self) -> list[InForce]:
        """Return the definitions in force on all branches, main first."""
        return [self.current, *(self.branch(name) for name in sorted(self._heads) if name != MAIN)]

    def backfilling(self) -> list[str]:
        """Describe the backfill of each branch whose last commit does not serve yet."""
        latest = self._latest
        return [f"branch '{each.branch}': {each.message}" for each in switches(self.deployment, latest)]

    async def follow(self) -> None:
        """Poll the catalog for commits, until cancelled.

        From now on the calling thread must not read change logs: it raises `NeedsHistory` instead.
        """
        self._hasty = threading.get_ident()
        await self.threads.following.do(self.preload)
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.threads.following.do(self.refresh)
            except Exception as error:  # noqa: BLE001  a server that stops polling would answer by replaced definitions
                log.error("cannot follow the catalog: %s", error)

    def preload(self) -> None:
        """Read the recent state of each shard, for which the first queries would wait.

        What cannot be read is an error of those who need it.
        """
        for shard in range(self.deployment.store.shards):
            with suppress(Exception, PanicException), self.deployment.store.snapshot(shard):
                pass

    async def endpoint(self, webhook: str, endpoint: str) -> IngestLog:
        """Return the ingest log of an endpoint that a dataset of any branch reads.

        Raises:
            UnknownName: no dataset reads it.
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
        """Flush the ingest logs, and release files and threads."""
        self._logs.close()
        self.threads.close()
        self.backlog.close()
        self.extractors.close()

    def _loaded(self, branch: str) -> InForce:
        head, revision = self._heads[branch], self._serving[branch]
        erased, store = erased_on(self.deployment, branch, self._latest), self.deployment.store
        later = None
        if head != revision:
            newer, coming = self._graph.branch(branch), self.deployment.definitions(head)
            engine = engine_of(coming, newer, store, self._history, erased, self.extractors, self._known)
            later = Committed(head, newer, engine)
        graph = self._graph.branch(branch if later is None else replaced(branch))
        definitions = self.deployment.definitions(revision)
        if any(
            isinstance(each, FunctionExtractor) for of in definitions.featuresets.values() for each in of.extractors
        ):
            self.extractors.start()
        engine = engine_of(definitions, graph, store, self._history, erased, self.extractors, self._known)
        return InForce(revision, definitions, graph, engine, erased, branch, later)

    def _history(self, node: GraphNode, changes: ChangeFilter) -> pl.DataFrame:
        if threading.get_ident() == self._hasty:
            raise NeedsHistory
        return replayed(self.deployment, node, changes)


def _endpoints(graph: Graph) -> frozenset[tuple[str, str]]:
    connectors = [each.definition.connector for each in graph.sources()]
    return frozenset((each.source_name, each.endpoint) for each in connectors if isinstance(each, WebhookConnector))
