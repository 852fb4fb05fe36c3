"""`MockClient`: the client over a transport into its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umbel.api.lookup import answer_outside
from umbel.client.client import Client
from umbel.client.names import check_frame, dataset_name
from umbel.client.response import Response
from umbel.client.transport import MAIN
from umbel.testing.latest import latest, made
from umbel.testing.lookups import BranchLookups
from umbel.testing.transport import LocalTransport

if TYPE_CHECKING:
    import pandas as pd


class MockClient(Client):
    """A client that runs everything in process, without server or JVM.

    Calls take effect immediately. These differ from a server's: `commit` takes effect with `preview=True`, too, recomputes
    data with `backfill=False`, too, and drops the branch's data unless it is incremental; `log` accepts a frame as a
    whole or not at all, and raises for rows that do not fit; rows, secrets and datasets can be read back.

    Args:
        branch: the branch of all calls; default "main".
    """

    _transport: LocalTransport

    def __init__(self, branch: str | None = None) -> None:
        self._connect(LocalTransport(branch or MAIN), branch)
        made(self)

    def log_to(self, dataset: Any, df: pd.DataFrame) -> Response:
        """Push rows directly into a dataset of the current branch.

        The dataset may be one computed by a pipeline.
        """
        check_frame(df, "log: the rows")
        return self._transport.log_to(self._branch, dataset_name(dataset), df)

    def dataset_lookups(self) -> BranchLookups:
        """Return the provider of `Dataset.lookup` in test bodies: the current branch."""
        return self._transport.dataset_lookups(self._branch)

    def get_dataset_df(self, name: Any) -> pd.DataFrame:
        """Return all rows of a dataset by time, including superseded ones.

        For a dataset that ends in an aggregate over continuous windows, these are the instants at which the values of
        a group change, and the values from then on.
        """
        return self._transport.table(self._branch, dataset_name(name)).to_pandas()

    def get_datasets(self) -> list[Any]:
        """Return the datasets committed on the current branch."""
        branch = self._transport.branch(self._branch)
        return [branch.objects[name] for name in branch.definitions.datasets]

    def get_featuresets(self) -> list[Any]:
        """Return the featuresets committed on the current branch."""
        branch = self._transport.branch(self._branch)
        return [branch.objects[name] for name in branch.definitions.featuresets]

    def sleep(self, seconds: float = 0) -> None:
        """Return immediately: nothing runs asynchronously in process."""

    def is_integration_client(self) -> bool:
        """Return True if calls go to a server."""
        return False

    def integration_mode(self) -> str:
        """Return "mock"."""
        return "mock"


def _lookups_of_latest() -> BranchLookups | None:
    client = latest()
    return None if client is None else client.dataset_lookups()


answer_outside(_lookups_of_latest)
