"""December, live: the rows of flights and weather in the order they became known, in small requests."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

import polars as pl

from examples.flights.data import Tables
from examples.flights.server import Server

REQUEST = 25
"""Rows per request."""
LATE = 0.2
"""The share of weather rows that arrive up to five hours late, after flights they concern."""
SEED = 2013


@dataclass(slots=True)
class Freshness:
    """How long it takes until an accepted row can be looked up."""

    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{median(self.seconds[-20:]) * 1000:.0f} ms" if self.seconds else "…"


def requests(tables: Tables, month: int) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield the requests of a month: endpoint and rows."""
    late = random.Random(SEED)
    known = [(row["_known"], "flights", row) for row in _of_month(tables.flights, month).to_dicts()]
    for row in _of_month(tables.weather, month).to_dicts():
        delay = timedelta(minutes=late.uniform(0, 300)) if late.random() < LATE else timedelta()
        known.append((row["_known"] + delay, "weather", row))
    known.sort(key=lambda each: each[0])
    buffered: dict[str, list[dict[str, object]]] = {"flights": [], "weather": []}
    for _, endpoint, row in known:
        buffered[endpoint].append({name: value for name, value in row.items() if name != "_known"})
        if len(buffered[endpoint]) == REQUEST:
            yield endpoint, buffered[endpoint]
            buffered[endpoint] = []
    yield from ((endpoint, rows) for endpoint, rows in buffered.items() if rows)


def replay(
    server: Server,
    tables: Tables,
    month: int,
    rate: float,
    on_request: Callable[[int, Freshness], None],
    stop: threading.Event,
) -> Freshness:
    """Post a month, `rate` rows a second at the most; measure freshness on the way.

    Args:
        on_request: called after each request with the rows sent so far.
        stop: set when the measuring should end with the replay.
    """
    fresh, sent, begun = Freshness(), 0, time.monotonic()
    watcher = FreshnessWatch(server, fresh)
    for number, (endpoint, rows) in enumerate(requests(tables, month)):
        time.sleep(max(0.0, begun + sent / rate - time.monotonic()))
        server.post(endpoint, rows, f"{month}-{number}")
        sent += len(rows)
        if endpoint == "flights":
            watcher.watch(rows)
        on_request(sent, fresh)
    stop.set()
    watcher.end()
    return fresh


class FreshnessWatch:
    """Watches for one posted departure at a time until it is served."""

    def __init__(self, server: Server, fresh: Freshness) -> None:
        self._server, self._fresh = server, fresh
        self._watched: tuple[str, int, float] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, rows: list[dict[str, object]]) -> None:
        """Watch for the last departure of a request, unless one is being watched."""
        left = [row for row in rows if row["dep_time"] is not None]
        if self._watched is None and left:
            self._watched = (str(left[-1]["tailnum"]), int(str(left[-1]["flight"])), time.monotonic())

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._watched is not None and self._is_served(*self._watched[:2]):
                self._fresh.seconds.append(time.monotonic() - self._watched[2])
                self._watched = None
            elif self._watched is not None and time.monotonic() - self._watched[2] > 20:
                self._watched = None
            time.sleep(0.01)

    def _is_served(self, tailnum: str, flight: int) -> bool:
        body = {"keys": [{"tailnum": tailnum}], "as_of": "2014-02-01T00:00:00Z", "fields": ["flight"]}
        found = self._server.ask("/api/v1/dataset/LastDeparture/lookup", body)
        return bool(found["found"][0] and found["data"]["flight"][0] == flight)


def _of_month(table: pl.DataFrame, month: int) -> pl.DataFrame:
    hour = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    known = hour
    if "dep_delay" in table.columns:
        known = hour + pl.duration(minutes=pl.col("minute") + pl.col("dep_delay").fill_null(0))
    return table.filter(pl.col("month") == month).with_columns(known.alias("_known"))
