"""Execution: features from features, online as of now, offline as of the instant of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import polars as pl

from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.plan.definitions import DatasetDefinition, Definitions
from umbel.query.answer import Answer
from umbel.query.arrange import Arranger, Plan
from umbel.query.resolve import Catalogue
from umbel.query.rows import INSTANT, Column, Instants, Rows
from umbel.query.session import LookupSource, Mode, Session
from umbel.types.dtypes import DType, Optional

_PLANS = 1024
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class QueryEngine:
    """Answers queries and lookups on one set of definitions. Threads may share it.

    Args:
        definitions: what is committed.
        source: answers the lookups on datasets.
    """

    def __init__(self, definitions: Definitions, source: LookupSource) -> None:
        self.definitions = definitions
        self.catalogue = Catalogue(definitions.featuresets)
        self._sessions = {mode: Session(source, definitions.datasets, mode) for mode in Mode}
        self._planned = lru_cache(_PLANS)(self._arranged)

    def plan(self, inputs: Iterable[str], outputs: Iterable[str], mode: Mode) -> Plan:
        """Return how a query is answered; kept for the next time.

        Args:
            inputs: names of features.
            outputs: names of features and featuresets.
            mode: which index answers lookups.
        """
        return self._planned(tuple(inputs), tuple(outputs), mode)

    def _arranged(self, inputs: tuple[str, ...], outputs: tuple[str, ...], mode: Mode) -> Plan:
        return Arranger(self.catalogue, self.definitions.datasets, mode).plan(inputs, outputs)

    def run(self, plan: Plan, columns: Mapping[str, Column], at: Instants, mode: Mode) -> Answer:
        """Return the outputs of a plan.

        Args:
            plan: of the query.
            columns: the input features in storage types, by fully qualified name.
            at: the instant of each row.
            mode: which index answers lookups.
        """
        rows = Rows(at, dict(columns))
        session = self._sessions[mode]
        for step in plan.steps:
            step.run(rows, session)
        found = zip(plan.outputs, plan.sources, strict=True)
        return Answer({fqn: rows.columns[source] for fqn, source in found}, plan.outputs, plan.writers)

    def online(self, plan: Plan, columns: Mapping[str, pl.Series], height: int, now: datetime | None = None) -> Answer:
        """Return the outputs of a plan as of one instant for all rows, the present unless given."""
        return self.run(plan, columns, instants([now], [height]), Mode.ONLINE)

    def offline(self, plan: Plan, columns: Mapping[str, pl.Series], at: pl.Series) -> Answer:
        """Return the outputs of a plan, each row as of its own instant."""
        return self.run(plan, columns, Instants.of(at), Mode.OFFLINE)

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
        """Return the row of each key, and whether it was found.

        Args:
            name: of the dataset.
            keys: one column per key field.
            at: the instant of each row, for the offline index; the online index answers as of now when None.
            fields: the columns of the answer; all when None.
        """
        definition = self.dataset(name)
        types = checked_fields(definition, fields)
        mode = Mode.ONLINE if at is None else Mode.OFFLINE
        self._sessions[mode].dataset(name)
        when = repeated(datetime.now(UTC), keys.height) if at is None else at
        rows, found = self._sessions[mode].lookup(name, keys, when)
        return Answer({field: rows.get_column(field) for field in types}, types), found


def checked_fields(dataset: DatasetDefinition, fields: Sequence[str] | None) -> dict[str, DType]:
    """Return the types of some fields of a dataset as a lookup shows them: all may be null."""
    names = list(dataset.dtypes) if fields is None else list(fields)
    unknown = [name for name in names if name not in dataset.dtypes]
    if unknown:
        known = did_you_mean(unknown[0], dataset.dtypes)
        raise InvalidValue(
            f"dataset '{dataset.name}' has no field '{unknown[0]}'{known}", hint="name fields of the dataset"
        )
    return {name: Optional(dataset.dtypes[name].base) for name in names}


def instants(asked: Sequence[datetime | None], heights: Sequence[int]) -> Instants:
    """Return instants, each repeated for as many rows as it has; None stands for the present."""
    now = datetime.now(UTC)
    micros = [((instant or now) - EPOCH) // MICROSECOND for instant in asked]
    return Instants(np.repeat(np.array(micros, np.int64), heights))


def repeated(instant: datetime, height: int) -> pl.Series:
    """Return a column of one instant."""
    micros = (instant - EPOCH) // MICROSECOND
    return pl.Series("at", [micros], dtype=pl.Int64).cast(INSTANT).new_from_index(0, height)
