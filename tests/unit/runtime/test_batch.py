"""Batches run in this process, and how far they are behind."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from tests.unit.serving.conftest import DEPARTURES
from tests.unit.serving.flights import DATASETS, Departure
from umbel.api.commit import check_commit
from umbel.errors import InvalidValue, NotSupported
from umbel.log.ingest import IngestLog
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.runtime.freshness import behind


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    deployment = Deployment.at(tmp_path, shards=2)
    commit(deployment, check_commit(DATASETS, []))
    return deployment


def send(place: Deployment, rows: list[dict[str, object]], seconds_ago: float = 0.0) -> None:
    log = IngestLog(place.directory, "events", "departures")
    received = int((time.time() - seconds_ago) * 1e6)
    log.append_blocking(orjson.dumps(rows), len(rows), received_at=received)
    log.close()


def test_what_is_there_is_processed_once(place: Deployment) -> None:
    assert drain(place) == 1  # the commit itself is worth a batch
    send(place, DEPARTURES)
    assert drain(place) == 1
    assert drain(place) == 0
    send(place, DEPARTURES)
    assert drain(place) == 1
    assert place.catalog.counts() == {("Departure", "rows"): 6}


def test_behind_is_the_age_of_the_oldest_event_not_processed(place: Deployment) -> None:
    assert behind(place) == 0.0
    send(place, DEPARTURES, seconds_ago=100)
    send(place, DEPARTURES, seconds_ago=50)
    assert 100 <= behind(place) < 110
    drain(place)
    assert behind(place) == 0.0
    send(place, DEPARTURES, seconds_ago=30)
    assert 30 <= behind(place) < 40


def test_a_pipeline_that_needs_history_is_left_to_spark(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path, shards=1)
    commit(place, check_commit([Departure], []))
    send(place, DEPARTURES)
    drain(place)
    definitions = check_commit(DATASETS, [])
    with pytest.raises(InvalidValue, match=r"\['DelayOfOrigin'\] would have to be computed from history"):
        commit(place, definitions, backfill=False)
    told = commit(place, definitions, preview=True)
    assert (told["revision"], told["recomputed"], told["new"]) == (None, ["DelayOfOrigin"], ["DelayOfOrigin", "Plane"])
    assert commit(place, definitions)["revision"] == 2
    with pytest.raises(NotSupported, match="computed from history"):
        drain(place)


def test_a_commit_without_a_change_is_none(place: Deployment) -> None:
    told = commit(place, check_commit(DATASETS, []))
    assert (told["revision"], told["unchanged"]) == (1, ["DelayOfOrigin", "Departure", "Plane"])
    told = commit(place, check_commit([Departure], []))
    assert (told["revision"], told["removed"]) == (2, ["DelayOfOrigin", "Plane"])


def test_a_removed_pipeline_leaves_no_state_that_could_come_back(place: Deployment) -> None:
    send(place, DEPARTURES)
    drain(place)
    before = place.graph(place.catalog.revision())
    owner = before.outputs["DelayOfOrigin"].owner
    assert any(owner in place.store.owners(shard) for shard in range(place.shards))
    commit(place, check_commit([Departure], []))
    assert drain(place) == 1
    assert not any(owner in place.store.owners(shard) for shard in range(place.shards))
    assert owner not in place.catalog.backfilled()
    assert before.outputs["Plane"].owner in place.catalog.backfilled()
    assert place.changes.read(before.outputs["Departure"]).height == len(DEPARTURES)
    commit(place, check_commit(DATASETS, []))
    with pytest.raises(NotSupported, match="history"):
        drain(place)
