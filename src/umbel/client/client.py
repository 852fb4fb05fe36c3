"""`Client`: commit, log, query and look up, on a server over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umbel.client.branches import BranchMethods
from umbel.client.logged import logged
from umbel.client.names import check_keys, check_rows, dataset_name, field_names, names_of
from umbel.client.names import dataset_name as name_of_dataset
from umbel.client.plain import columns, files, location, plain, records, refuse_both
from umbel.client.response import Response
from umbel.client.schemas import frame
from umbel.errors import InvalidValue, UnknownName
from umbel.query.columns import cast, given, instants
from umbel.query.encode import to_json
from umbel.query.resolve import name_of
from umbel.types.dtypes import Datetime, DType

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

COMMIT_TIMEOUT = 300.0


class Client(BranchMethods):
    """A client of a server.

    Args:
        url: of the server: "http://localhost:8080".
        token: proves who asks.
        branch: the branch calls are about; "main" unless given.
        transport: an `httpx` transport that carries requests instead of the network, for tests.
    """

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
        """Check definitions and make them what the branch consists of.

        Args:
            message: what the commit is about.
            datasets: what the branch shall have; with `incremental`, what is added or replaced.
            featuresets: likewise.
            preview: only say what would change.
            env: the environment whose sources, sinks, pipelines and extractors are selected.
            incremental: keep what is not mentioned.
            backfill: whether data may be recomputed; if not, a commit that would need it is refused.

        Raises:
            UmbelError: the definitions do not hold; all faults are listed.
        """
        from umbel.api.commit import check_commit
        from umbel.plan.serde import dump

        before = self._definitions(self._branch) if incremental else None
        definitions = check_commit(datasets, featuresets, env=env, before=before)
        params = {"message": message, "preview": preview, "incremental": incremental, "backfill": backfill, "env": env}
        content = dump(definitions)
        answer = self._send("POST", "/api/v1/commit", content=content, params=params, timeout=COMMIT_TIMEOUT)
        self._schemas.forget()
        return answer

    def add(self, obj: Any) -> Response:
        """Commit one dataset or featureset to what is there."""
        is_dataset = hasattr(obj, "key_fields")
        return self.commit("add", [obj] if is_dataset else [], [] if is_dataset else [obj], incremental=True)

    def log(self, webhook: str, endpoint: str, df: pd.DataFrame, batch_size: int = 1000) -> Response:
        """Push rows to the datasets fed by an endpoint of a webhook.

        Args:
            webhook: its name.
            endpoint: its endpoint.
            df: the rows. Chunks of `batch_size` are sent one after the other, each accepted or refused as a whole. A chunk
                the server does not answer is sent again, under a key by which it is taken once.
            batch_size: rows per request.
        """
        if batch_size < 1:
            raise InvalidValue(f"batch_size must be at least 1, got {batch_size}", hint="leave it out")
        check_rows(df, "log")
        answer = Response.of(200, {})
        for start in range(0, len(df), batch_size):
            data = columns(df.iloc[start : start + batch_size])
            body = {"webhook": webhook, "endpoint": endpoint, "data": data}
            answer = self._transport.send_once("/api/v1/log", self._branch, body)
        return answer

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
            inputs: the features given.
            outputs: the features and featuresets wanted.
            input_dataframe: one column per input, named by its fully qualified name.
            log: whether the server keeps inputs and answer in its feature log, as training data; see `feature_log`.
            workflow: what the query is for, in metrics and logs.
            sampling_rate: the share of rows kept with `log`, from 0 to 1; which ones is left to chance.
        """
        names = names_of(inputs, "inputs")
        body = {
            "inputs": names,
            "outputs": names_of(outputs, "outputs"),
            "data": self._input_columns(inputs, names, input_dataframe),
            "log": log,
            "workflow": workflow,
            "sampling_rate": sampling_rate,
        }
        return self._frame(self._send("POST", "/api/v1/query", body=body).json(), outputs)

    def feature_log(
        self, workflow: str | None = None, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> pd.DataFrame:
        """Return what queries with `log=True` were answered: a row for each, by time, with "timestamp" and "workflow" first.

        Args:
            workflow: what they were for; everything when None.
            since: the first instant.
            until: the instant before which it ends.
        """
        params = {"workflow": workflow, "since": plain(since), "until": plain(until)}
        lines = self._send("GET", "/api/v1/feature_log", params=params).content
        return logged(lines, self._schemas.all_features(self._branch))

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
        """Return features, each row as of its own instant, with the instants as last column.

        An answer computed on the server's own time comes as a job, to be tracked by its "request_id".

        Args:
            inputs: the features given.
            outputs: the features and featuresets wanted.
            timestamp_column: the column of the instants.
            input_dataframe: one column per input and the instants; or
            input_s3: the connector of files that hold them.
            output_s3: the connector of the place for the result.
            feature_to_column_map: the columns of inputs whose columns are not named after them.
            workflow: what the query is for.
            use_v2: ignored, as is `num_dpus`.
        """
        renamed = {name_of(item): column for item, column in (feature_to_column_map or {}).items()}
        named = {"inputs": names_of(inputs, "inputs"), "outputs": names_of(outputs, "outputs")}
        body: dict[str, Any] = {**named, "timestamp_column": timestamp_column, "workflow": workflow}
        if input_dataframe is not None:
            refuse_both(input_s3)
            body["data"] = self._offline_columns(inputs, timestamp_column, input_dataframe, renamed)
        else:
            body |= files(input_s3, renamed)
        body |= {} if output_s3 is None else {"output": location(output_s3)}
        answer = self._object(self._send("POST", "/api/v1/query_offline", body=body))
        return answer if "request_id" in answer else self._frame(answer, outputs, {timestamp_column: Datetime()})

    def track_offline_query(self, request_id: str) -> dict[str, Any]:
        """Return how far an offline query has come."""
        params = {"request_id": request_id}
        return self._object(self._send("GET", "/api/v1/query_offline/status", params=params))

    def cancel_offline_query(self, request_id: str) -> dict[str, Any]:
        """Stop an offline query; return how far it had come."""
        params = {"request_id": request_id}
        return self._object(self._send("POST", "/api/v1/query_offline/cancel", params=params))

    def lookup(
        self,
        dataset: Any,
        keys: pd.DataFrame,
        fields: Sequence[Any] | None = None,
        timestamps: pd.Series[Any] | None = None,
    ) -> tuple[pd.DataFrame | pd.Series[Any], pd.Series[Any]]:
        """Return the row of each key, and whether it was found.

        Args:
            dataset: a dataset or its name.
            keys: one column per key field.
            fields: the columns of the answer, all when None; a single one is returned as a series.
            timestamps: the instant of each row, for the offline index; as of now when None.
        """
        import pandas as pd

        check_keys(keys)
        name, wanted = dataset_name(dataset), field_names(fields)
        body: dict[str, Any] = {"keys": records(columns(keys)), "fields": wanted}
        if timestamps is not None:
            body["timestamps"] = plain(cast(timestamps, Datetime(), "timestamps").to_list())
        answer = self._send("POST", f"/api/v1/dataset/{name}/lookup", body=body).json()
        rows = frame(answer["data"], self._schemas.dataset(self._branch, name))
        found = pd.Series(answer["found"], dtype=bool, name="found")
        return (rows[wanted[0]] if wanted is not None and len(wanted) == 1 else rows), found

    def inspect(self, dataset: Any, n: int = 10) -> pd.DataFrame:
        """Return up to `n` recent rows of a dataset."""
        name = dataset_name(dataset)
        answer = self._send("GET", f"/api/v1/dataset/{name}/inspect", params={"n": n}).json()
        return frame(answer["data"], self._schemas.dataset(self._branch, name))

    def erase(self, dataset_name: Any, erase_keys: pd.DataFrame) -> Response:
        """Erase rows by their erase keys, now and whenever they come again.

        Args:
            dataset_name: a dataset or its name.
            erase_keys: one column per erase key field.
        """
        check_keys(erase_keys)
        name, body = name_of_dataset(dataset_name), {"erase_keys": columns(erase_keys)}
        try:
            return self._send("POST", f"/api/v1/dataset/{name}/erase", body=body)
        except UnknownName as error:
            if self._branch not in self.list_branches():
                raise
            return Response.of(404, {"message": error.message})

    def lineage(self) -> dict[str, Any]:
        """Return what depends on what."""
        return self._object(self._send("GET", "/api/v1/lineage"))

    def xray(
        self,
        datasets: Sequence[Any] | None = None,
        featuresets: Sequence[Any] | None = None,
        fields: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
    ) -> Any:
        """Return properties of datasets and featuresets; of all when none is named."""
        params = {
            "datasets": None if datasets is None else [dataset_name(each) for each in datasets],
            "featuresets": None if featuresets is None else names_of(featuresets, "featuresets"),
            "properties": properties if fields is None else fields,
        }
        return self._send("GET", "/api/v1/xray", params=params).json()

    def _frame(
        self, data: dict[str, list[Any]], outputs: Sequence[Any], others: Mapping[str, DType] | None = None
    ) -> pd.DataFrame:
        """Return an answer as a frame: features, and other columns of known types."""
        known = others or {}
        names = [name for name in data if name not in known]
        return frame(data, {**self._schemas.features(self._branch, outputs, names), **known})

    def _input_columns(self, inputs: Sequence[Any], names: list[str], df: pd.DataFrame) -> dict[str, list[Any]]:
        types = self._schemas.features(self._branch, inputs, names)
        wanted = {name: types[name] for name in names}
        return {name: [] for name in names} if df.empty else to_json(given(df, wanted), wanted)

    def _offline_columns(
        self, inputs: Sequence[Any], timestamp: str, df: pd.DataFrame, renamed: dict[str, str]
    ) -> dict[str, list[Any]]:
        if df.empty:
            raise InvalidValue("query_offline: the input dataframe is empty", hint="give at least one row")
        at = instants(df, timestamp)
        named = df.rename(columns={column: name for name, column in renamed.items()})
        return {**self._input_columns(inputs, names_of(inputs, "inputs"), named), timestamp: plain(at.to_list())}
