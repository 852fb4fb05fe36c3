"""State is flushed into runs by a worker that has begun anew, whichever datasets get rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.state.tables import State
from umbel.windowing.tiles import TABLE

__owner__ = "test@umbel.dev"

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
FLUSHED = 4096
"""Bytes in memory from which on they are flushed."""
USERS, BATCHES = 50, 10


@source(Webhook(name="web").endpoint("quiet"), disorder="1d", cdc="append")
@dataset
class Quiet:
    user: int
    at: datetime


@source(Webhook(name="web").endpoint("busy"), disorder="1d", cdc="append")
@dataset
class Busy:
    user: int
    at: datetime


def counted(name: str, rows_of: Any) -> Any:
    @pipeline
    @inputs(rows_of)
    def made(cls: Any, rows: Any) -> Any:
        return rows.groupby("user").aggregate(visits=Count(window=Continuous("forever")))

    annotations = {"user": int, "visits": int, "at": datetime}
    members = {"__module__": __name__, "__annotations__": annotations, "user": field(key=True), "made": made}
    return index(dataset(type(name, (), members)))


DATASETS = [Quiet, Busy, counted("QuietVisits", Quiet), counted("BusyVisits", Busy)]


class Worker:
    """A worker whose state is flushed soon."""

    def __init__(self, folder: Path) -> None:
        self.deployed = Deployed(folder / "d", shards=1, store_url=f"file://{folder / 'state'}?flush_bytes={FLUSHED}")

    def process(self, endpoint: str) -> None:
        """Process a batch with a row of each user."""
        self.deployed.log(endpoint, [{"user": user, "at": NOON} for user in range(USERS)])
        drain(self.deployed.deployment)

    def visits(self, name: str) -> set[int]:
        """Return the values of all users."""
        found = self.deployed.lookup(name, [{"user": user} for user in range(USERS)], [NOON] * USERS)
        return {row["visits"] for row in found}


@pytest.fixture
def begun_anew(tmp_path: Path) -> Worker:
    """Return a worker after another one has processed a batch of each source, less than is flushed."""
    first = Worker(tmp_path)
    first.deployed.commit(DATASETS)
    for endpoint in ("quiet", "busy"):
        first.process(endpoint)
    first.deployed.close()
    return Worker(tmp_path)


def test_rows_are_flushed_beside_those_of_a_quiet_source(begun_anew: Worker) -> None:
    for _ in range(BATCHES):
        begun_anew.process("busy")
    begun_anew.deployed.deployment.store.close()  # after its maintenance
    (size,) = begun_anew.deployed.deployment.store.sizes()
    assert size.files.written.flushes
    assert size.files.memory < FLUSHED
    assert begun_anew.visits("QuietVisits") == {1}
    assert begun_anew.visits("BusyVisits") == {BATCHES + 1}


def test_state_of_another_version_stops_no_other_dataset(begun_anew: Worker) -> None:
    place = begun_anew.deployed.deployment
    quiet = place.graph(place.catalog.revision()).outputs["QuietVisits"]
    with place.store.snapshot(0) as reader:
        State(reader, quiet.state_id).table(TABLE, {"visits": pl.Int64()})
    begun_anew.process("busy")
    assert begun_anew.visits("BusyVisits") == {2}
