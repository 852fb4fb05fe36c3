"""Query execution: features as of now (online) or per-row instants (offline)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.query.answer import Answer
from umbel.query.arrange import Arranger, QueryPlan
from umbel.query.resolve import Catalogue
from umbel.query.rows import INSTANT, Column, Fields, Instants, QueryRows
from umbel.query.session import Caller, LookupSource, QueryMode, QuerySession
from umbel.state.snapshots import Snapshots
from umbel.types.dtypes import DType, Optional

_PLANS = 1024
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class QueryEngine:
    """Answers queries and lookups on one set of definitions; thread-safe.

    Args:
        definitions: the committed definitions.
        source: answers the lookups on datasets.
        caller: calls the users' extractors; None to call them in the querying thread.
    """

    def __init__(self, definitions: Definitions, source: LookupSource, caller: Caller | None = None) -> None:
        self.definitions = definitions
        self.catalogue = Catalogue(definitions.featuresets)
        self.source, self._caller = source, caller
        self._sessions = {mode: QuerySession(source, definitions.datasets, mode, caller) for mode in QueryMode}
        self._planned = lru_cache(_PLANS)(self._arranged)

    def over(self, source: LookupSource) -> QueryEngine:
        """Return an engine of the same definitions whose lookups another source answers."""
        return QueryEngine(self.definitions, source, self._caller)

    def plan(self, inputs: Iterable[str], outputs: Iterable[str], mode: QueryMode) -> QueryPlan:
        """Return the plan of a query, cached for later queries.

        Args:
            inputs: names of features.
            outputs: names of features and featuresets.
            mode: the index that answers lookups.
        """
        return self._planned(tuple(inputs), tuple(outputs), mode)

    def _arranged(self, inputs: tuple[str, ...], outputs: tuple[str, ...], mode: QueryMode) -> QueryPlan:
        return Arranger(self.catalogue, self.definitions.datasets, mode).plan(inputs, outputs)

    def run(
        self,
        plan: QueryPlan,
        columns: Mapping[str, Column],
        at: Instants,
        mode: QueryMode,
        dtypes: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Run a plan and return its outputs.

        Args:
            plan: the query's plan.
            columns: the input features in storage types, by fully qualified name.
            at: the instant of each row.
            mode: the index that answers lookups.
            dtypes: the pandas dtypes of the input features, for the answer.
        """
        rows = QueryRows(at, dict(columns), dict(dtypes or {}))
        with Snapshots() as snapshots:
            session = replace(self._sessions[mode], snapshots=snapshots)
            for step in plan.steps:
                step.run(rows, session)
        computed, known = rows.columns, rows.dtypes
        found = {fqn: computed[source] for fqn, source in plan.sources.items()}
        # An alias of an input has its column, and is no input: it has the dtype of its type.
        shown = {
            fqn: known[source]
            for fqn, source in (plan.sources.items() if known else ())
            if source in known and (source == fqn or source not in plan.inputs)
        }
        return Answer(found, plan.outputs, plan.writers, shown)

    def online(
        self,
        plan: QueryPlan,
        columns: Mapping[str, pl.Series],
        height: int,
        now: datetime | None = None,
        dtypes: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Run a plan as of one instant for all rows, by default now."""
        return self.run(plan, columns, instants([now], [height]), QueryMode.ONLINE, dtypes)

    def offline(
        self, plan: QueryPlan, columns: Mapping[str, pl.Series], at: pl.Series, dtypes: Mapping[str, Any] | None = None
    ) -> Answer:
        """Run a plan with each row as of its own instant."""
        return self.run(plan, columns, Instants.of(at), QueryMode.OFFLINE, dtypes)

    def dataset(self, name: str) -> DatasetDefinition:
        """Return a committed dataset.

        Raises:
            UnknownName: it is not committed.
        """
        found = self.definitions.datasets.get(name)
        if found is None:
            raise UnknownName(
                f"dataset '{name}' is not committed{did_you_mean(name, self.definitions.datasets)}",
                hint="commit it first",
            )
        return found

    def lookup(
        self, name: str, keys: pl.DataFrame, at: pl.Series | None = None, fields: Sequence[str] | None = None
    ) -> tuple[Answer, pl.Series]:
        """Return the row of each key, with a found mask.

        Args:
            name: of the dataset.
            keys: one column per key field.
            at: the instant of each row, for the offline index; the online index answers as of now when None.
            fields: the columns of the answer; all when None.
        """
        definition = self.dataset(name)
        types = checked_fields(definition, fields)
        mode = QueryMode.ONLINE if at is None else QueryMode.OFFLINE
        self._sessions[mode].dataset(name)
        when = repeated(datetime.now(UTC), keys.height) if at is None else at
        rows, found = self._sessions[mode].lookup(name, keys, when, frozenset(types))
        return Answer({field: rows.get_column(field) for field in types}, types), found

    def lookup_at(
        self, name: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, with a found mask.

        The dataset may have either index.
        """
        return self._sessions[QueryMode.OFFLINE].lookup(name, keys, at, fields)


def checked_fields(dataset: DatasetDefinition, fields: Sequence[str] | None) -> dict[str, DType]:
    """Return the types of some fields of a dataset, all nullable.

    These are the types of a lookup's result.
    """
    names = list(dataset.dtypes) if fields is None else list(fields)
    unknown = [name for name in names if name not in dataset.dtypes]
    if unknown:
        known = did_you_mean(unknown[0], dataset.dtypes)
        raise InvalidValue(
            f"dataset '{dataset.name}' has no field '{unknown[0]}'{known}", hint="name fields of the dataset"
        )
    return {name: Optional(dataset.dtypes[name].base) for name in names}


def instants(requested: Sequence[datetime | None], heights: Sequence[int]) -> Instants:
    """Return instants repeated by row counts; None is replaced by now."""
    now = time.time_ns() // 1000
    micros = [now if instant is None else (instant - EPOCH) // MICROSECOND for instant in requested]
    return Instants(np.repeat(np.array(micros, np.int64), heights))


def repeated(instant: datetime, height: int) -> pl.Series:
    """Return a column that repeats one instant."""
    micros = (instant - EPOCH) // MICROSECOND
    return pl.Series("at", [micros], dtype=pl.Int64).cast(INSTANT).new_from_index(0, height)
