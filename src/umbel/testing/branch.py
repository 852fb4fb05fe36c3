"""A mock client's branch: definitions, ingested rows, and the in-process runner."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from umbel.definitions.identities import erasure_of
from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.errors import UnknownName, did_you_mean
from umbel.local.runner import LocalRunner
from umbel.operators.aggregate import ContinuousAggregation, LookedUpAggregation
from umbel.query.erasure import Erased, Erasing
from umbel.query.execute import QueryEngine
from umbel.query.newest_groups import newest_groups
from umbel.testing.tables import table

Fed = tuple[str, pl.DataFrame]
"""A dataset's name and its ingested rows, in storage types."""

Mark = tuple[int, frozenset[str], frozenset[str]]
"""A state of a branch's data that can be restored."""

EMPTY = Definitions({}, {})
EXACT = 2**31 - 1
"""The number of distinct instants per tile: unlimited, so that tests need not allow for the rounding of busy keys."""


class MockBranch:
    """One branch of a mock client.

    Ingested rows are retained, so that the branch can be recomputed under other definitions.

    Args:
        definitions: the committed definitions.
        fed: the ingested rows, in order.
        stored: datasets with a terminal aggregate that were fed directly: their rows are stored and no longer computed.
        direct: other keyed datasets computed by pipelines that were fed directly.
        erased: the erased keys.
        objects: the users' dataset and featureset objects, by name.
    """

    def __init__(
        self,
        definitions: Definitions = EMPTY,
        fed: Iterable[Fed] = (),
        stored: frozenset[str] = frozenset(),
        direct: frozenset[str] = frozenset(),
        erased: Erased | None = None,
        objects: Mapping[str, Any] | None = None,
    ) -> None:
        self.definitions = definitions
        self.objects = dict(objects or {})
        self.erased = erased or Erased()
        self.committed_at = datetime.now(UTC)
        self._fed = list(fed)
        self._stored, self._direct = stored, direct
        self._runner: LocalRunner | None = None
        self._engine: QueryEngine | None = None
        self.is_computing = False

    def clone(self) -> MockBranch:
        """Return an independent branch with the same definitions and data.

        The immutable frames are shared.
        """
        return MockBranch(self.definitions, self._fed, self._stored, self._direct, self.erased.copy(), self.objects)

    def commit(self, definitions: Definitions, objects: Mapping[str, Any], *, incremental: bool) -> None:
        """Replace the branch's definitions.

        Args:
            definitions: all of them.
            objects: the committed objects, by name.
            incremental: retain the data of unchanged datasets.
        """
        before = self.definitions.datasets
        retained = [
            name for name, each in definitions.datasets.items() if incremental and _same(before.get(name), each)
        ]
        if not incremental or _computations(before) != _computations(definitions.datasets):
            self._fed = [(name, rows) for name, rows in self._fed if name in retained]
            self._stored, self._direct = self._stored & frozenset(retained), self._direct & frozenset(retained)
            self._runner = None
        after = definitions.datasets.items()
        same = [
            name
            for name, each in after
            if incremental and name in before and erasure_of(before[name]) == erasure_of(each)
        ]
        self.erased = self.erased.only(same)
        self.objects = {**(self.objects if incremental else {}), **objects}
        self.definitions = definitions
        self.committed_at = datetime.now(UTC)
        self._engine = None

    @property
    def runner(self) -> LocalRunner:
        """The runner, after ingestion of all rows."""
        if self._runner is None:
            runner = LocalRunner(map(self._storable, self.definitions.datasets.values()), direct=self._direct)
            with self._computing():
                for name, frames in _by_dataset(self._fed).items():
                    runner.ingest(name, pl.concat(frames))
            self._runner = runner
        return self._runner

    @property
    def engine(self) -> QueryEngine:
        """The query engine of the branch."""
        runner = self.runner
        if self._engine is None:
            self._engine = QueryEngine(self.definitions, Erasing(runner.lookups, self.erased))
        return self._engine

    def feed(self, batches: Iterable[Fed]) -> None:
        """Ingest rows into datasets, all or none.

        None are ingested when a pipeline fails.
        """
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
        if self._is_derived(name):
            self._direct |= {name}
            self._runner = self._engine = None
        fresh = self.erased.without(name, rows)
        runner = self.runner
        self._fed.append((name, fresh))
        with self._computing():
            runner.ingest(name, fresh)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Mark the branch as running pipelines: its state is incomplete."""
        self.is_computing = True
        try:
            yield
        finally:
            self.is_computing = False

    def _is_answered(self, name: str) -> bool:
        """Return True if a dataset's rows are computed at read time.

        Rows cannot be ingested into such a dataset.
        """
        output = self.definitions.datasets[name].output
        return name not in self._stored and output is not None and output.is_terminal

    def _is_derived(self, name: str) -> bool:
        """Return True if a keyed dataset has rows from a pipeline only.

        Rows ingested directly supersede them.
        """
        dataset = self.definitions.datasets[name]
        is_made = dataset.output is not None and name not in self._stored
        return is_made and dataset.schema.is_keyed and name not in self._direct

    def _store_instead(self, name: str) -> None:
        """Store a dataset's current rows, and stop computing it."""
        self._fed.append((name, table(self.runner, name)))
        self._stored |= {name}
        self._runner = self._engine = None

    def _storable(self, dataset: DatasetDefinition) -> DatasetDefinition:
        if dataset.name in self._stored:
            return replace(dataset, output=None)
        output = dataset.output
        if not isinstance(output, ContinuousAggregation):
            return dataset
        with warnings.catch_warnings():  # warnings of the definition, already reported
            warnings.simplefilter("ignore")
            return replace(dataset, output=replace(output, tiling=replace(output.tiling, exact=EXACT)))

    def mark(self) -> Mark:
        """Return a mark of the current data, for `back_to`."""
        return len(self._fed), self._stored, self._direct

    def back_to(self, mark: Mark) -> None:
        """Discard the rows ingested since a mark."""
        fed, self._stored, self._direct = mark
        del self._fed[fed:]
        self._runner = self._engine = None

    def dataset(self, name: str) -> DatasetDefinition:
        """Return a committed dataset."""
        found = self.definitions.datasets.get(name)
        if found is None:
            known = did_you_mean(name, self.definitions.datasets)
            raise UnknownName(f"dataset '{name}' is not registered on this branch{known}", hint="commit it first")
        return found

    def has_rows(self, name: str) -> bool:
        """Return True if a dataset has ever had a row."""
        operator = self.runner.graph.outputs[name].operator
        return not (self.runner.history(name) if operator.is_terminal else self.runner.changes(name)).is_empty()

    def table(self, name: str) -> pl.DataFrame:
        """Return all rows of a dataset, including superseded ones, excluding erased ones."""
        return self.erased.without(name, table(self.runner, self.dataset(name).name))

    def newest(self, name: str, limit: int) -> pl.DataFrame:
        """Return the newest rows of a dataset, as a server inspects them, excluding erased ones.

        Of a dataset that is computed at read time they are the values as of now.
        """
        operator = self.runner.graph.outputs[self.dataset(name).name].operator
        if not isinstance(operator, LookedUpAggregation):
            return self.table(name).tail(limit)
        events = self.runner.history(name)
        return self.erased.without(name, newest_groups(self.runner.lookups, name, operator, events, limit))


def _same(before: DatasetDefinition | None, after: DatasetDefinition) -> bool:
    """Return True if a dataset's data stays valid under a new definition."""
    return before is not None and (before.version, before.schema) == (after.version, after.schema)


def _computations(datasets: Mapping[str, DatasetDefinition]) -> dict[str, tuple[Any, ...]]:
    return {name: (each.fingerprint, each.online, each.offline) for name, each in datasets.items()}


def _by_dataset(fed: Iterable[Fed]) -> dict[str, list[pl.DataFrame]]:
    found: dict[str, list[pl.DataFrame]] = {}
    for name, rows in fed:
        found.setdefault(name, []).append(rows)
    return found
