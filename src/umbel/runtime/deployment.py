"""A deployment: its catalog, store and logs, opened once per process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from umbel.api.secrets import provide_secrets
from umbel.catalog.catalog import Catalog, JobProgress
from umbel.catalog.landmarks import Landmarks
from umbel.catalog.purges import Purges
from umbel.catalog.removals import Removals
from umbel.catalog.replays import Replays
from umbel.catalog.vault import Vault
from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.graph.graph import MAIN, Graph
from umbel.graph.tiled import tiled
from umbel.processes.privacy import make_private
from umbel.runtime.backfill_state import BACKFILL, BackfillState
from umbel.runtime.batch_sizes import ROW_BYTES, BatchSizes
from umbel.runtime.changelogs import ChangeLogs, Dues
from umbel.runtime.fixed_settings import DEFAULT, SHARDED, SHARDS, FixedSettings, check_grid
from umbel.runtime.home import check_catalog, elsewhere, is_away, is_home, made, other_folder
from umbel.runtime.journal_ends import noted_ends
from umbel.runtime.limits import Limits
from umbel.runtime.loaded import LoadedDefinitions
from umbel.runtime.plans import Plans
from umbel.runtime.replays import replay_sources
from umbel.runtime.reporting import report_event
from umbel.runtime.source_lags import LagRecord
from umbel.runtime.sources import open_sources
from umbel.state.durable import DurableStore
from umbel.state.passwords import handed_on, received
from umbel.state.port import Lasting, Store
from umbel.state.urls import open_store
from umbel.windowing.tiling import Tiling

JOB = "live"
"""The job that processes the sources' rows."""
RETAINED_FOR = 60.0
"""Seconds for which the state of operators no longer in force stays: servers learn of a commit within one."""
STORE = "store"
"""The setting that says which store has the state."""
NEW_STORE = "new store"
"""The setting with the identity of a store that is not made yet."""
FORMER_STORE = "former store"
"""The setting that says which store had the state before a rebuild of all of it."""
BUDGET = 128 << 20
"""Bytes of input that a batch has at most."""
LEAST_BYTES = 4 << 10
"""Those that any batch may have."""
LIMIT = "limit"
"""The entry of a batch's progress that limits the bytes of the next one."""
MOST = "most"
"""The entry that limits the bytes of all batches, since a larger one has ended the worker."""


def replaced(branch: str) -> str:
    """Return the graph name of a branch's serving commit during a backfill."""
    return f"{branch}@serving"  # no name of a branch has an @


@dataclass(frozen=True)
class Deployment:
    """A deployment: its folder, catalog, store and fixed settings.

    Args:
        directory: umbel's folder.
        catalog_url: a database.
        store_url: a store.
        shards: the number of state shards; fixed when the deployment is made.
        budget: bytes of input per batch.
        tiling: the resolution of continuous windows' tiles; fixed when the deployment is made.
        ahead: how far ahead of processing time event times of live sources may be, in µs; None for any.
        late: bytes of late records stored for each dataset.
    """

    directory: Path
    catalog_url: str = field(repr=False)
    store_url: str = field(repr=False)
    shards: int
    budget: int = BUDGET
    tiling: Tiling = DEFAULT
    ahead: int | None = None
    late: int = Limits().late_bytes

    def __post_init__(self) -> None:
        self.encode()  # puts URLs that have passwords into the environment, before processes are started that need them

    @classmethod
    def at(
        cls,
        directory: Path,
        *,
        catalog_url: str | None = None,
        store_url: str | None = None,
        shards: int | None = None,
        budget: int = BUDGET,
        accuracy: float | None = None,
        exact_instants: int | None = None,
    ) -> Deployment:
        """Open the deployment in a folder, or make one.

        The bounds of event time are those of `Limits` in the environment.

        Args:
            directory: the folder.
            catalog_url: SQLite in the folder when None.
            store_url: files in it when None.
            shards: the number of state shards; fixed when the deployment is made, as are the next two.
            budget: bytes of input per batch.
            accuracy: the largest error of a continuous window's start for busy keys, as a share of the window.
            exact_instants: the number of distinct instants a tile stores, so that quiet keys are exact.

        Raises:
            InvalidValue: the folder or the catalog cannot be used; or a fixed setting differs from that of the deployment.
        """
        check_grid(accuracy, exact_instants)
        folder = made(directory.absolute())
        make_private(folder)
        check_catalog(folder, catalog_url)
        catalog_url, store_url = (
            catalog_url or f"sqlite:///{folder / 'catalog.db'}",
            store_url or f"file://{folder / 'store'}",
        )
        with closing(Catalog(catalog_url)) as catalog:
            fixed = FixedSettings(catalog, folder)
            tiling, parts = fixed.tiling(accuracy, exact_instants), int(fixed.setting(SHARDED, shards, SHARDS))
        limits = Limits.from_environment()
        return cls(folder, catalog_url, store_url, parts, budget, tiling, limits.max_ahead, limits.late_bytes)

    def encode(self, *, for_others: bool = False) -> str:
        """Encode it as JSON, for other processes.

        Args:
            for_others: True for processes without the environment of this one, as on other machines: passwords are then part
                of the text, which must not be written or shown.
        """
        urls = [url if for_others else handed_on(url) for url in (self.catalog_url, self.store_url)]
        parts = (str(self.directory.absolute()), *urls, self.shards, self.budget, self.ahead, self.late)
        return json.dumps([*parts, self.tiling.accuracy, self.tiling.exact])

    @staticmethod
    def decode(text: str) -> Deployment:
        """Return the deployment encoded by `encode`; one object per process."""
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
        store, known = open_store(self.store_url, self.shards), self.catalog.noted(STORE)
        if known is not None and isinstance(store, Lasting):
            store.must_be(known)
            store.must_reach(partial(noted_ends, self.catalog, JOB))
        elif isinstance(store, DurableStore):
            store.may_be(self.catalog.setting(NEW_STORE, uuid4().hex), partial(self.catalog.noted, STORE))
        return store

    @cached_property
    def landmarks(self) -> Landmarks:
        """The landmarks of the sources, from which positions of rows are counted."""
        return Landmarks(self.catalog)

    def note_store(self) -> None:
        """Record in the catalog which store has the state, once there is any."""
        if self.noted_store is None and isinstance(self.store, Lasting) and self.store.identity is not None:
            self.catalog.setting(STORE, self.store.identity)
            self.__dict__.pop("noted_store")

    @cached_property
    def noted_store(self) -> Any:
        """The store recorded in the catalog, None for none yet."""
        return self.catalog.noted(STORE)

    def check_home(self) -> None:
        """Refuse a folder that no worker reads.

        Raises:
            InvalidValue: the catalog belongs to a deployment in another folder.
        """
        if not self.is_home:
            raise other_folder(self.directory)

    def check_state(self, *, deep: bool = False) -> None:
        """Refuse a damaged catalog, and state that this version of umbel cannot read.

        Args:
            deep: True to look at each shard, too.

        Raises:
            OldState: another version wrote it.
            Damaged: catalog or state is missing or damaged.
        """
        self.catalog.check_decisive()
        store = self.store
        for shard in range(store.shards) if deep else ():
            store.state_ids(shard)

    @cached_property
    def is_home(self) -> bool:
        """True if the folder is the one that the worker reads."""
        return self._has_own_catalog or is_home(self.directory, self.catalog)

    @property
    def is_away(self) -> bool:
        """True if the worker has another folder, with logs, plans and positions."""
        return not self._has_own_catalog and is_away(self.directory, self.catalog)

    @property
    def _has_own_catalog(self) -> bool:
        return self.catalog_url == f"sqlite:///{self.directory / 'catalog.db'}"

    @cached_property
    def changes(self) -> ChangeLogs:
        """The change logs.

        Raises:
            NotSupported: they are on another machine.
        """
        if not self.is_home:
            raise elsewhere("read what was before")
        return ChangeLogs(self.directory / "changes", self.dues, self._store_identity)

    def _store_identity(self, expected: str = "") -> str:
        """Return the identity of the store, empty before it has one.

        The catalog is read if it is not the expected one: it may have been made anew since. Where none is expected, a
        worker writes, and it is not made anew meanwhile.
        """
        if self.noted_store and expected in ("", self.noted_store):
            return str(self.noted_store)
        return str(self.catalog.noted(STORE) or self.catalog.noted(NEW_STORE) or "")

    def dues(self) -> Dues:
        """Return the expected content of each change log after the last finished batch."""
        last = self.catalog.progress(JOB, sys.maxsize)
        dues: Dues = last.state.get("logs", {}) if last is not None else {}
        return dues

    @cached_property
    def _loaded(self) -> LoadedDefinitions:
        return LoadedDefinitions(self.catalog)

    def definitions(self, revision: int) -> Definitions:
        """Return the definitions of a revision of any branch; revision 0 is empty."""
        return self._loaded.of(revision)

    def graph(self, revision: int, waiting: frozenset[str] = frozenset()) -> Graph:
        """Return the graph of all branches as of a revision.

        Commits that still serve while their successor is being backfilled are included.

        Args:
            revision: the revision.
            waiting: the state ids of nodes to leave out, because their backfill is not complete.
        """
        return _graph(self, revision, waiting)

    def branches(self, revision: int) -> dict[str, Definitions]:
        """Return the definitions of every branch as of a revision.

        A commit that serves instead of its branch's last one is under the name `replaced`.
        """
        heads, serving = self.catalog.heads(revision), self.catalog.serving(revision)
        former = {replaced(branch): serving[branch] for branch, head in heads.items() if serving[branch] != head}
        numbers = {**heads, **former}
        found = self._loaded.in_force(numbers.values())
        return {branch: found[number] for branch, number in numbers.items()}

    def graph_with(self, branch: str, definitions: Definitions) -> Graph:
        """Return the graph of all branches with other definitions for one."""
        return _united({**self.branches(self.catalog.latest()), branch: definitions}, self.tiling)

    def branch(self, name: str) -> Definitions:
        """Return the definitions in force on a branch.

        Raises:
            UnknownName: there is no such branch.
        """
        return self.definitions(self.catalog.head(name))

    def plans(self) -> Plans:
        """Return the batch plans of the live job."""
        lags = LagRecord(self.directory)
        return Plans(
            self.directory / "plans",
            self._sources,
            self._limit,
            self._is_due,
            self.ahead,
            self._in_trouble,
            lags.note,
        )

    def sizes(self, revision: int, most: int | None = None) -> BatchSizes:
        """Return the sizes that batches may have, in bytes of input.

        Args:
            revision: of the definitions.
            most: the largest size, since a larger batch has ended the worker; None if none has.
        """
        full = self.budget if most is None else min(most, self.budget)
        return BatchSizes.of((node.operator for node in self.graph(revision).nodes), LEAST_BYTES, full, ROW_BYTES)

    def limit_after(self, before: JobProgress | None, revision: int) -> int:
        """Return about how many bytes a batch may read after another one."""
        noted = before.state.get(LIMIT) if before else None
        return self.sizes(revision).begin if noted is None else min(noted, self.budget)

    def _limit(self) -> int:
        return self.limit_after(self.catalog.progress(JOB, sys.maxsize), self.catalog.latest())

    def _in_trouble(self, source: str, reason: str) -> None:
        report_event(self.catalog, f"source {source}: {reason}")

    def _is_due(self) -> bool:
        last, now = self.catalog.progress(JOB, sys.maxsize), time.time()
        if last is None or last.state.get("due"):
            return last is not None
        if last.state.get("waiting") and self.backfill_state().is_due(now):
            return True
        return bool(Removals(self.catalog).until(now - RETAINED_FOR)) or Purges(self.catalog).is_due()

    def backfill_state(self) -> BackfillState:
        """Return the progress of the worker's current backfill."""
        return BackfillState.of(self.catalog.noted(BACKFILL))

    def _sources(self) -> tuple[int, Any]:
        provide_secrets(self.vault)
        revision = self.catalog.latest()
        found = _sources(self, revision)
        return revision, (*found, *replay_sources(Replays(self.catalog), found))

    def __hash__(self) -> int:
        parts = (self.directory, self.catalog_url, self.store_url, self.shards, self.budget, self.tiling)
        return hash((*parts, self.ahead, self.late))


@lru_cache(maxsize=4)
def _decoded(text: str) -> Deployment:
    directory, catalog_url, store_url, shards, budget, ahead, late, accuracy, exact = json.loads(text)
    urls = received(catalog_url), received(store_url)
    return Deployment(Path(directory), *urls, shards, budget, Tiling(accuracy, exact), ahead, late)


@lru_cache(maxsize=8)
def _graph(deployment: Deployment, revision: int, waiting: frozenset[str]) -> Graph:
    if waiting:
        return deployment.graph(revision).without(waiting)
    return _united(deployment.branches(revision), deployment.tiling)


def _united(branches: Mapping[str, Definitions], tiling: Tiling) -> Graph:
    waiting = {replaced(branch): each for branch, each in branches.items()}
    fed = {name: _fed_by(waiting.get(name), each) for name, each in branches.items()}
    datasets = {branch: list(tiled(each, tiling)) for branch, each in fed.items()}
    return Graph(datasets.pop(MAIN, ()), datasets)


def _fed_by(waiting: Definitions | None, serving: Definitions) -> list[DatasetDefinition]:
    """Return datasets with the sources of the commit that waits, if there is one.

    Else a changed source would begin a dataset of its own beside the one with the rows.
    """
    found = list(serving.datasets.values())
    for number, each in enumerate(found):
        later = waiting.datasets.get(each.name) if waiting is not None else None
        if later is not None and _rows_of(later) == _rows_of(each):
            found[number] = replace(each, sources=later.sources)
    return found


def _rows_of(dataset: DatasetDefinition) -> tuple[str, str, str]:
    """Return the identity of the stored rows of a dataset, whatever its sources are."""
    return dataset.fingerprint, dataset.ingestion, dataset.feed


@lru_cache(maxsize=4)
def _sources(deployment: Deployment, revision: int) -> tuple[Any, ...]:
    return tuple(open_sources(deployment.directory, deployment.graph(revision)))
