"""`Dataset.lookup` in test bodies, answered by a mock client's branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.errors import InvalidValue
from umbel.query.functions import LookedUp, looked_up
from umbel.query.rows import Fields
from umbel.query.session import QueryMode, indexed
from umbel.testing.branch import MockBranch
from umbel.testing.secrets import MockSecrets

if TYPE_CHECKING:
    import pandas as pd


class BranchLookups:
    """Answers lookups from one branch as of the passed timestamps.

    A dataset needs an online index.

    Args:
        branch: the branch that answers.
        secrets: the client's secrets, since pipelines may run again.
    """

    def __init__(self, branch: MockBranch, secrets: MockSecrets) -> None:
        self._branch, self._secrets = branch, secrets

    def lookup(
        self, dataset: str, ts: pd.Series[Any], keys: Mapping[str, pd.Series[Any]], fields: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, with a found mask."""
        if self._branch.is_computing:
            raise InvalidValue(
                f"lookup on dataset '{dataset}': a pipeline cannot look up datasets", hint="join the dataset instead"
            )
        definition = indexed(self._branch.definitions.datasets, dataset, QueryMode.ONLINE)
        with self._secrets.in_force():
            return looked_up(LookedUp.of(definition), ts, keys, fields, self._answer)

    def _answer(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields
    ) -> tuple[pl.DataFrame, pl.Series]:
        rows, found = self._branch.engine.lookup_at(dataset, keys, at, fields)
        if found.any() or self._branch.has_rows(dataset):
            return rows, found
        blank = [pl.lit(None, rows.schema[name]).alias(name) for name in keys.columns]
        return rows.with_columns(blank), found
