"""A deployment of a test: rows go in as they do in production, and answers are read from its state and logs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import polars as pl

from umbel.api.commit import check_commit
from umbel.changes.versions import consolidate
from umbel.client.plain import plain
from umbel.log.ingest import IngestLogs
from umbel.query.columns import keys_of
from umbel.query.lookups import Lookups
from umbel.runtime.commit import commit
from umbel.runtime.deployment import BUDGET, Deployment
from umbel.runtime.history import replayed
from umbel.types.schema import WEIGHT

PATIENCE = 600.0
"""Seconds a condition may take to come true on a busy machine."""


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each look at something that others work on: they need the processors too."""
    pause = 0.02
    while True:
        yield pause
        pause = min(pause * 1.3, 0.25)


def wait_until(condition: Callable[[], Any], what: Callable[[], Any] = str, within: float = PATIENCE) -> None:
    """Wait until a condition is true.

    Args:
        condition: polled.
        what: describes how things are, when time is up.
        within: seconds.
    """
    deadline, pausing = time.monotonic() + within, pauses()
    while not condition():
        assert time.monotonic() < deadline, f"nothing came of it within {within} s: {what()}"
        time.sleep(next(pausing))


class Deployed:
    """A deployment.

    Args:
        folder: of the deployment.
        shards: of its state.
        budget: bytes of input per batch.
        settings: further ones.
    """

    def __init__(self, folder: Path, shards: int = 2, budget: int = BUDGET, **settings: Any) -> None:
        self.deployment = Deployment.at(folder, shards=shards, budget=budget, **settings)
        self._logs = IngestLogs(folder)

    def commit(self, datasets: Sequence[Any]) -> None:
        """Put datasets into force."""
        commit(self.deployment, check_commit(datasets, ()))

    def log(self, endpoint: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log rows to an endpoint of the webhook `web`."""
        self.log_bytes(endpoint, orjson.dumps([plain(dict(row)) for row in rows]), len(rows))

    def log_bytes(self, endpoint: str, payload: bytes, rows: int) -> None:
        """Log a payload to an endpoint of the webhook `web`."""
        self._logs.log("web", endpoint).append_blocking(payload, rows)

    def taken(self) -> dict[str, int]:
        """Return how many rows of each dataset are done with: taken, refused or too late."""
        done = Counter[str]()
        for (dataset, name), count in self.deployment.catalog.counts().items():
            if name in ("rows", "dead", "late"):
                done[dataset] += count
        return dict(done)

    def lookup(self, dataset: str, keys: Sequence[Mapping[str, Any]], at: Sequence[datetime]) -> list[Any]:
        """Return the row of each key as of each instant; None where it is not found."""
        frame, found = self.lookup_frame(dataset, keys, at)
        return [row if there else None for row, there in zip(frame.to_dicts(), found, strict=True)]

    def lookup_frame(
        self, dataset: str, keys: Sequence[Mapping[str, Any]], at: Sequence[datetime]
    ) -> tuple[pl.DataFrame, list[bool]]:
        """Return the same as a frame, with whether each was found."""
        place = self.deployment
        graph = place.graph(place.catalog.revision())
        lookups = Lookups(graph, place.store, partial(replayed, place))
        instants = pl.Series([each.astimezone(UTC) for each in at], dtype=pl.Datetime("us", "UTC"))
        schema = graph.outputs[dataset].operator.schema
        requested = keys_of(pd.DataFrame(list(keys)), dict(schema.keys), f"lookup on {dataset}")
        frame, found = lookups.online(dataset, requested, instants)
        return frame, found.to_list()

    def changes(self, dataset: str) -> pl.DataFrame:
        """Return the change log of a dataset, without what cancels out, in an order of its own."""
        place = self.deployment
        read = place.changes.read(place.graph(place.catalog.revision()).outputs[dataset])
        net = consolidate(read)
        return net.sort([name for name in net.columns if name != WEIGHT])

    def flush_logs(self) -> None:
        """Move all tails of change logs into their tables."""
        place = self.deployment
        for node in place.graph(place.catalog.latest()).nodes:
            if node.is_logged:
                place.changes.flush(node, everything=True)

    def close(self) -> None:
        """Release files."""
        self._logs.close()
        self.deployment.store.close()
        self.deployment.catalog.close()


@contextmanager
def live(
    deployed: Deployed, spark: Any, small: int | None, counted: list[Any] | None = None
) -> Iterator[Callable[..., None]]:
    """Run the live job for a `with` block; yields what waits until so many rows of each dataset are done with.

    Args:
        deployed: where.
        spark: the session.
        small: batches up to so many bytes are run by the driver; as many as in production when None.
        counted: gets the counts of each batch.
    """
    from umbel.spark.job import LiveJob

    job = LiveJob(
        deployed.deployment,
        spark,
        small=small,
        on_batch=lambda _, counts: counted.append(counts) if counted is not None else None,
    )
    query = job.start()

    def caught_up(expected: Mapping[str, int]) -> None:
        def is_done() -> bool:
            assert query.isActive, str(query.exception())
            done = deployed.taken()
            return all(done.get(name, 0) >= count for name, count in expected.items())

        wait_until(is_done, lambda: (deployed.taken(), dict(expected)))

    try:
        yield caught_up
    finally:
        query.stop()
        job.close()
