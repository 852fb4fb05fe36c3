"""`Client`: commit, log, query and look up, on a platform behind a transport."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from umbel.api.flags import check_flags
from umbel.client.feature_log import FeatureLogMethods
from umbel.client.http import HttpTransport
from umbel.client.names import (
    check_branch,
    check_count,
    check_flag,
    check_frame,
    check_keys,
    check_message,
    check_new_branch,
    check_secret,
    check_secret_name,
    check_share,
    check_texts,
    column_names,
    field_names,
    names_of,
)
from umbel.client.names import dataset_name as name_of_dataset
from umbel.client.older import OlderSpellings
from umbel.client.response import Response
from umbel.client.trace import TraceMethods
from umbel.client.transport import MAIN, CommitRequest, FeatureQuery, OfflineFiles, OfflineRows, Transport
from umbel.errors import Conflict, InvalidType, InvalidValue, UnknownName
from umbel.query.columns import by_feature, cast, instants
from umbel.types.arguments import checked_call
from umbel.types.dtypes import Datetime, DType

if TYPE_CHECKING:
    import httpx
    import pandas as pd


ATTEMPTS = 5
"""How often an incremental commit is made anew because another client has committed meanwhile."""


class Client(FeatureLogMethods, TraceMethods, OlderSpellings):
    """A client of a umbel server.

    Args:
        url: of the server, such as "http://localhost:8080".
        token: authenticates the caller.
        branch: the branch of all calls; default "main".
        transport: an `httpx` transport that replaces the network, for tests.
    """

    def __init__(
        self, url: str, token: str = "", branch: str | None = None, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._connect(HttpTransport(url, token, transport), branch)

    def _connect(self, transport: Transport, branch: str | None) -> None:
        self._transport = transport
        self._branch = branch or MAIN

    @checked_call
    def commit(
        self,
        message: str,
        datasets: Sequence[Any] | None = None,
        featuresets: Sequence[Any] | None = None,
        preview: bool = False,
        env: str | None = None,
        incremental: bool = False,
        backfill: bool = True,
    ) -> Response:
        """Check definitions and make them the branch's content.

        Args:
            message: the commit message.
            datasets: the branch's datasets; with `incremental`, those to add or replace.
            featuresets: likewise.
            preview: only report the changes, without committing.
            env: the environment whose sources, sinks, pipelines and extractors are selected.
            incremental: retain the definitions not listed.
            backfill: True if data may be recomputed; otherwise a commit that needs a backfill is refused.

        Raises:
            UmbelError: the definitions are invalid; all errors are listed.
        """

        def attempt() -> Response:
            before, base = self._transport.committed(self._branch) if incremental else (None, None)
            definitions = check_commit(datasets, featuresets, env=env, before=before)
            objects = {str(each.__name__): each for each in (*(datasets or ()), *(featuresets or ()))}
            request = CommitRequest(message, definitions, objects, env, preview, incremental, backfill, base)
            return self._transport.commit(self._branch, request)

        from umbel.api.commit import check_commit

        check_message(message)
        check_flags("commit", preview=preview, incremental=incremental, backfill=backfill)
        for _ in range(ATTEMPTS - 1):
            with suppress(Conflict):  # another client has committed since `before`
                return attempt()
        return attempt()

    def add(self, obj: Any) -> Response:
        """Commit one dataset or featureset in addition to the current definitions."""
        is_dataset = hasattr(obj, "key_fields")
        return self.commit("add", [obj] if is_dataset else [], [] if is_dataset else [obj], incremental=True)

    def log(self, webhook: str, endpoint: str, df: pd.DataFrame, batch_size: int = 1000) -> Response:
        """Push rows to the datasets that an endpoint of a webhook feeds, on every branch.

        Args:
            webhook: the webhook's name.
            endpoint: the endpoint's name.
            df: the rows. Chunks of `batch_size` are sent one after the other, each accepted or refused as a whole. A chunk
                without a response is sent again with the same idempotency key, so that it is ingested once.
            batch_size: rows per request.
        """
        rows = check_count(batch_size, "batch_size", 1)
        check_texts(webhook=webhook, endpoint=endpoint)
        check_frame(df, "log: the rows")
        return self._transport.log(webhook, endpoint, df, rows)

    def query(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        input_dataframe: pd.DataFrame,
        log: bool = False,
        workflow: str = "default",
        sampling_rate: float = 1.0,
    ) -> pd.DataFrame:
        """Return features as of now.

        Args:
            inputs: the input features.
            outputs: the requested features and featuresets.
            input_dataframe: one column per input, named by its fully qualified name.
            log: True to store inputs and answer in the server's feature log, as training data; see `feature_log`.
            workflow: the query's purpose, as a label in metrics and logs.
            sampling_rate: the share of rows stored with `log`, from 0 to 1, chosen at random.
        """
        request = _request(inputs, outputs, workflow)
        check_frame(input_dataframe, "input_dataframe")
        rate, is_logged = check_share(sampling_rate, "sampling_rate"), check_flag(log, "log")
        found = self._transport.query(self._branch, request, input_dataframe, log=is_logged, sampling_rate=rate)
        return found.to_pandas()

    def query_offline(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        timestamp_column: str,
        input_dataframe: pd.DataFrame | None = None,
        input_s3: Any = None,
        output_s3: Any = None,
        feature_to_column_map: dict[Any, str] | None = None,
        workflow: str = "default",
        use_v2: bool = True,
        num_dpus: int | None = None,
    ) -> pd.DataFrame | dict[str, Any]:
        """Return features, each row as of its own instant; or a job with a "request_id".

        A frame has the instants as its last column.

        Args:
            inputs: the input features.
            outputs: the requested features and featuresets.
            timestamp_column: the column of the instants.
            input_dataframe: one column per input and the instants; or
            input_s3: the connector of files with these columns.
            output_s3: the connector of the location for the result.
            feature_to_column_map: the columns of inputs whose columns are not named after them.
            workflow: the query's purpose, as a label.
            use_v2: has no effect, as `num_dpus`; a value other than the default is warned about.
            num_dpus: has no effect.
        """
        if not use_v2 or num_dpus is not None:
            warnings.warn(
                "query_offline: use_v2 and num_dpus have no effect; leave them out", UserWarning, stacklevel=2
            )
        check_texts(timestamp_column=timestamp_column)
        columns = column_names(feature_to_column_map)
        request = _request(inputs, outputs, workflow)
        rows = _offline_rows(input_dataframe, input_s3, request.inputs, columns, timestamp_column)
        files = OfflineFiles(input_s3, columns, output_s3)
        found = self._transport.query_offline(self._branch, request, timestamp_column, rows, files)
        return found if isinstance(found, dict) else found.to_pandas()

    def track_offline_query(self, request_id: str) -> Any:
        """Return the progress of an offline query."""
        return self._transport.offline_query(request_id, cancel=False)

    def cancel_offline_query(self, request_id: str) -> Any:
        """Cancel an offline query and return its last progress."""
        return self._transport.offline_query(request_id, cancel=True)

    def lookup(
        self,
        dataset: Any,
        keys: pd.DataFrame,
        fields: Sequence[Any] | None = None,
        timestamps: pd.Series[Any] | None = None,
    ) -> tuple[pd.DataFrame | pd.Series[Any], pd.Series[Any]]:
        """Return the row of each key, with a found mask.

        Args:
            dataset: a dataset or its name.
            keys: one column per key field.
            fields: the columns of the answer, all when None; a single one is returned as a series.
            timestamps: the instant of each row, for the offline index; as of now when None.
        """
        import pandas as pd

        check_keys(keys)
        name, requested = name_of_dataset(dataset), field_names(fields)
        at = None if timestamps is None else cast(pd.Series(timestamps), Datetime(), "timestamps")
        if at is not None and len(at) != len(keys):
            raise InvalidValue(
                f"lookup on dataset '{name}': {len(keys)} keys, but {len(at)} timestamps",
                hint="one timestamp for each row of keys",
            )
        answer, found = self._transport.lookup(self._branch, name, keys, requested, at)
        rows, mask = answer.to_pandas(), pd.Series(found, dtype=bool, name="found")
        return (rows[requested[0]] if requested is not None and len(requested) == 1 else rows), mask

    def inspect(self, dataset: Any, n: int = 10) -> pd.DataFrame:
        """Return up to `n` recent rows of a dataset.

        Raises:
            InvalidValue: `n` is no whole number from 0.
        """
        count = check_count(n, "inspect: n", 0)
        return self._transport.inspect(self._branch, name_of_dataset(dataset), count).to_pandas()

    def erase(self, dataset_name: Any, erase_keys: pd.DataFrame) -> Response:
        """Erase rows by their erase keys, now and on later ingestion.

        Args:
            dataset_name: a dataset or its name.
            erase_keys: one column per erase key field.
        """
        check_keys(erase_keys)
        try:
            return self._transport.erase(self._branch, name_of_dataset(dataset_name), erase_keys)
        except UnknownName as error:
            if self._branch not in self.list_branches():
                raise
            return Response.of(404, {"message": error.message})

    def lineage(self) -> dict[str, Any]:
        """Return the dependency graph of the branch."""
        return dict(self._transport.report(self._branch, "lineage"))

    def xray(
        self,
        datasets: Sequence[Any] | None = None,
        featuresets: Sequence[Any] | None = None,
        fields: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
    ) -> Any:
        """Return properties of datasets and featuresets.

        All of them are covered if none is named.
        """
        params = {
            "datasets": None if datasets is None else [name_of_dataset(each) for each in datasets],
            "featuresets": None if featuresets is None else names_of(featuresets, "featuresets"),
            "properties": properties if fields is None else fields,
        }
        return self._transport.report(self._branch, "xray", params)

    def init_branch(self, name: str) -> Response:
        """Create an empty branch and check it out."""
        return self._init(name, None)

    def clone_branch(self, name: str, from_branch: str) -> Response:
        """Create a branch with another's definitions and data, and check it out."""
        check_branch(from_branch)
        return self._init(name, from_branch)

    def _init(self, name: str, clone_from: str | None) -> Response:
        check_new_branch(name)
        answer = self._transport.init_branch(name, clone_from)
        self._branch = name
        return answer

    def delete_branch(self, name: str) -> Response:
        """Delete a branch.

        Main is checked out if the deleted branch was the current one.
        """
        check_branch(name)
        answer = self._transport.delete_branch(name)
        if self._branch == name:
            self._branch = MAIN
        return answer

    def list_branches(self) -> list[str]:
        """Return the names of all branches."""
        return self._transport.list_branches()

    def branch_status(self) -> dict[str, Any]:
        """Return the serving and committed revisions of the branch, and backfill progress.

        The progress is included while the two revisions differ.
        """
        return dict(self._transport.report(self._branch, "branch/status"))

    def checkout(self, name: str, init: bool = False) -> None:
        """Set the branch of the following calls.

        Args:
            name: the branch; it may not exist yet.
            init: True to create it if it does not exist.
        """
        if init and name not in self.list_branches():
            self.init_branch(name)
        self._branch = name

    def branch(self) -> str:
        """Return the name of the checked-out branch."""
        return self._branch

    def get_secret(self, name: str) -> str:
        """Return a secret.

        Raises:
            NotSupported: over HTTP. A server passes secrets only to the user code it runs.
        """
        return self._transport.get_secret(name)

    def add_secret(self, name: str, value: str) -> Response:
        """Store a secret under a new name."""
        return self._transport.add_secret(name, check_secret(name, value))

    def update_secret(self, name: str, value: str) -> Response:
        """Change a secret."""
        return self._transport.update_secret(name, check_secret(name, value))

    def delete_secret(self, name: str) -> Response:
        """Delete a secret."""
        check_secret_name(name)
        return self._transport.delete_secret(name)

    def is_integration_client(self) -> bool:
        """Return True if calls go to a server."""
        return True

    def close(self) -> None:
        """Close the connections to the server."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _offline_rows(
    df: pd.DataFrame | None, source: Any, inputs: Sequence[str], columns: Mapping[str, str], timestamp: str
) -> OfflineRows | None:
    """Return the rows of an offline query, with columns named after the inputs, or None."""
    if (df is None) == (source is None):
        raise InvalidValue(
            "query_offline needs input_dataframe or input_s3, and not both",
            hint="query_offline(..., input_dataframe=df)",
        )
    if df is None:
        return None
    check_frame(df, "input_dataframe")
    return OfflineRows(by_feature(df, inputs, columns), instants(df, timestamp))


def _request(inputs: Sequence[Any], outputs: Sequence[Any], workflow: str) -> FeatureQuery:
    names, requested = names_of(inputs, "inputs"), names_of(outputs, "outputs")
    if not isinstance(workflow, str):
        raise InvalidType(f"workflow must be text, got {workflow!r:.80}", hint='workflow="fraud"')
    objects = [each for each in (*inputs, *outputs) if isinstance(getattr(each, "type", None), DType)]
    return FeatureQuery(names, requested, {each.fqn(): each.type for each in objects}, workflow)
