"""A shop whose totals are raised from version to version, with a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.unit.serving.asgi import serving_admin
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.client.connection import HttpConnection
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs
from umbel.log.ingest import IngestLogs
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.runtime.switching import branch_status

__owner__ = "tests@example.com"
webhook = Webhook(name="events")
NOON = "2024-01-01T12:00:00Z"
AMOUNTS = list(range(1, 31))
PADDING = 70_000
"""Bytes by which a record is longer, so that each is worth a place in the index of its log."""


def sales(version: int = 1, endpoint: str = "sales", disorder: str = "14d") -> Any:
    @source(webhook.endpoint(endpoint), disorder=disorder, cdc="append")
    @dataset(version=version)
    class Sale:
        user: int
        amount: int
        at: datetime

    return Sale


def totals(sale: Any, version: int = 1, renamed: bool = False, window: str = "forever") -> list[Any]:
    """Return a dataset of totals and features of it; `renamed`, with another feature in place of the first one."""

    @index
    @dataset(version=version)
    class Total:
        user: int = field(key=True)
        total: int
        sales: int
        at: datetime

        @pipeline
        @inputs(sale)
        def made(cls, sales: Dataset):
            return sales.groupby("user").aggregate(
                total=Sum(of="amount", window=Continuous(window)), sales=Count(window=Continuous(window))
            )

    if renamed:

        @featureset
        class User:
            user: int
            spent: int = F(Total.total, default=-1)
            sales: int = F(Total.sales, default=-1)

        return [Total, User]

    @featureset
    class User:
        user: int
        total: int = F(Total.total, default=-1)
        sales: int = F(Total.sales, default=-1)

    return [Total, User]


def definitions(version: int = 1, renamed: bool = False, **options: Any) -> Any:
    sale = sales(version, **options)
    total, user = totals(sale, version, renamed)
    return check_commit([sale, total], [user])


class Shop:
    """A deployment with a server in this process, whose sources are read a little at a time."""

    def __init__(self, folder: Path, transport_of: Any) -> None:
        self.place = Deployment.at(folder, shards=2, budget=300_000)
        self.logs = IngestLogs(folder)
        self.transport = transport_of(self.place)
        self.client = Client("http://umbel", transport=self.transport)
        self.http = HttpConnection("http://umbel", "", self.transport)

    def log(self, amounts: list[int], endpoint: str = "sales", user: int = 1) -> None:
        for amount in amounts:
            payload = f'[{{"user":{user},"amount":{amount},"at":"{NOON}"}}]'.encode() + b" " * PADDING
            self.logs.log("events", endpoint).append_blocking(payload, 1)

    def commit(self, defined: Any, branch: str = "main", **options: Any) -> dict[str, Any]:
        found = commit(self.place, defined, branch=branch, **options)
        self.look()
        return found

    def look(self) -> None:
        self.http.send("GET", "/readyz", "main")

    def answer(self, *features: str, branch: str = "main", user: int = 1) -> list[int]:
        self.look()
        body = {
            "inputs": ["User.user"],
            "outputs": [f"User.{each}" for each in features],
            "data": {"User.user": [user]},
        }
        found = self.http.send("POST", "/api/v1/query", branch, body=body)
        return [values[0] for values in found.json().values()]

    def refused(self, *features: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        self.look()
        body = {"inputs": ["User.user"], "outputs": [f"User.{each}" for each in features], "data": {"User.user": [1]}}
        with httpx.Client(transport=self.transport, base_url="http://umbel") as http:
            found = http.post("/api/v1/query", json=body)
            return found.status_code, found.json(), dict(found.headers)

    def status(self, branch: str = "main") -> dict[str, Any]:
        return branch_status(self.place, branch)

    def state_ids(self) -> set[str]:
        return {owner for shard in range(self.place.shards) for owner in self.place.store.state_ids(shard)}


@contextmanager
def opened_shop(tmp_path: Path) -> Iterator[Shop]:
    opened: list[Any] = []

    def transport_of(place: Deployment) -> Any:
        opened.append(serving_admin(place))
        return opened[0].__enter__()

    found = Shop(tmp_path, transport_of)
    found.commit(definitions())
    found.log(AMOUNTS)
    drain(found.place)
    yield found
    opened[0].__exit__(None, None, None)
    found.logs.close()
    found.place.store.close()
    found.place.catalog.close()
