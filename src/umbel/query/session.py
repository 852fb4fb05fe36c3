"""What the steps of one query share: where lookups go, and through which index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import polars as pl

from umbel.errors import InvalidValue, did_you_mean
from umbel.plan.definitions import DatasetDefinition

if TYPE_CHECKING:
    from umbel.query.few import Few
    from umbel.query.rows import Column, Instants


class LookupSource(Protocol):
    """Answers lookups; rows aligned with `keys`, all columns nullable, and whether each was found."""

    def online(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys from the live state."""

    def offline(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys as of any instant, from the history."""

    def few(self, dataset: str, keys: Sequence[Column], at: Instants) -> Few | None:
        """Return the same in a shorter way, where there is one; the keys are in the order of the dataset."""


class Mode(Enum):
    """Which index answers the lookups of a query."""

    ONLINE = "online"
    OFFLINE = "offline"

    def check(self, dataset: DatasetDefinition) -> None:
        """Refuse a lookup on a dataset that has no index for it."""
        if not (dataset.online or dataset.offline):
            raise InvalidValue(
                f"dataset '{dataset.name}' has no index, so it cannot be looked up",
                where=dataset.place or None,
                hint=f"define an index on dataset {dataset.name}: @dataset(index=True)",
            )
        if not (dataset.online if self is Mode.ONLINE else dataset.offline):
            raise InvalidValue(
                f"dataset '{dataset.name}' has no {self.value} index, which this lookup needs",
                where=dataset.place or None,
                hint=f"define it: @dataset({self.value}=True), or @dataset(index=True) for both",
            )


@dataclass(frozen=True, slots=True)
class Session:
    """What the steps of one query share.

    Args:
        source: answers the lookups.
        datasets: what is committed.
        mode: which index answers.
    """

    source: LookupSource
    datasets: Mapping[str, DatasetDefinition]
    mode: Mode

    def lookup(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, and whether it was found."""
        if not keys.height:
            return pl.DataFrame(schema=self.datasets[dataset].schema.polars()), pl.Series(dtype=pl.Boolean)
        answer = self.source.online if self.mode is Mode.ONLINE else self.source.offline
        return answer(dataset, keys, at)

    def few(self, dataset: str, keys: Sequence[Column], at: Instants) -> Few | None:
        """Return what `lookup` does where the source has a shorter way to it, else None; keys in the dataset's order."""
        return self.source.few(dataset, keys, at)

    def dataset(self, name: str) -> DatasetDefinition:
        """Return a committed dataset that this session may look up."""
        return indexed(self.datasets, name, self.mode)


def indexed(datasets: Mapping[str, DatasetDefinition], name: str, mode: Mode) -> DatasetDefinition:
    """Return a committed dataset that has the index a mode needs."""
    if name not in datasets:
        raise InvalidValue(f"dataset '{name}' is not committed{did_you_mean(name, datasets)}", hint="commit it first")
    mode.check(datasets[name])
    return datasets[name]
