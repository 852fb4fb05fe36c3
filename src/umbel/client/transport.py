"""The operations of a platform, as a client calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from umbel.client.logged import Logged
from umbel.client.response import Response
from umbel.definitions.records import Definitions
from umbel.query.answer import Answer
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

MAIN = "main"


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Checked definitions to commit.

    Args:
        message: the commit message.
        definitions: all definitions of the branch after the commit.
        objects: the users' objects passed to this commit, by name.
        env: the environment they were selected for.
        preview: only report the changes.
        incremental: the definitions not in `objects` are those of the commit before.
        backfill: True if data may be recomputed.
        base: the revision of the definitions that an incremental commit was made from, if known.
    """

    message: str
    definitions: Definitions
    objects: Mapping[str, Any]
    env: str | None
    preview: bool
    incremental: bool
    backfill: bool
    base: int | None = None


@dataclass(frozen=True, slots=True)
class FeatureQuery:
    """The features of a query.

    Args:
        inputs: names of features.
        outputs: names of features and featuresets.
        declared: the types of the features passed as objects.
        workflow: the query's purpose.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    declared: Mapping[str, DType]
    workflow: str


@dataclass(frozen=True, slots=True)
class OfflineRows:
    """The rows of an offline query.

    Args:
        frame: a column for each input, named after it.
        at: the instant of each row.
    """

    frame: pd.DataFrame
    at: pl.Series


@dataclass(frozen=True, slots=True)
class OfflineFiles:
    """The files of an offline query: connectors, None without.

    Args:
        source: of the rows, which are passed without.
        columns: the columns of inputs whose columns are not named after them.
        target: of the location for the result, which is returned without.
    """

    source: Any
    columns: Mapping[str, str]
    target: Any


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Values to trace: features for one row, or the row of one key.

    Args:
        query: the features; None for the row of a dataset.
        dataset: its name; empty for features.
        values: one row: a column for each input, or for each key field.
        at: the instant to answer for; now when None.
        shown: the largest number of rows in one list.
    """

    query: FeatureQuery | None
    dataset: str
    values: pd.DataFrame
    at: datetime | None
    shown: int


class Transport(Protocol):
    """Carries the calls of a client to a platform.

    Names are text, arguments have the right form; the platform checks them against its definitions. The first argument of
    most operations is a branch.
    """

    def committed(self, branch: str) -> tuple[Definitions, int | None]:
        """Return the committed definitions, and their revision if they have one."""

    def commit(self, branch: str, request: CommitRequest) -> Response:
        """Replace the definitions."""

    def log(self, webhook: str, endpoint: str, rows: pd.DataFrame, batch_size: int) -> Response:
        """Push rows to an endpoint, on every branch; at most `batch_size` per HTTP request."""

    def query(
        self, branch: str, request: FeatureQuery, rows: pd.DataFrame, *, log: bool, sampling_rate: float
    ) -> Answer:
        """Return features as of now; with `log`, store a share of the rows."""

    def query_offline(
        self, branch: str, request: FeatureQuery, timestamp: str, rows: OfflineRows | None, files: OfflineFiles
    ) -> Answer | dict[str, Any]:
        """Return features as of instants, these as last column, or the status of a job."""

    def offline_query(self, request_id: str, *, cancel: bool) -> dict[str, Any] | Response:
        """Return the status of a job, after cancelling it or not."""

    def feature_log(
        self, branch: str, workflow: str | None, since: datetime | str | None, until: datetime | str | None
    ) -> Logged:
        """Return the logged answers of queries."""

    def lookup(
        self,
        branch: str,
        dataset: str,
        keys: pd.DataFrame,
        fields: Sequence[str] | None,
        timestamps: pl.Series | None,
    ) -> tuple[Answer, Sequence[bool]]:
        """Return the row of each key, with a found mask."""

    def trace(self, branch: str, request: TraceRequest) -> dict[str, Any]:
        """Return the tiles and rows that values are made of, as JSON values."""

    def inspect(self, branch: str, dataset: str, n: int) -> Answer:
        """Return the latest rows of a dataset."""

    def erase(self, branch: str, dataset: str, keys: pd.DataFrame) -> Response:
        """Erase rows by their erase keys."""

    def report(self, branch: str, subject: str, params: Mapping[str, Sequence[str] | None] | None = None) -> Any:
        """Return a report on a branch: "lineage", "xray" or "branch/status"."""

    def init_branch(self, name: str, clone_from: str | None) -> Response:
        """Create a branch, empty or cloned."""

    def delete_branch(self, name: str) -> Response:
        """Delete a branch."""

    def list_branches(self) -> list[str]:
        """Return the names of all branches."""

    def get_secret(self, name: str) -> str:
        """Return a secret."""

    def add_secret(self, name: str, value: str) -> Response:
        """Store a secret under a new name."""

    def update_secret(self, name: str, value: str) -> Response:
        """Change a secret."""

    def delete_secret(self, name: str) -> Response:
        """Delete a secret."""

    def close(self) -> None:
        """Release connections."""
