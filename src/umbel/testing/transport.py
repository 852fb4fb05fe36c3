"""The transport of a client into its own process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.client.logged import Logged
from umbel.client.names import check_branch
from umbel.client.response import Response
from umbel.client.transport import MAIN, CommitRequest, FeatureQuery, OfflineFiles, OfflineRows, TraceRequest
from umbel.connectors.webhook import WebhookConnector
from umbel.definitions.records import Definitions
from umbel.errors import InvalidValue, NotSupported, UnknownName, did_you_mean
from umbel.local.provenance import LocalProvenance
from umbel.query.answer import Answer
from umbel.query.columns import check_timestamp, keys_of, pandas_dtypes, provided
from umbel.query.execute import QueryEngine
from umbel.query.session import QueryMode
from umbel.query.trace import Tracer, trace_query, trace_row
from umbel.serving.purpose import purpose_of, workflow_of
from umbel.testing.branch import Fed, MockBranch
from umbel.testing.ingestion import accepted, direct
from umbel.testing.lookups import BranchLookups
from umbel.testing.secrets import MockSecrets
from umbel.types.dtypes import Datetime

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd


_MOST_ROWS = 1 << 60


class LocalTransport:
    """The operations of a platform in this process: everything takes effect immediately.

    Args:
        branch: a branch that exists from the start, as main does.
    """

    def __init__(self, branch: str = MAIN) -> None:
        self._branches = {name: MockBranch() for name in (MAIN, branch)}
        self._secrets = MockSecrets()

    def branch(self, name: str) -> MockBranch:
        """Return a branch.

        Raises:
            InvalidValue: it cannot be the name of one.
            UnknownName: there is none.
        """
        check_branch(name)
        found = self._branches.get(name)
        if found is None:
            raise UnknownName(
                f"branch '{name}' does not exist; branches: {', '.join(self._branches)}", hint="init_branch makes one"
            )
        return found

    def engine(self, branch: str) -> QueryEngine:
        """Return the query engine of a branch."""
        with self._secrets.in_force():  # pipelines may have to run again
            return self.branch(branch).engine

    # ---- definitions ---------------------------------------------------------------------------------------------

    def committed(self, branch: str) -> tuple[Definitions, int | None]:
        return self.branch(branch).definitions, None

    def commit(self, branch: str, request: CommitRequest) -> Response:
        self.branch(branch).commit(request.definitions, request.objects, incremental=request.incremental)
        return Response.of(200, {"message": request.message})

    def report(self, branch: str, subject: str, params: Mapping[str, Sequence[str] | None] | None = None) -> Any:
        raise _needs_server(subject)

    # ---- rows ----------------------------------------------------------------------------------------------------

    def log(self, webhook: str, endpoint: str, rows: pd.DataFrame, batch_size: int) -> Response:
        """Push rows to an endpoint, on every branch: all or none, regardless of `batch_size`."""
        batches = {name: accepted(branch, webhook, endpoint, rows) for name, branch in self._branches.items()}
        if all(found is None for found in batches.values()):
            known = did_you_mean(f"{webhook}/{endpoint}", self._endpoints())
            raise InvalidValue(
                f"no dataset has a source for endpoint '{endpoint}' of webhook '{webhook}'{known}",
                hint="commit a dataset with @source(webhook.endpoint(...)) first",
            )
        self._feed({name: found for name, found in batches.items() if found})
        return Response.of(200, {"rows": len(rows)})

    def _endpoints(self) -> Iterator[str]:
        for branch in self._branches.values():
            connectors = (source.connector for each in branch.definitions.datasets.values() for source in each.sources)
            yield from (f"{c.source_name}/{c.endpoint}" for c in connectors if isinstance(c, WebhookConnector))

    def log_to(self, branch: str, dataset: str, rows: pd.DataFrame) -> Response:
        """Push rows directly into a dataset, also one computed by a pipeline."""
        self._feed({branch: [(dataset, direct(self.branch(branch).dataset(dataset), rows))]})
        return Response.of(200, {"rows": len(rows)})

    def _feed(self, batches: Mapping[str, list[Fed]]) -> None:
        """Ingest rows into branches, all or none.

        None are ingested when a pipeline of one fails.
        """
        marks = {name: self._branches[name].mark() for name in batches}
        done: list[str] = []
        try:
            with self._secrets.in_force():
                for name, fed in batches.items():
                    self._branches[name].feed(fed)
                    done.append(name)
        except Exception:
            for name in done:
                self._branches[name].back_to(marks[name])
            raise

    def table(self, branch: str, dataset: str) -> Answer:
        """Return all rows of a dataset by time, including superseded ones."""
        found = self.branch(branch)
        with self._secrets.in_force():
            rows = found.table(dataset)
        types = found.dataset(dataset).dtypes
        return Answer({name: rows.get_column(name) for name in types}, types)

    def inspect(self, branch: str, dataset: str, n: int) -> Answer:
        found = self.branch(branch)
        types = found.dataset(dataset).dtypes
        with self._secrets.in_force():
            rows = found.newest(dataset, min(n, _MOST_ROWS))  # Polars takes numbers of 64 bits
        return Answer({name: rows.get_column(name) for name in types}, types)

    def erase(self, branch: str, dataset: str, keys: pd.DataFrame) -> Response:
        found = self.branch(branch)
        definition = found.dataset(dataset)
        definition.check_erase_keys([str(column) for column in keys.columns])
        types = {key: definition.dtypes[key] for key in definition.erase_keys}
        found.erased.add(dataset, keys_of(keys, types, f"erase on dataset '{dataset}'"))
        return Response.of(200, {"erased": len(keys)})

    # ---- answers -------------------------------------------------------------------------------------------------

    def query(
        self, branch: str, request: FeatureQuery, rows: pd.DataFrame, *, log: bool, sampling_rate: float
    ) -> Answer:
        if purpose_of(request.workflow, log, sampling_rate).is_logged:
            raise _needs_server("query(log=True)")
        engine = self.engine(branch)
        plan = engine.plan(request.inputs, request.outputs, QueryMode.ONLINE)
        columns, dtypes = provided(rows, plan.inputs), pandas_dtypes(rows, plan.inputs)
        with self._secrets.in_force():
            return engine.online(plan, columns, len(rows), dtypes=dtypes)

    def query_offline(
        self, branch: str, request: FeatureQuery, timestamp: str, rows: OfflineRows | None, files: OfflineFiles
    ) -> Answer:
        if rows is None or files.target is not None:
            raise InvalidValue(
                "a mock client has no S3", hint="query_offline(..., input_dataframe=df) returns the answer"
            )
        workflow_of(request.workflow)
        engine = self.engine(branch)
        plan = engine.plan(request.inputs, request.outputs, QueryMode.OFFLINE)
        check_timestamp(timestamp, plan.outputs)
        frame, at = rows.frame, rows.at
        with self._secrets.in_force():
            found = engine.offline(plan, provided(frame, plan.inputs), at, pandas_dtypes(frame, plan.inputs))
        known = {timestamp: Datetime()}
        dtypes = {name: dtype for name, dtype in found.dtypes.items() if name not in known}
        return Answer({**found.columns, timestamp: at}, {**found.types, **known}, dtypes=dtypes)

    def offline_query(self, request_id: str, *, cancel: bool) -> Response:
        """Return a response 404: offline queries are answered at once."""
        return Response.of(404, {"message": f"no offline query '{request_id}'"})

    def feature_log(
        self, branch: str, workflow: str | None, since: datetime | str | None, until: datetime | str | None
    ) -> Logged:
        raise _needs_server("feature_log")

    def lookup(
        self, branch: str, dataset: str, keys: pd.DataFrame, fields: Sequence[str] | None, timestamps: pl.Series | None
    ) -> tuple[Answer, Sequence[bool]]:
        engine = self.engine(branch)
        queries = keys_of(keys, dict(engine.dataset(dataset).schema.keys), f"lookup on dataset '{dataset}'")
        with self._secrets.in_force():
            answer, found = engine.lookup(dataset, queries, timestamps, fields)
        return answer, found.to_list()

    def trace(self, branch: str, request: TraceRequest) -> dict[str, Any]:
        engine, found = self.engine(branch), self.branch(branch)
        runner = found.runner
        tracer = Tracer(runner.graph, runner.store, LocalProvenance(runner), found.erased, request.shown)
        if request.query is None:
            keys = keys_of(request.values, dict(engine.dataset(request.dataset).schema.keys), "trace_row")
            return trace_row(engine, tracer, request.dataset, keys, request.at)
        plan = engine.plan(request.query.inputs, request.query.outputs, QueryMode.ONLINE)
        with self._secrets.in_force():
            return trace_query(engine, tracer, plan, provided(request.values, plan.inputs), request.at)

    def dataset_lookups(self, branch: str) -> BranchLookups:
        """Return the provider of `Dataset.lookup` in test bodies."""
        return BranchLookups(self.branch(branch), self._secrets)

    # ---- branches and secrets ------------------------------------------------------------------------------------

    def init_branch(self, name: str, clone_from: str | None) -> Response:
        made = MockBranch() if clone_from is None else self.branch(clone_from).clone()
        if name in self._branches:
            raise InvalidValue(
                f"branch '{name}' exists already; branches: {', '.join(self._branches)}",
                hint="check it out, or choose another name",
            )
        self._branches[name] = made
        return Response.of(200, {"branch": name})

    def delete_branch(self, name: str) -> Response:
        if name == MAIN:
            raise InvalidValue(
                "branch 'main' cannot be deleted", hint="it always exists; commit without incremental to empty it"
            )
        self.branch(name)
        del self._branches[name]
        return Response.of(200, {"branch": name})

    def list_branches(self) -> list[str]:
        return list(self._branches)

    def get_secret(self, name: str) -> str:
        return self._secrets.get(name)

    def add_secret(self, name: str, value: str) -> Response:
        self._secrets.add(name, value)
        return Response.of(200, {"secret": name})

    def update_secret(self, name: str, value: str) -> Response:
        self._secrets.update(name, value)
        return Response.of(200, {"secret": name})

    def delete_secret(self, name: str) -> Response:
        self._secrets.delete(name)
        return Response.of(200, {"secret": name})

    def close(self) -> None:
        """Keep everything: there is no connection."""


def _needs_server(call: str) -> NotSupported:
    return NotSupported(f"{call} needs a server: a mock client has nothing to answer it from", hint="Client(url)")
