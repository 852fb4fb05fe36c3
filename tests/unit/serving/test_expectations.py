"""Expectations are judged where rows are processed, and reported over HTTP, as metrics and by the command line."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.unit.serving.conftest import Served
from umbel.api.commit import check_commit
from umbel.cli.main import app
from umbel.client import Client
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, pipeline
from umbel.dtypes import Tumbling
from umbel.lib import (
    expect_column_values_to_be_between,
    expect_column_values_to_match_regex,
    expect_column_values_to_not_be_null,
    expectations,
    inputs,
    secrets,
)
from umbel.runtime.commit import commit

__owner__ = "tests@example.com"
webhook = Webhook(name="events")


@source(webhook.endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: str
    age: Optional[int]
    at: datetime

    @expectations(version=3)
    def plausible(cls):
        return [
            expect_column_values_to_be_between(column=str(cls.age), min_value=0, max_value=120, mostly=0.6),
            expect_column_values_to_not_be_null(column="age", mostly=0.9),
            expect_column_values_to_match_regex(column="age", regex="a"),
        ]


@dataset(index=True)
class Visits:
    user: str = field(key=True)
    n: int
    at: datetime

    @pipeline
    @inputs(Visit)
    def count(cls, visits: Dataset):
        return visits.groupby("user").aggregate(n=Count(window=Tumbling("1h")))

    @expectations
    def rare(cls):
        return [expect_column_values_to_be_between(column="n", max_value=1)]


ROWS = [
    {"user": "a", "age": 10, "at": "2024-01-01T00:10:00Z"},
    {"user": "a", "age": 300, "at": "2024-01-01T00:20:00Z"},
    {"user": "b", "age": None, "at": "2024-01-01T00:30:00Z"},
    {"user": "b", "age": 20, "at": "2024-01-01T03:00:00Z"},
]


def test_expectations_are_reported(fresh: Served) -> None:
    client = Client("http://umbel", transport=fresh.transport)
    client.commit("expected", datasets=[Visit, Visits])
    fresh.log("visits", ROWS[:2])
    fresh.process()
    fresh.log("visits", ROWS[2:])
    fresh.process()
    report = fresh.http.get("/api/v1/dataset/Visit/expectations").json()
    assert [(each["rows"], each["failed"], each["unjudged"], each["holds"]) for each in report] == [
        (3, 1, 0, True), (4, 1, 0, False), (0, 0, 4, True),
    ]  # fmt: skip
    assert report[0]["expectation"] == "expect_column_values_to_be_between"
    assert report[0]["arguments"]["max_value"] == 120
    assert (report[0]["version"], report[0]["mostly"], round(report[0]["share"], 3)) == (3, 0.6, 0.667)
    (rare,) = fresh.http.get("/api/v1/dataset/Visits/expectations").json()
    assert rare["failed"] == 1
    assert rare["holds"] is False
    lines = fresh.http.get("/api/v1/metrics").text.splitlines()
    named = 'branch="main",columns="age",dataset="Visit",expectation="expect_column_values_to_be_between",number="0"'
    assert f'umbel_expectation_rows{{{named},outcome="failed",version="3"}} 1.0' in lines
    assert f'umbel_expectation_holds{{{named},version="3"}} 1.0' in lines
    assert not [line for line in lines if "expect:" in line]
    assert fresh.http.get("/api/v1/dataset/Nothing/expectations").status_code == 404
    shown = CliRunner().invoke(app, ["expectations", "Visit", "--dir", str(fresh.deployment.directory)]).output
    assert "expect_column_values_to_not_be_null" in shown
    assert "0.7500" in shown
    assert " unjudged " in shown.splitlines()[0]
    assert shown.splitlines()[3].split()[-6:] == ["0", "0", "4", "1.0000", "1", "yes"]


@pytest.mark.parametrize("mostly", ["0.9x", 1.5, True, float("nan"), [0.5]])
def test_a_share_that_is_none_harms_nothing(fresh: Served, mostly: Any) -> None:
    """Versions before committed it: metrics were a 500, and no row was judged. All rows must pass."""
    made = check_commit([Visit], ())
    expected = made.datasets["Visit"].expectations
    first, *others = expected.expected
    wrong = replace(first, arguments={**first.arguments, "mostly": mostly})
    changed = replace(made.datasets["Visit"], expectations=replace(expected, expected=(wrong, *others)))
    commit(fresh.deployment, replace(made, datasets={"Visit": changed}))
    fresh.log("visits", ROWS)
    fresh.process()
    report = fresh.http.get("/api/v1/dataset/Visit/expectations").json()
    assert [(each["mostly"], each["rows"], each["failed"]) for each in report[:2]] == [(1.0, 3, 1), (0.9, 4, 1)]
    metrics = fresh.http.get("/api/v1/metrics")
    assert (metrics.status_code, "umbel_expectation_rows{" in metrics.text) == (200, True)


@dataset(index=True)
class Marked:
    user: str = field(key=True)
    mark: str
    at: datetime

    @pipeline
    @inputs(Visit)
    def marking(cls, visits: Dataset):
        marked = visits.assign("mark", str, lambda df: df["user"] + secrets.get("mark")).drop("age")
        return marked.groupby("user").latest()


def test_pipelines_read_secrets_of_the_server(fresh: Served) -> None:
    client = Client("http://umbel", transport=fresh.transport)
    client.add_secret("mark", "!")
    client.commit("marked", datasets=[Visit, Marked])
    fresh.log("visits", ROWS[:1])
    fresh.process()
    assert client.lookup("Marked", pd.DataFrame({"user": ["a"]}))[0]["mark"].tolist() == ["a!"]
