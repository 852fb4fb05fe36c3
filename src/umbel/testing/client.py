"""`MockClient`: everything a server does, in process."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from umbel.client.names import check_keys, check_rows, dataset_name, field_names, names_of
from umbel.client.response import Response
from umbel.errors import InvalidType, InvalidValue, NotSupported, UmbelError
from umbel.query.columns import cast, given, instants, keys_of
from umbel.query.resolve import name_of
from umbel.query.session import Mode
from umbel.testing.branches import MockBranches
from umbel.testing.ingestion import accepted, direct
from umbel.types.dtypes import Datetime
from umbel.types.pandas import to_pandas

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

    from umbel.query.execute import QueryEngine


latest: ContextVar[MockClient | None] = ContextVar("umbel_mock_client", default=None)
"""The mock client made last: the one `umbel.testing.log` feeds."""


class MockClient(MockBranches):
    """A client that runs everything in process, at once: no server, no JVM.

    Args:
        branch: the branch calls are about; "main" unless given.
    """

    def __init__(self, branch: str | None = None) -> None:
        super().__init__(branch)
        latest.set(self)

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
            preview: ignored.
            env: the environment whose sources, sinks, pipelines and extractors are selected.
            incremental: keep what is not mentioned, and its data; otherwise the branch starts empty.
            backfill: ignored.

        Raises:
            UmbelError: the definitions do not hold; all faults are listed.
        """
        from umbel.api.commit import check_commit

        branch = self._current
        before = branch.definitions if incremental else None
        definitions = check_commit(datasets, featuresets, env=env, before=before)
        objects = {str(each.__name__): each for each in (*(datasets or ()), *(featuresets or ()))}
        branch.commit(definitions, objects, incremental=incremental)
        self._history.append((self.branch(), message))
        return Response.of(200, {"message": message})

    def add(self, obj: Any) -> Response:
        """Commit one dataset or featureset to what is there."""
        is_dataset = hasattr(obj, "key_fields")
        return self.commit("add", [obj] if is_dataset else [], [] if is_dataset else [obj], incremental=True)

    def log(self, webhook: str, endpoint: str, df: pd.DataFrame, batch_size: int = 1000) -> Response:
        """Push rows to the datasets that an endpoint of a webhook feeds, on every branch.

        Args:
            webhook: its name.
            endpoint: its endpoint.
            df: the rows: all are taken, or none.
            batch_size: ignored.

        Raises:
            InvalidValue: rows do not fit a dataset's schema; or no dataset on any branch has the endpoint.
        """
        check_rows(df, "log")
        batches = {name: accepted(branch, webhook, endpoint, df) for name, branch in self._branches.items()}
        if all(found is None for found in batches.values()):
            raise InvalidValue(
                f"no dataset has a source for endpoint '{endpoint}' of webhook '{webhook}'",
                hint="commit a dataset with @source(webhook.endpoint(...)) first",
            )
        self._feed({name: found for name, found in batches.items() if found})
        return Response.of(200, {"rows": len(df)})

    def log_to(self, dataset: Any, df: pd.DataFrame) -> Response:
        """Push rows straight into a dataset of the current branch, also into one made by a pipeline."""
        check_rows(df, "log")
        name = dataset_name(dataset)
        self._feed({self.branch(): [(name, direct(self._current.dataset(name), df))]})
        return Response.of(200, {"rows": len(df)})

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
            log: not supported in process.
            workflow: ignored.
            sampling_rate: ignored.
        """
        if log:
            raise NotSupported(
                "query(log=True) needs a server; a mock client keeps no log of queries", hint="leave log=True out"
            )
        engine = self._engine
        plan = engine.plan(names_of(inputs, "inputs"), names_of(outputs, "outputs"), Mode.ONLINE)
        columns = given(_or_blank(input_dataframe, list(plan.inputs)), plan.inputs)
        with self._secrets.in_force():
            return engine.online(plan, columns, len(input_dataframe)).to_pandas()

    def feature_log(
        self, workflow: str | None = None, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> pd.DataFrame:
        """Refuse: a mock client keeps no log of queries."""
        raise NotSupported("feature_log needs a server; a mock client keeps no log of queries", hint="Client(url)")

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
    ) -> pd.DataFrame:
        """Return features, each row as of its own instant, with the instants as last column.

        Args:
            inputs: the features given.
            outputs: the features and featuresets wanted.
            timestamp_column: the column of the instants.
            input_dataframe: one column per input and the instants.
            input_s3: not supported in process.
            output_s3: not supported in process.
            feature_to_column_map: the columns of inputs whose columns are not named after them.
            workflow: ignored.
            use_v2: ignored.
            num_dpus: ignored.
        """
        if input_dataframe is None or input_s3 is not None or output_s3 is not None:
            raise InvalidValue(
                "a mock client has no S3", hint="query_offline(..., input_dataframe=df) returns the answer"
            )
        engine = self._engine
        plan = engine.plan(names_of(inputs, "inputs"), names_of(outputs, "outputs"), Mode.OFFLINE)
        renamed = {column: name_of(feature) for feature, column in (feature_to_column_map or {}).items()}
        df = _or_blank(input_dataframe, [*plan.inputs, timestamp_column])
        at, columns = instants(df, timestamp_column), given(df.rename(columns=renamed), plan.inputs)
        with self._secrets.in_force():
            found = engine.offline(plan, columns, at).to_pandas()
        found[timestamp_column] = Datetime().to_pandas(at)
        return found

    def track_offline_query(self, request_id: str) -> Response:
        """Return a response 404: a mock client answers offline queries at once."""
        return Response.of(404, {"message": f"no offline query '{request_id}'"})

    def cancel_offline_query(self, request_id: str) -> Response:
        """Return a response 404: a mock client answers offline queries at once."""
        return self.track_offline_query(request_id)

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
        engine, name, wanted = self._engine, dataset_name(dataset), field_names(fields)
        types = dict(engine.dataset(name).schema.keys)
        asked = keys_of(keys, types, f"lookup on dataset '{name}'")
        at = None if timestamps is None else cast(pd.Series(timestamps), Datetime(), "timestamps")
        if at is not None and len(at) != asked.height:
            raise InvalidValue(
                f"lookup on dataset '{name}': {asked.height} keys, but {len(at)} timestamps",
                hint="one timestamp for each row of keys",
            )
        with self._secrets.in_force():
            answer, is_found = engine.lookup(name, asked, at, wanted)
        rows, found = answer.to_pandas(), pd.Series(is_found.to_numpy(writable=True), name="found")
        return (rows[wanted[0]] if wanted is not None and len(wanted) == 1 else rows), found

    def inspect(self, dataset: Any, n: int = 10) -> pd.DataFrame:
        """Return up to `n` rows of a dataset: the latest."""
        return self.get_dataset_df(dataset).tail(n).reset_index(drop=True)

    def get_dataset_df(self, name: Any) -> pd.DataFrame:
        """Return all rows of a dataset by time, superseded ones included.

        For a dataset that ends in an aggregate over continuous windows, these are the instants at which the values of
        a group change, and the values from then on.
        """
        known = dataset_name(name)
        with self._secrets.in_force():
            return to_pandas(self._current.table(known), self._current.dataset(known).dtypes)

    def erase(self, dataset_name: Any, erase_keys: pd.DataFrame) -> Response:
        """Erase rows by their erase keys, now and whenever they come again.

        Args:
            dataset_name: a dataset or its name.
            erase_keys: one column per erase key field.
        """
        check_keys(erase_keys)
        name = _erasable(dataset_name)
        definition = self._current.definitions.datasets.get(name)
        if definition is None:
            return Response.of(404, {"message": f"dataset '{name}' is not committed"})
        definition.check_erase_keys([str(column) for column in erase_keys.columns])
        types = {key: definition.dtypes[key] for key in definition.erase_keys}
        self._current.erased.add(name, keys_of(erase_keys, types, f"erase on dataset '{name}'"))
        return Response.of(200, {"erased": len(erase_keys)})

    @property
    def _engine(self) -> QueryEngine:
        with self._secrets.in_force():  # pipelines may have to run again
            return self._current.engine

    def get_datasets(self) -> list[Any]:
        """Return the datasets committed on the current branch."""
        return [self._current.objects[name] for name in self._current.definitions.datasets]

    def get_featuresets(self) -> list[Any]:
        """Return the featuresets committed on the current branch."""
        return [self._current.objects[name] for name in self._current.definitions.featuresets]

    def sleep(self, seconds: float = 0) -> None:
        """Return at once: nothing happens later in process."""

    def is_integration_client(self) -> bool:
        """Return whether calls reach a server."""
        return False

    def integration_mode(self) -> str:
        """Return "mock"."""
        return "mock"


def _or_blank(df: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return a frame without rows in the form of one that has all columns."""
    import pandas as pd

    if not isinstance(df, pd.DataFrame):
        raise InvalidType(
            f"input_dataframe must be a pandas DataFrame, got {type(df).__name__}", hint="one column for each input"
        )
    return pd.DataFrame(columns=columns) if len(df) == 0 else df


def _erasable(dataset: Any) -> str:
    try:
        return dataset_name(dataset)
    except UmbelError as error:
        raise InvalidType(f"erase: {error.message}", hint=error.hint) from None
