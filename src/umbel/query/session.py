"""The shared context of one query's steps: lookup source and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import polars as pl

from umbel.definitions.records import DatasetDefinition
from umbel.errors import InvalidValue, did_you_mean
from umbel.query.rows import Fields

if TYPE_CHECKING:
    from umbel.query.extractor_groups import ExtractorGroup, GroupCall
    from umbel.query.functions import Computed, ExtractorCall, FunctionStep
    from umbel.query.point_lookup import PointLookup
    from umbel.query.rows import Column, Instants
    from umbel.state.snapshots import Snapshots


class LookupSource(Protocol):
    """Answers lookups.

    Rows are aligned with `keys`, with all columns nullable and a found mask. Of values other than those of `fields` the columns
    may be absent.
    """

    def online(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys from the live state."""

    def offline(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys as of any instant, from the history."""

    def point_lookup(
        self,
        dataset: str,
        keys: Mapping[str, Column],
        at: Instants,
        fields: Fields = None,
        snapshots: Snapshots | None = None,
    ) -> PointLookup | None:
        """Return a point lookup, or None if unsupported.

        The keys are by key field. It reads the snapshots, by default its own.
        """


class Caller(Protocol):
    """Calls the users' extractors."""

    def compute(self, step: FunctionStep, call: ExtractorCall, session: QuerySession) -> list[Computed]:
        """Return the features an extractor computes, or raise ExtractorFailed."""

    def compute_group(self, group: ExtractorGroup, call: GroupCall, session: QuerySession) -> list[Computed] | None:
        """Return the features of several extractors.

        None if they have to be called one by one.
        """


class QueryMode(Enum):
    """The index that answers the lookups of a query."""

    ONLINE = "online"
    OFFLINE = "offline"

    def check(self, dataset: DatasetDefinition) -> None:
        """Refuse a lookup on a dataset without the mode's index."""
        if not (dataset.online or dataset.offline):
            raise InvalidValue(
                f"dataset '{dataset.name}' has no index, so it cannot be looked up",
                where=dataset.location or None,
                hint=f"define an index on dataset {dataset.name}: @dataset(index=True)",
            )
        if not (dataset.online if self is QueryMode.ONLINE else dataset.offline):
            raise InvalidValue(
                f"dataset '{dataset.name}' has no {self.value} index, which this lookup needs",
                where=dataset.location or None,
                hint=f"define it: @dataset({self.value}=True), or @dataset(index=True) for both",
            )


@dataclass(frozen=True, slots=True)
class QuerySession:
    """The shared context of one query's steps.

    Args:
        source: answers the lookups.
        datasets: the committed datasets.
        mode: the index that answers.
        caller: calls the users' extractors; None to call them in this thread.
        snapshots: what point lookups read; None for one of each lookup's own.
    """

    source: LookupSource
    datasets: Mapping[str, DatasetDefinition]
    mode: QueryMode
    caller: Caller | None = None
    snapshots: Snapshots | None = None

    def lookup(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, with a found mask."""
        if not keys.height:
            return pl.DataFrame(schema=self.datasets[dataset].schema.polars()), pl.Series(dtype=pl.Boolean)
        answer = self.source.online if self.mode is QueryMode.ONLINE else self.source.offline
        return answer(dataset, keys, at, fields)

    def point_lookup(
        self, dataset: str, keys: Mapping[str, Column], at: Instants, fields: Fields = None
    ) -> PointLookup | None:
        """Return the result of `lookup` by point lookups, or None if unsupported.

        The keys are by key field.
        """
        return self.source.point_lookup(dataset, keys, at, fields, self.snapshots)

    def dataset(self, name: str) -> DatasetDefinition:
        """Return a committed dataset; refuse one this session may not look up."""
        return indexed(self.datasets, name, self.mode)


def indexed(datasets: Mapping[str, DatasetDefinition], name: str, mode: QueryMode) -> DatasetDefinition:
    """Return a committed dataset; refuse one without a mode's index."""
    if name not in datasets:
        raise InvalidValue(f"dataset '{name}' is not committed{did_you_mean(name, datasets)}", hint="commit it first")
    mode.check(datasets[name])
    return datasets[name]
