"""Shelf: an HTTP API with pages, as a source and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from umbel.connectors.custom import BatchWriter, Page, PagedConnector
from umbel.connectors.sinks import RowChange, SinkWriter
from umbel.definitions.arguments import DataSource, Delivery, refuse_options
from umbel.errors import InvalidValue, Transient


@dataclass(frozen=True, kw_only=True)
class Shelf(DataSource):
    """A server with shelves of items.

    Args:
        url: its address.
    """

    url: str

    def items(self, *shelves: str) -> Items:
        """Return the connector for the items of some shelves."""
        return Items(source=self, shelves=shelves)


@dataclass(frozen=True, kw_only=True)
class Items(PagedConnector):
    """The items of some shelves.

    Args:
        shelves: their names.
    """

    shelves: tuple[str, ...]

    def pages(self) -> ShelfReader:
        return ShelfReader(self.source.url, self.shelves)

    def check_sink(self, delivery: Delivery) -> None:
        refuse_options(self.title, how=delivery.how, renames=dict(delivery.renames))
        if len(self.shelves) != 1:
            raise InvalidValue(f"{self.title}: a sink has one shelf", hint='.items("name")')

    def check_writer(self) -> None:
        """Refuse nothing: httpx comes with umbel."""

    def writer(self, id: str, dataset: str) -> SinkWriter:
        return ShelfWriter(id, self.source.url, self.shelves[0])


class ShelfReader:
    """Reads items by `GET /shelves/{name}?after=17`: a list of at most a hundred, by id."""

    def __init__(self, url: str, shelves: Sequence[str]) -> None:
        self._url, self._shelves = url, shelves

    def partitions(self) -> Sequence[str]:
        return self._shelves

    def read(self, partition: str, offset: Any) -> Iterator[Page]:
        with httpx.Client(base_url=self._url, timeout=10) as client:
            while True:
                answer = client.get(f"/shelves/{partition}", params={"after": offset or 0})
                items = answer.raise_for_status().json()
                if not items:
                    return
                offset = items[-1]["id"]
                yield Page(items, offset)


class ShelfWriter(BatchWriter):
    """Sends changes by `POST /shelves/{name}`."""

    def __init__(self, id: str, url: str, shelf: str) -> None:
        super().__init__(id)
        self._url = f"{url}/shelves/{shelf}"

    def deliver(self, key: str, changes: Sequence[RowChange]) -> None:
        body = [{"op": each.op, "key": each.key, "row": each.after} for each in changes]
        try:
            httpx.post(self._url, json=body, headers={"Idempotency-Key": key}, timeout=10).raise_for_status()
        except httpx.HTTPError as error:
            raise Transient(f"Shelf: {type(error).__name__}", hint="see that the server runs") from error
