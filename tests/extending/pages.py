"""Sources of the package of the tests, and readers in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.extending.shelves import Shelves
from umbel.connectors import source
from umbel.connectors.custom import Page
from umbel.datasets import dataset

__owner__ = "shop@example.com"
START = datetime(2024, 1, 1, tzinfo=UTC)
Read = Callable[[Any, str, Any], Iterator[Page]]


def seen(server: Shelves, *shelves: str) -> Any:
    from umbel_extras.shelf import Shelf

    @source(Shelf(name="shelf", url=server.url).items(*shelves), disorder="1h", cdc="append", every="1s")
    @dataset
    class Seen:
        n: int
        t: datetime

    return Seen


def put(server: Shelves, shelf: str, hours: range) -> None:
    server.put(shelf, *({"n": 1, "t": (START + timedelta(hours=hour)).isoformat()} for hour in hours))


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call
