"""Objects in a bucket of an S3 server, and the datasets fed by them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from tests.deployed import Deployed
from tests.s3server import KEY, SECRET, S3Server
from umbel.api.dataset import redefined
from umbel.connectors import S3, source
from umbel.datasets import dataset
from umbel.definitions.arguments import ReadOptions

__owner__ = "shop@example.com"
_NUMBERS = count()
START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = 3_600_000_000


@dataclass
class Place:
    """A bucket of a server.

    Args:
        server: the server.
        name: of the bucket.
    """

    server: S3Server
    name: str = field(default_factory=lambda: f"shop{next(_NUMBERS)}")

    def __post_init__(self) -> None:
        self.server.bucket(self.name)

    @property
    def store(self) -> Any:
        """The bucket as a client sees it, with short patience."""
        from obstore.store import S3Store

        return S3Store(
            self.name,
            endpoint=self.server.url,
            region="us-east-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
        )

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        import obstore

        obstore.put(self.store, name, content)

    def delete(self, name: str) -> None:
        """Delete an object."""
        import obstore

        obstore.delete(self.store, name)


@pytest.fixture
def place(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return an empty bucket, which this process finds by its environment."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return Place(s3_server)


def lines(users: Iterable[int]) -> bytes:
    """Return JSON lines, of an hour each."""
    rows = ({"user": user, "at": (START + timedelta(seconds=user)).isoformat()} for user in users)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def options(folder: Path, disorder: int = HOUR) -> ReadOptions:
    """Return the options of a reader."""
    return ReadOptions(
        directory=folder,
        key="k",
        dataset="Clicks",
        cdc="append",
        every=1_000_000,
        disorder=disorder,
        columns=None,
        keys=(),
        is_keyed=False,
    )


def clicks(place: Place, *, s3: S3 | None = None, name: str = "Clicks", **where: Any) -> Any:
    """Return the dataset of the objects of a bucket."""
    connector = (s3 or S3(name="lake")).bucket(place.name, **{"path": "raw/**/*.json", "format": "json", **where})

    @source(connector, disorder="3650d", cdc="append", every="1s")
    @dataset
    class Clicks:
        user: int
        at: datetime

    return redefined(cast("Any", Clicks), name=name)


@contextmanager
def deployed(folder: Path, *datasets: Any) -> Iterator[Deployed]:
    """Return a deployment of datasets."""
    made = Deployed(folder / "umbel")
    try:
        if datasets:
            made.commit(datasets)
        yield made
    finally:
        made.close()
