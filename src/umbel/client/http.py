"""The transport of a client to a server over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from umbel.client.connection import HttpConnection
from umbel.client.logged import Logged
from umbel.client.names import check_branch
from umbel.client.plain import columns, location, plain
from umbel.client.response import Response
from umbel.client.schemas import Schemas, decoded
from umbel.client.transport import MAIN, CommitRequest, FeatureQuery, OfflineFiles, OfflineRows, TraceRequest
from umbel.errors import InvalidValue, NotSupported
from umbel.query.answer import DTYPES_HEADER, Answer, dtypes_from_json
from umbel.query.columns import pandas_dtypes, provided
from umbel.query.encode import column_to_json, to_json
from umbel.types.dtypes import Datetime, DType

if TYPE_CHECKING:
    from datetime import datetime

    import httpx
    import pandas as pd

    from umbel.definitions.records import Definitions

COMMIT_TIMEOUT = 300.0


class HttpTransport:
    """The operations of a server; values travel as JSON, definitions as protobuf.

    Args:
        url: of the server.
        token: authenticates the caller.
        network: replaces the network, for tests.
    """

    def __init__(self, url: str, token: str = "", network: httpx.BaseTransport | None = None) -> None:
        self._http = HttpConnection(url, token, network)
        self._schemas = Schemas(self._serving, lambda branch: self.committed(branch)[0])

    def _send(self, method: str, path: str, branch: str = MAIN, **options: Any) -> Response:
        check_branch(branch)
        return self._http.send(method, f"/api/v1/{path}", branch, **options)

    # ---- definitions ---------------------------------------------------------------------------------------------

    def committed(self, branch: str) -> tuple[Definitions, int | None]:
        definitions, revision = self._loaded(branch, serving=False)
        return definitions, None if revision is None else int(revision)

    def _serving(self, branch: str) -> Definitions:
        """Return the definitions serving on a branch: the committed ones, once backfilled."""
        definitions, revision = self._loaded(branch, serving=True)
        self._schemas.answered(branch, revision)
        return definitions

    def _loaded(self, branch: str, *, serving: bool) -> tuple[Definitions, str | None]:
        from umbel.definitions.serde import load

        answer = self._send("GET", "commit", branch, params={"serving": serving})
        return load(answer.content), answer.headers.get("x-umbel-revision")

    def commit(self, branch: str, request: CommitRequest) -> Response:
        from umbel.definitions.serde import dump

        options = ("message", "preview", "incremental", "backfill", "env", "base")
        params = {name: getattr(request, name) for name in options}
        content = dump(request.definitions)
        answer = self._send("POST", "commit", branch, content=content, params=params, timeout=COMMIT_TIMEOUT)
        self._schemas.forget()
        return answer

    def plan(self, branch: str, definitions: Definitions, **options: Any) -> dict[str, Any]:
        """Return the effects of a commit of definitions, without committing."""
        from umbel.definitions.serde import dump

        content = dump(definitions)
        return dict(self._send("POST", "plan", branch, content=content, params=options, timeout=COMMIT_TIMEOUT).json())

    def report(self, branch: str, subject: str, params: Mapping[str, Sequence[str] | None] | None = None) -> Any:
        return self._send("GET", subject, branch, params=params).json()

    # ---- rows ----------------------------------------------------------------------------------------------------

    def log(self, webhook: str, endpoint: str, rows: pd.DataFrame, batch_size: int) -> Response:
        answer = Response.of(200, {})
        for start in range(0, max(len(rows), 1), batch_size):  # a server says of no rows, too, that nothing reads them
            data = columns(rows.iloc[start : start + batch_size])
            body = {"webhook": webhook, "endpoint": endpoint, "data": data}
            answer = self._http.send_once("/api/v1/log", MAIN, body)
        return answer

    def inspect(self, branch: str, dataset: str, n: int) -> Answer:
        answer = self._send("GET", _path(dataset, "inspect"), branch, params={"n": n})
        self._schemas.answered(branch, answer.headers.get("x-umbel-revision"))
        return decoded(answer.json()["data"], self._schemas.dataset(branch, dataset))

    def erase(self, branch: str, dataset: str, keys: pd.DataFrame) -> Response:
        return self._send("POST", _path(dataset, "erase"), branch, body={"erase_keys": columns(keys)})

    # ---- answers -------------------------------------------------------------------------------------------------

    def query(
        self, branch: str, request: FeatureQuery, rows: pd.DataFrame, *, log: bool, sampling_rate: float
    ) -> Answer:
        def ask() -> Response:
            body = self._body(branch, request, rows) | {"log": log, "sampling_rate": sampling_rate}
            return self._send("POST", "query", branch, body=body)

        return self._answer(branch, self._typed(branch, request, ask), request, rows)

    def query_offline(
        self, branch: str, request: FeatureQuery, timestamp: str, rows: OfflineRows | None, files: OfflineFiles
    ) -> Answer | dict[str, Any]:
        frame = None if rows is None else rows.frame

        def ask() -> Response:
            body = self._body(branch, request, frame) | {"timestamp_column": timestamp}
            if rows is None:
                body |= {"input": location(files.source), "feature_to_column_map": dict(files.columns)}
            else:
                body |= _dated(body["data"] if request.inputs else {}, timestamp, column_to_json(rows.at, Datetime()))
            if files.target is not None:
                body["output"] = location(files.target)
            return self._send("POST", "query_offline", branch, body=body)

        response = self._typed(branch, request, ask)
        if "request_id" in response.json():
            return dict(response.json())
        return self._answer(branch, response, request, frame, {timestamp: Datetime()})

    def _typed(self, branch: str, request: FeatureQuery, ask: Callable[[], Response]) -> Response:
        """Return a query's response.

        If its inputs do not fit their types as last fetched, and another commit is serving by now, it is sent once more.
        """
        try:
            return ask()
        except InvalidValue:
            if all(name in request.declared for name in request.inputs) or not self._schemas.is_outdated(branch):
                raise
            return ask()

    def _body(self, branch: str, request: FeatureQuery, rows: pd.DataFrame | None) -> dict[str, Any]:
        body: dict[str, Any] = {name: getattr(request, name) for name in ("inputs", "outputs", "workflow")}
        if rows is not None:
            types = self._schemas.features(branch, request.declared, request.inputs)
            requested = {name: types[name] for name in request.inputs}
            body["data"] = to_json(provided(rows, requested), requested) if requested else [{}] * len(rows)
        return body

    def _answer(
        self,
        branch: str,
        response: Response,
        request: FeatureQuery,
        rows: pd.DataFrame | None,
        others: Mapping[str, DType] | None = None,
    ) -> Answer:
        """Return a response's features, and other columns of known types.

        Its types are those of the commit that answered.
        """
        self._schemas.answered(branch, response.headers.get("x-umbel-revision"))
        data, known = response.json(), others or {}
        types = self._schemas.features(branch, request.declared, [name for name in data if name not in known])
        provided_as = {} if rows is None else pandas_dtypes(rows, request.inputs)
        dtypes = dtypes_from_json(response.headers.get(DTYPES_HEADER.lower(), ""), list(data))
        echoed = {name: dtype for name, dtype in provided_as.items() if name in data}
        shown = {name: dtype for name, dtype in (dtypes | echoed).items() if name not in known}
        return decoded(data, {**types, **known}, shown)

    def lookup(
        self, branch: str, dataset: str, keys: pd.DataFrame, fields: Sequence[str] | None, timestamps: pl.Series | None
    ) -> tuple[Answer, Sequence[bool]]:
        body: dict[str, Any] = {"keys": columns(keys), "fields": fields}
        if timestamps is not None:
            body["timestamps"] = column_to_json(timestamps, Datetime())
        response = self._send("POST", _path(dataset, "lookup"), branch, body=body)
        self._schemas.answered(branch, response.headers.get("x-umbel-revision"))
        answer = response.json()
        return decoded(answer["data"], self._schemas.dataset(branch, dataset)), answer["found"]

    def trace(self, branch: str, request: TraceRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"as_of": plain(request.at), "rows": request.shown}
        if request.query is None:
            path, body = _path(request.dataset, "trace"), body | {"keys": columns(request.values)}
        else:
            path, body = "trace", body | self._body(branch, request.query, request.values)
        return dict(self._send("POST", path, branch, body=body).json())

    def offline_query(self, request_id: str, *, cancel: bool) -> dict[str, Any]:
        method, path = ("POST", "query_offline/cancel") if cancel else ("GET", "query_offline/status")
        return dict(self._send(method, path, params={"request_id": request_id}).json())

    def feature_log(
        self, branch: str, workflow: str | None, since: datetime | str | None, until: datetime | str | None
    ) -> Logged:
        params = {"workflow": workflow, "since": plain(since), "until": plain(until)}
        lines = self._send("GET", "feature_log", branch, params=params).content
        return Logged(lines, self._schemas.all_features(branch))

    # ---- branches and secrets ------------------------------------------------------------------------------------

    def init_branch(self, name: str, clone_from: str | None) -> Response:
        body = {"branch": name} if clone_from is None else {"branch": name, "clone_from": clone_from}
        return self._send("POST", "init", body=body)

    def delete_branch(self, name: str) -> Response:
        answer = self._send("POST", "delete", body={"branch": name})
        self._schemas.forget()
        return answer

    def list_branches(self) -> list[str]:
        return list(self._send("GET", "branch/list").json()["branches"])

    def get_secret(self, name: str) -> str:
        raise NotSupported(
            f"secret '{name}': secrets are write-only over HTTP",
            hint="extractors and pipelines read it: secrets.get(name)",
        )

    def add_secret(self, name: str, value: str) -> Response:
        return self._send("POST", _secret(name), body={"value": value})

    def update_secret(self, name: str, value: str) -> Response:
        return self._send("PATCH", _secret(name), body={"value": value})

    def delete_secret(self, name: str) -> Response:
        return self._send("DELETE", _secret(name))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _dated(data: Mapping[str, list[Any]], timestamp: str, at: list[Any]) -> dict[str, Any]:
    """Return rows with their instants, as members of a body.

    An input may have the name of the timestamp column. Its values, which may be no instants, then have a column of another name.
    """
    other = timestamp
    while other in data:
        other += "_"
    columns = {timestamp: other} if other != timestamp else {}
    named = {columns.get(name, name): values for name, values in data.items()}
    return {"data": named | {timestamp: at}, "feature_to_column_map": columns}


def _path(dataset: str, operation: str) -> str:
    return f"dataset/{quote(dataset, safe='')}/{operation}"


def _secret(name: str) -> str:
    return f"secret/{quote(name, safe='')}"
