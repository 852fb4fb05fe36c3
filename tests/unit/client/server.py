"""A server made of a mock client, behind an `httpx` transport that notes every request."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pandas as pd

from umbel.definitions.serde import dump, load
from umbel.errors import UmbelError
from umbel.query.encode import column_from_json, columns_of, from_json, revived
from umbel.query.session import QueryMode
from umbel.testing import MockClient
from umbel.types.dtypes import Datetime


class Server:
    """Serves the routes of api.md 9.3 from a mock client's engine."""

    def __init__(self) -> None:
        self.mock = MockClient()
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self.handle)

    @property
    def branch(self) -> Any:
        return self.mock._transport.branch(self.mock.branch())

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.mock.checkout(request.headers["X-UMBEL-BRANCH"])
        try:
            return self.answer(request)
        except UmbelError as error:
            return httpx.Response(400, json={"code": error.code, "message": error.message, "hint": error.hint})

    def answer(self, request: httpx.Request) -> httpx.Response:
        _, _, _, route, *rest = request.url.path.split("/")
        if route == "commit" and request.method == "GET":
            return httpx.Response(200, content=dump(self.branch.definitions))
        if route == "commit":
            self.branch.commit(load(request.content), {}, incremental=request.url.params["incremental"] == "true")
            return httpx.Response(200, json={"revision": 1})
        body = json.loads(request.content) if request.content else {}
        if route == "dataset":
            return self.dataset(rest[0], rest[1], body, request)
        return httpx.Response(200, json=getattr(self, "_".join([route, *rest]).replace("-", "_"))(body, request))

    def log(self, body: Any, request: httpx.Request) -> Any:
        frames = []
        for name in self.branch.definitions.datasets:
            types = self.branch.dataset(name).dtypes
            columns = revived(columns_of(body["data"]), types)
            frames.append(pd.DataFrame({key: pd.Series(values, dtype=object) for key, values in columns.items()}))
        self.mock.log(body["webhook"], body["endpoint"], frames[0])
        return {}

    def query(self, body: Any, request: httpx.Request) -> Any:
        plan = self.branch.engine.plan(body["inputs"], body["outputs"], QueryMode.ONLINE)
        provided = from_json(body["data"], plan.inputs)
        return self.branch.engine.online(
            plan, {name: provided[name] for name in provided.columns}, provided.height
        ).to_json()

    def query_offline(self, body: Any, request: httpx.Request) -> Any:
        if "input" in body:
            return {"request_id": "7", "status": "running"}
        column = body["timestamp_column"]
        plan = self.branch.engine.plan(body["inputs"], body["outputs"], QueryMode.OFFLINE)
        provided = from_json(body["data"], {**plan.inputs, column: Datetime()})
        found = self.branch.engine.offline(
            plan, {name: provided[name] for name in plan.inputs}, provided[column]
        ).to_json()
        return {**found, column: [each.isoformat() for each in provided[column]]}

    def query_offline_status(self, body: Any, request: httpx.Request) -> Any:
        return {"request_id": request.url.params["request_id"], "status": "done"}

    query_offline_cancel = query_offline_status

    def dataset(self, name: str, what: str, body: Any, request: httpx.Request) -> httpx.Response:
        definition = self.branch.engine.dataset(name)
        if what == "inspect":
            found = self.branch.table(name).head(int(request.url.params["n"]))
            from umbel.query.encode import to_json

            return httpx.Response(
                200, json={"data": to_json({each: found[each] for each in found.columns}, definition.dtypes)}
            )
        if what == "erase":
            self.mock.erase(name, pd.DataFrame(body["erase_keys"]))
            return httpx.Response(200, json={})
        keys = from_json(body["keys"], dict(definition.schema.keys), "keys")
        at = column_from_json(body["timestamps"], Datetime()) if "timestamps" in body else None
        answer, is_found = self.branch.engine.lookup(name, keys, at, body["fields"])
        return httpx.Response(200, json={"data": answer.to_json(), "found": is_found.to_list()})

    def init(self, body: Any, request: httpx.Request) -> Any:
        source = body.get("clone_from")
        self.mock.clone_branch(body["branch"], source) if source else self.mock.init_branch(body["branch"])
        return {}

    def delete(self, body: Any, request: httpx.Request) -> Any:
        self.mock.delete_branch(body["branch"])
        return {}

    def branch_list(self, body: Any, request: httpx.Request) -> Any:
        return {"branches": self.mock.list_branches()}

    def secret_key(self, body: Any, request: httpx.Request) -> Any:
        change = {"POST": self.mock.add_secret, "PATCH": self.mock.update_secret}.get(request.method)
        if change:
            change("key", body["value"])
        else:
            self.mock.delete_secret("key")
        return {}

    def lineage(self, body: Any, request: httpx.Request) -> Any:
        return {"edges": []}

    def xray(self, body: Any, request: httpx.Request) -> Any:
        return {"asked": request.url.params.get_list("datasets")}
