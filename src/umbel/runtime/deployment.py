"""A deployment: where the catalog, the store and the logs are, opened once per process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from umbel.catalog.catalog import Catalog
from umbel.catalog.vault import Vault
from umbel.plan.definitions import Definitions
from umbel.plan.graph import MAIN, Graph
from umbel.plan.serde import load
from umbel.runtime.changelogs import ChangeLogs
from umbel.runtime.plans import Plans
from umbel.runtime.sources import open_sources
from umbel.state.port import Store
from umbel.state.urls import open_store

JOB = "live"
"""The job that processes what sources bring."""
SHARDS = 4
BUDGET = 128 << 20
"""Bytes of input per batch."""


@dataclass(frozen=True)
class Deployment:
    """Where things are.

    Args:
        directory: umbel's folder.
        catalog_url: a database.
        store_url: a store.
        shards: in how many parts state is kept; fixed when the deployment is made.
        budget: bytes of input per batch.
    """

    directory: Path
    catalog_url: str
    store_url: str
    shards: int
    budget: int = BUDGET

    @classmethod
    def at(
        cls,
        directory: Path,
        *,
        catalog_url: str | None = None,
        store_url: str | None = None,
        shards: int = SHARDS,
        budget: int = BUDGET,
    ) -> Deployment:
        """Return the deployment in a folder, made if there is none; its number of shards stays what it was.

        Args:
            directory: the folder.
            catalog_url: SQLite in the folder when None.
            store_url: LMDB in the folder when None.
            shards: for a new one.
            budget: bytes of input per batch.
        """
        folder = directory.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        catalog_url = catalog_url or f"sqlite:///{folder / 'catalog.db'}"
        fixed = int(Catalog(catalog_url).setting("shards", shards))
        return cls(folder, catalog_url, store_url or f"lmdb://{folder / 'store'}", fixed, budget)

    def encode(self) -> str:
        """Return it as JSON, for other processes."""
        parts = (str(self.directory), self.catalog_url, self.store_url, self.shards, self.budget)
        return json.dumps(parts)

    @staticmethod
    def decode(text: str) -> Deployment:
        """Return the deployment that `encode` wrote; the same object each time in a process."""
        return _decoded(text)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog."""
        return Catalog(self.catalog_url)

    @cached_property
    def vault(self) -> Vault:
        """The secrets."""
        return Vault(self.catalog, self.directory / "secret.key")

    @cached_property
    def store(self) -> Store:
        """The store."""
        return open_store(self.store_url, self.shards)

    @cached_property
    def changes(self) -> ChangeLogs:
        """The change logs."""
        return ChangeLogs(self.directory / "changes")

    def definitions(self, revision: int) -> Definitions:
        """Return what was committed as a revision, on whichever branch; revision 0 is empty."""
        return _definitions(self, revision)

    def graph(self, revision: int) -> Graph:
        """Return the graph of all branches as of a revision."""
        return _graph(self, revision)

    def branches(self, revision: int) -> dict[str, Definitions]:
        """Return the definitions of every branch as of a revision."""
        return {branch: self.definitions(head) for branch, head in self.catalog.heads(revision).items()}

    def graph_with(self, branch: str, definitions: Definitions) -> Graph:
        """Return the graph of all branches once one of them has other definitions."""
        return _united({**self.branches(self.catalog.latest()), branch: definitions})

    def branch(self, name: str) -> Definitions:
        """Return what is in force on a branch.

        Raises:
            UnknownName: there is no such branch.
        """
        return self.definitions(self.catalog.head(name))

    def plans(self) -> Plans:
        """Return the batch plans of the live job."""
        return Plans(self.directory / "plans", self._sources, self.budget, self._is_due)

    def _is_due(self) -> bool:
        last = self.catalog.progress(JOB, sys.maxsize)
        return last is not None and bool(last.state.get("due"))

    def _sources(self) -> tuple[int, Any]:
        revision = self.catalog.latest()
        return revision, _sources(self, revision)

    def __hash__(self) -> int:
        return hash((self.directory, self.catalog_url, self.store_url, self.shards, self.budget))


@lru_cache(maxsize=4)
def _decoded(text: str) -> Deployment:
    directory, *rest = json.loads(text)
    return Deployment(Path(directory), *rest)


@lru_cache(maxsize=8)
def _definitions(deployment: Deployment, revision: int) -> Definitions:
    found = deployment.catalog.definitions(revision) if revision else b""
    return load(found) if found else Definitions({}, {})


@lru_cache(maxsize=8)
def _graph(deployment: Deployment, revision: int) -> Graph:
    return _united(deployment.branches(revision))


def _united(branches: Mapping[str, Definitions]) -> Graph:
    datasets = {branch: each.datasets.values() for branch, each in branches.items()}
    return Graph(datasets.pop(MAIN, ()), datasets)


@lru_cache(maxsize=4)
def _sources(deployment: Deployment, revision: int) -> tuple[Any, ...]:
    return tuple(open_sources(deployment.directory, deployment.graph(revision)))
