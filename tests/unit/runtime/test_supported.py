"""What a server would have to ignore is refused when it is committed; the mock client, which tests, takes it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from umbel.api.commit import check_commit
from umbel.api.sink import sink
from umbel.connectors import Kafka, Webhook, WebhookConnector, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Continuous, Tumbling
from umbel.errors import NotSupported
from umbel.lib import inputs
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.testing import MockClient

__owner__ = "tests@example.com"
BROKER = Kafka(
    name="broker",
    bootstrap_servers="localhost:9092",
    security_protocol="PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_username="user",
    sasl_plain_password="password",
)


def events(**options: str) -> Dataset:
    @source(Webhook(name="web").endpoint("events"), disorder="1d", cdc="append")
    @dataset(**options)
    class Event:
        user: int
        at: datetime

    return Event


def counts(event: Dataset, env: str | None = None) -> Dataset:
    @sink(BROKER.topic("counts"), cdc="debezium", env=env)
    @dataset
    class Counts:
        user: int = field(key=True)
        count: int
        at: datetime

        @pipeline
        @inputs(event)
        def counted(cls, rows: Dataset) -> Dataset:
            return rows.groupby("user").aggregate(count=Count(window=Continuous("1h")))

    return Counts


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    return Deployment.at(tmp_path, shards=1)


def large(event: Dataset, to: Any, **how: Any) -> Dataset:
    @sink(to, **{"cdc": "debezium", **how})
    @dataset
    class Large:
        user: int
        at: datetime

        @pipeline
        @inputs(event)
        def chosen(cls, rows: Dataset) -> Dataset:
            return rows.filter(lambda df: df["user"] > 10)

    return Large


class Unwritable(WebhookConnector):
    """A connector that a sink can be declared with, and without a writer."""

    def check_sink(self, delivery: Any) -> None:
        """Accept anything."""


def unwritable() -> Unwritable:
    return Unwritable(source=Webhook(name="web"), endpoint="changes")


def test_a_sink_that_can_be_written_to_is_committed(place: Deployment) -> None:
    event = events()
    assert commit(place, check_commit([event, large(event, BROKER.topic("large"))], ()))["revision"] == 1


def test_a_sink_of_another_kind_is_refused(place: Deployment) -> None:
    event = events()
    expected = (
        r"dataset 'Large' has a sink: a server does not write to sinks of kind 'webhook' yet.*test_supported\.py:\d+"
    )
    with pytest.raises(NotSupported, match=expected):
        commit(place, check_commit([event, large(event, unwritable(), cdc=None, how="incremental")], ()))


@pytest.mark.parametrize("preview", [False, True])
def test_a_sink_of_values_of_the_query_instant_is_refused(place: Deployment, preview: bool) -> None:
    event = events()
    datasets = [event, counts(event)]
    with pytest.raises(
        NotSupported, match=r"dataset 'Counts' has a sink, but no changes to send.*test_supported\.py:\d+"
    ) as report:
        commit(place, check_commit(datasets, ()), preview=preview)
    assert report.value.code == "not-supported"
    assert place.catalog.latest() == 0
    assert MockClient().commit("m", datasets=datasets).ok


def test_a_sink_for_another_environment_is_no_hindrance(place: Deployment) -> None:
    event = events()
    assert commit(place, check_commit([event, counts(event, env="prod")], (), "dev"))["revision"] == 1


def test_all_errors_are_reported_at_once(place: Deployment) -> None:
    event = events()
    datasets = [event, large(event, unwritable(), cdc=None, how="incremental"), counts(event)]
    with pytest.raises(NotSupported, match=r"(?s)2 options.*'Large' has a sink.*'Counts' has a sink"):
        commit(place, check_commit(datasets, ()))


def test_results_that_would_never_be_final_are_refused(place: Deployment) -> None:
    """Rows without keys that a change stream may delete at any time; a worker would emit nothing, and say nothing."""

    @source(Webhook(name="web").endpoint("moves"), disorder="1d", cdc="debezium")
    @dataset
    class Move:
        user: int
        at: datetime

    @dataset(index=True)
    class PerDay:
        user: int = field(key=True)
        count: int
        at: datetime

        @pipeline
        @inputs(Move)
        def counted(cls, rows: Dataset) -> Dataset:
            known = rows.filter(lambda df: df["user"] > 0)
            return known.groupby("user").aggregate(count=Count(window=Tumbling("1d")), emit="final")

    with pytest.raises(NotSupported, match=r"'PerDay.counted'.* never have a result: dataset 'Move' may retract rows"):
        commit(place, check_commit([Move, PerDay], ()))
    assert MockClient().commit("m", [Move, PerDay]).status_code == 200
