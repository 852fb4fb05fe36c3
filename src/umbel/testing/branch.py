"""One branch of a mock client: what is committed, the rows it was fed, and the runner that keeps it computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from umbel.errors import UnknownName, did_you_mean
from umbel.local.runner import Runner
from umbel.operators.aggregate import Aggregate
from umbel.plan.definitions import DatasetDefinition, Definitions
from umbel.query.erasure import Erased, Erasing
from umbel.query.execute import QueryEngine
from umbel.testing.tables import table

Fed = tuple[str, pl.DataFrame]
"""A dataset's name and rows it was fed, in storage types."""

Mark = tuple[int, frozenset[str]]
"""A state of a branch's data to go back to."""

EMPTY = Definitions({}, {})
EXACT = 2**31 - 1
"""Instants a tile keeps apart: all of them, so that no test has to allow for the rounding of busy keys."""


class Branch:
    """One branch. The rows it was fed are kept, so that it can be computed again under other definitions.

    Args:
        definitions: what is committed.
        fed: the rows it was fed, in order.
        stored: datasets that end in a terminal aggregate and were fed directly: their rows are kept as they are.
        erased: what was erased.
        objects: the datasets and featuresets as users made them, by name.
    """

    def __init__(
        self,
        definitions: Definitions = EMPTY,
        fed: Iterable[Fed] = (),
        stored: frozenset[str] = frozenset(),
        erased: Erased | None = None,
        objects: Mapping[str, Any] | None = None,
    ) -> None:
        self.definitions = definitions
        self.objects = dict(objects or {})
        self.erased = erased or Erased()
        self.committed_at = datetime.now(UTC)
        self._fed = list(fed)
        self._stored = stored
        self._runner: Runner | None = None
        self._engine: QueryEngine | None = None

    def clone(self) -> Branch:
        """Return a branch of its own with the same definitions and data; frames are shared, never changed."""
        return Branch(self.definitions, self._fed, self._stored, self.erased.copy(), self.objects)

    def commit(self, definitions: Definitions, objects: Mapping[str, Any], *, incremental: bool) -> None:
        """Make definitions what the branch consists of.

        Args:
            definitions: all of them.
            objects: what users committed, by name.
            incremental: keep the data of the datasets that did not change.
        """
        before = self.definitions.datasets
        kept = [name for name, each in definitions.datasets.items() if incremental and _same(before.get(name), each)]
        if not incremental or _computations(before) != _computations(definitions.datasets):
            self._fed = [(name, rows) for name, rows in self._fed if name in kept]
            self._stored = self._stored & frozenset(kept)
            self._runner = None
        self.erased = self.erased.only(kept)
        self.objects = {**(self.objects if incremental else {}), **objects}
        self.definitions = definitions
        self.committed_at = datetime.now(UTC)
        self._engine = None

    @property
    def runner(self) -> Runner:
        """The runner, with all rows fed."""
        if self._runner is None:
            runner = Runner(map(self._storable, self.definitions.datasets.values()))
            for name, frames in _by_dataset(self._fed).items():
                runner.ingest(name, pl.concat(frames))
            self._runner = runner
        return self._runner

    @property
    def engine(self) -> QueryEngine:
        """What answers queries and lookups."""
        runner = self.runner
        if self._engine is None:
            self._engine = QueryEngine(self.definitions, Erasing(runner.lookups, self.erased))
        return self._engine

    def feed(self, batches: Iterable[Fed]) -> None:
        """Feed rows to datasets: all of them or, when a pipeline fails, none."""
        mark = self.mark()
        try:
            for name, rows in batches:
                self._feed(name, rows)
        except Exception:
            self.back_to(mark)
            raise

    def _feed(self, name: str, rows: pl.DataFrame) -> None:
        if self._is_answered(name):
            self._store_instead(name)
        fresh = self.erased.without(name, rows)
        runner = self.runner
        self._fed.append((name, fresh))
        runner.ingest(name, fresh)

    def _is_answered(self, name: str) -> bool:
        """Return whether rows of a dataset are computed when asked for, so that there is nowhere to put any."""
        output = self.definitions.datasets[name].output
        return name not in self._stored and output is not None and output.is_terminal

    def _store_instead(self, name: str) -> None:
        """Keep a dataset's rows as they are, no longer computed."""
        self._fed.append((name, table(self.runner, name)))
        self._stored |= {name}
        self._runner = self._engine = None

    def _storable(self, dataset: DatasetDefinition) -> DatasetDefinition:
        if dataset.name in self._stored:
            return replace(dataset, output=None)
        output = dataset.output
        if not isinstance(output, Aggregate) or not output.is_terminal:
            return dataset
        with warnings.catch_warnings():  # of the definition, which has been told
            warnings.simplefilter("ignore")
            return replace(dataset, output=replace(output, tiling=replace(output.tiling, exact=EXACT)))

    def mark(self) -> Mark:
        """Return where the data of the branch stands."""
        return len(self._fed), self._stored

    def back_to(self, mark: Mark) -> None:
        """Forget what was fed since a mark."""
        fed, self._stored = mark
        del self._fed[fed:]
        self._runner = self._engine = None

    def dataset(self, name: str) -> DatasetDefinition:
        """Return a committed dataset."""
        found = self.definitions.datasets.get(name)
        if found is None:
            known = did_you_mean(name, self.definitions.datasets)
            raise UnknownName(f"dataset '{name}' is not registered on this branch{known}", hint="commit it first")
        return found

    def table(self, name: str) -> pl.DataFrame:
        """Return all rows of a dataset, superseded ones included, without those erased."""
        return self.erased.without(name, table(self.runner, self.dataset(name).name))


def _same(before: DatasetDefinition | None, after: DatasetDefinition) -> bool:
    """Return whether a dataset keeps its data under a new definition."""
    return before is not None and (before.version, before.schema) == (after.version, after.schema)


def _computations(datasets: Mapping[str, DatasetDefinition]) -> dict[str, tuple[Any, ...]]:
    return {name: (each.fingerprint, each.online, each.offline) for name, each in datasets.items()}


def _by_dataset(fed: Iterable[Fed]) -> dict[str, list[pl.DataFrame]]:
    found: dict[str, list[pl.DataFrame]] = {}
    for name, rows in fed:
        found.setdefault(name, []).append(rows)
    return found
