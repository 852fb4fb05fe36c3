"""Settings that are fixed when a deployment is made: shards, accuracy, exact instants."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from umbel.api.commit import check_commit
from umbel.catalog.catalog import Catalog
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Tumbling
from umbel.errors import InvalidValue
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.windowing.tiling import Tiling

__owner__ = "tests@example.com"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@source(Webhook(name="web").endpoint("events"), disorder="1d", cdc="append")
@dataset
class Event:
    user: int
    at: datetime


@index
@dataset
class Counts:
    user: int = field(key=True)
    count: int
    at: datetime

    @pipeline
    @inputs(Event)
    def counted(cls, rows: Dataset) -> Dataset:
        return rows.groupby("user").aggregate(count=Count(window=Continuous("1000s")))


@index
@dataset
class Buckets:
    user: int = field(key=True)
    count: int
    at: datetime

    @pipeline
    @inputs(Event)
    def counted(cls, rows: Dataset) -> Dataset:
        return rows.groupby("user").aggregate(count=Count(window=Tumbling("1000s")))


SETTINGS: dict[str, Any] = {"shards": 3, "accuracy": 0.2, "exact_instants": 2}


def test_they_are_stored_and_handed_on(tmp_path: Path) -> None:
    made = Deployment.at(tmp_path, **SETTINGS)
    assert (made.shards, made.tiling) == (3, Tiling(0.2, 2))
    assert Deployment.at(tmp_path) == made
    assert Deployment.at(tmp_path, **SETTINGS) == made
    assert Deployment.decode(made.encode()) == made
    assert json.loads(made.encode())[-2:] == [0.2, 2]


@pytest.mark.parametrize(("option", "other"), [("shards", 4), ("accuracy", 0.1), ("exact_instants", 8)])
def test_another_value_is_refused(option: str, other: float, tmp_path: Path) -> None:
    Deployment.at(tmp_path, **SETTINGS)
    report = rf"--{option.replace('_', '-')} {other}: the deployment in .* was made with {SETTINGS[option]}"
    with pytest.raises(InvalidValue, match=report):
        Deployment.at(tmp_path, **{option: other})
    assert Deployment.at(tmp_path).tiling == Tiling(0.2, 2)


@pytest.mark.parametrize(
    "wrong", [{"accuracy": 0.0}, {"accuracy": 1.0}, {"accuracy": float("nan")}, {"exact_instants": 0}]
)
def test_a_value_that_is_none_is_not_stored(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"accuracy must|exact must"):
        Deployment.at(tmp_path, **wrong)
    assert Deployment.at(tmp_path).tiling == Tiling()


def test_a_deployment_of_before_keeps_the_default(tmp_path: Path) -> None:
    """Its state was made with it, though nothing says so."""
    older = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    older.setting("shards", 4)
    older.commit("main", "", b"")
    with pytest.raises(InvalidValue, match=r"--accuracy 0.5: .* was made with 0.01"):
        Deployment.at(tmp_path, accuracy=0.5)
    assert Deployment.at(tmp_path).tiling == Tiling()


OFF = {"default": ({}, [10, 7, 4]), "coarse": ({"accuracy": 0.2}, [10, 10, 0])}
OFF["coarse, yet exact"] = ({"accuracy": 0.2, "exact_instants": 10}, [10, 7, 4])


@pytest.mark.parametrize("name", OFF)
def test_accuracy_is_how_far_busy_keys_are_off(name: str, tmp_path: Path) -> None:
    """Ten instants within 90 s are apart on a grid of 10 s, and one entry in the middle of them on one of 200 s."""
    settings, expected = OFF[name]
    place = Deployed(tmp_path, **settings)
    place.commit([Event, Counts, Buckets])
    place.log("events", [{"user": 1, "at": NOON + timedelta(seconds=10 * n)} for n in range(10)])
    drain(place.deployment)
    requested = [NOON + timedelta(seconds=seconds) for seconds in (100, 1_030, 1_060)]
    rows = place.lookup("Counts", [{"user": 1}] * len(requested), requested)
    assert [row["count"] for row in rows] == expected
    place.close()


def test_the_grid_is_part_of_the_identity_of_the_state(tmp_path: Path) -> None:
    """State of one grid is never read as that of another; what has no tiles is the same on all."""
    nodes = []
    for number, settings in enumerate(({}, {"accuracy": 0.2}, {"exact_instants": 2})):
        place = Deployment.at(tmp_path / str(number), **settings)
        assert commit(place, check_commit([Event, Counts, Buckets], ()))["revision"] == 1
        assert commit(place, check_commit([Event, Counts, Buckets], ()))["changed"] == []
        assert place.branch("main").datasets["Counts"].output.tiling == Tiling()  # type: ignore[union-attr]
        nodes.append({name: node.state_id for name, node in place.graph(1).outputs.items()})
    assert len({each["Counts"] for each in nodes}) == 3
    assert len({each["Buckets"] for each in nodes}) == len({each["Event"] for each in nodes}) == 1
