"""The feature log: written, sampled, dropped where there is no room, read by the client, counted in metrics."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

from tests.unit.serving.conftest import DEPARTURES, NOON, Served
from tests.unit.serving.flights import DATASETS, FEATURESETS, Origin
from umbel.api.commit import check_commit
from umbel.client import Client
from umbel.errors import NotSupported
from umbel.expr import now
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.runtime.commit import commit
from umbel.serving import feature_log
from umbel.serving.coalesce import SMALL
from umbel.testing import MockClient
from umbel.types.json_values import UNTYPED_NAN as NAN

__owner__ = "tests@example.com"
LATER = "2013-12-01T16:00:00Z"
LOG = "/api/v1/feature_log"


@featureset
class Clock:
    origin: str
    micros: int = F(now().dt.since_epoch("microsecond"))


@pytest.fixture
def served(fresh: Served) -> Served:
    fresh.log("departures", DEPARTURES)
    fresh.process()
    return fresh


def ask(served: Served, origins: list[Any], **extra: Any) -> dict[str, Any]:
    data = {"Origin.origin": origins}
    query = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.departures", "Origin.is_late"],
        "data": data,
        "as_of": LATER,
    }
    answer = served.post("/api/v1/query", query | {"log": True} | extra)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def lines(served: Served, **params: str) -> list[dict[str, Any]]:
    answer = served.http.get(LOG, params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def figures(served: Served, name: str) -> dict[str, float]:
    """Return the figures of a metric, by the text of their labels."""
    text = served.http.get("/api/v1/metrics").text
    return {labels: float(value) for labels, value in re.findall(rf"^{name}\{{(.*)\}} (.*)$", text, re.MULTILINE)}


def test_inputs_and_answers_are_logged(served: Served) -> None:
    ask(served, ["JFK", "EWR"], workflow="fraud")
    ask(served, ["LGA"], log=False)
    report = {"timestamp": "2013-12-01T16:00:00.000000Z", "workflow": "fraud"}
    assert lines(served) == [
        {**report, "Origin.origin": "JFK", "Origin.departures": 2, "Origin.is_late": True},
        {**report, "Origin.origin": "EWR", "Origin.departures": 0, "Origin.is_late": False},
    ]
    assert lines(served, workflow="default") == []
    assert len(lines(served, workflow="fraud", since=LATER)) == 2
    assert lines(served, until=LATER) == []


def test_inputs_are_logged_as_they_were_read(served: Served) -> None:
    inputs = ["Origin.average", "Origin.departures", "Origin.origin"]
    rows = [
        {"Origin.average": NAN, "Origin.departures": "7", "Origin.origin": 1},
        {"Origin.average": 20, "Origin.departures": 8.0, "Origin.origin": "JFK"},
    ]
    for repeated in (1, SMALL):
        query = {"inputs": inputs, "outputs": ["Origin.is_late"], "data": rows * repeated, "log": True}
        assert served.post("/api/v1/query", query | {"workflow": str(repeated)}).status_code == 200
        logged = [[json.dumps(each[name]) for name in inputs] for each in lines(served, workflow=str(repeated))]
        assert logged == [['"NaN"', "7", '"1"'], ["20.0", "8", '"JFK"']] * repeated


def test_the_present_is_the_instant_of_queries_about_now(served: Served) -> None:
    before = pd.Timestamp.now("UTC")
    ask(served, ["JFK"], as_of=None)
    (retained,) = lines(served)
    assert before <= pd.Timestamp(retained["timestamp"]) <= pd.Timestamp.now("UTC")


def test_the_logged_instant_is_the_one_that_the_answer_is_as_of(served: Served) -> None:
    commit(served.deployment, check_commit(DATASETS, [*FEATURESETS, Clock]))
    for rows in (1, 300):  # the second query is answered in a thread
        data = {"Clock.origin": ["JFK"] * rows}
        query = {
            "inputs": ["Clock.origin"],
            "outputs": ["Clock.micros"],
            "data": data,
            "log": True,
            "workflow": str(rows),
        }
        answer = served.post("/api/v1/query", query)
        assert answer.status_code == 200, answer.text
        retained = lines(served, workflow=str(rows))
        assert len(retained) == rows
        assert {pd.Timestamp(each["timestamp"]).value // 1000 for each in retained} == {
            each["Clock.micros"] for each in retained
        }


def test_a_share_of_the_rows_is_logged(served: Served) -> None:
    ask(served, ["JFK"] * 200, sampling_rate=0, workflow="none")
    ask(served, ["JFK"] * 200, sampling_rate=1, workflow="all")
    ask(served, ["JFK"] * 4000, sampling_rate=0.25, workflow="some")
    assert len(lines(served, workflow="none")) == 0
    assert len(lines(served, workflow="all")) == 200
    assert 800 < len(lines(served, workflow="some")) < 1200  # seven standard deviations


def test_every_query_of_many_at_once_is_logged(served: Served) -> None:
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: ask(served, ["JFK"] * (n % 5), workflow=f"w{n % 3}"), range(120)))
    assert len(lines(served)) == sum(n % 5 for n in range(120))
    assert sum(figures(served, "umbel_feature_log_rows_total").values()) == sum(n % 5 for n in range(120))


def test_what_does_not_fit_is_dropped_and_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_log, "MOST_BYTES", 100)
    assert ask(served, ["JFK"] * 50)["Origin.departures"] == [2] * 50
    ask(served, ["JFK"])
    assert len(lines(served)) == 1
    rows = figures(served, "umbel_feature_log_rows_total")
    assert rows == {'outcome="dropped",workflow="default"': 50.0, 'outcome="kept",workflow="default"': 1.0}


def test_what_waits_is_measured_with_its_inputs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_log, "MOST_BYTES", 10_000)
    ask(served, ["J" * 20_000])
    assert figures(served, "umbel_feature_log_rows_total") == {'outcome="dropped",workflow="default"': 1.0}


def test_rows_that_cannot_be_written_do_not_keep_others_from_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(feature_log, "spelled", None)
        ask(served, ["LGA"])
        assert lines(served) == []
    ask(served, ["JFK"])
    assert [each["Origin.origin"] for each in lines(served)] == ["JFK"]


def test_names_of_workflows_lead_nowhere_else(served: Served) -> None:
    names = ["../" * 42, "/" * 128, "\U0001f600" * 128]
    for name in names:
        ask(served, ["JFK"], workflow=name)
    assert [len(lines(served, workflow=name)) for name in names] == [1, 1, 1]
    assert all(path.is_dir() for path in (served.deployment.directory / "features" / "main").iterdir())
    assert len(list((served.deployment.directory / "features" / "main").iterdir())) == 3


def test_branches_have_logs_of_their_own(served: Served) -> None:
    served.post("/api/v1/init", {"branch": "b", "clone_from": "main"})
    header = {"X-UMBEL-BRANCH": "b"}
    query = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.departures"],
        "data": {"Origin.origin": ["JFK"]},
        "log": True,
    }
    assert served.post("/api/v1/query", query, headers=header).status_code == 200
    assert lines(served) == []
    assert len(served.http.get(LOG, headers=header).text.splitlines()) == 1
    assert served.http.get(LOG, headers={"X-UMBEL-BRANCH": "none"}).status_code == 404


@pytest.mark.parametrize("params", [{"since": "yesterday"}, {"until": "x"}, {"workflow": ""}])
def test_questions_that_make_no_sense(served: Served, params: dict[str, str]) -> None:
    assert served.http.get(LOG, params=params).status_code == 400


def test_the_client_reads_it_as_a_frame(served: Served) -> None:
    client = Client("http://umbel", transport=served.transport)
    requested = pd.DataFrame({"Origin.origin": ["JFK", "EWR"]})
    answer = client.query([Origin.origin], [Origin.departures, Origin.average], requested, log=True, workflow="one")
    client.query([Origin.origin], [Origin.is_late], requested.head(1), log=True, workflow="two")
    client.query([Origin.origin], [Origin.is_late], requested)
    one = client.feature_log("one")
    assert list(one) == ["timestamp", "workflow", "Origin.origin", "Origin.departures", "Origin.average"]
    pd.testing.assert_frame_equal(one[list(answer)], answer)
    both = client.feature_log(since=NOON)
    assert both["workflow"].tolist() == ["one", "one", "two"]
    assert both["timestamp"].is_monotonic_increasing
    assert both["Origin.is_late"].tolist()[:2] == [pd.NA, pd.NA]
    assert (str(both.dtypes["timestamp"]), str(both.dtypes["Origin.departures"])) == ("datetime64[ns, UTC]", "Int64")
    assert client.feature_log("none").empty
    with pytest.raises(NotSupported):
        MockClient().feature_log()


def test_features_errors_and_latency_are_reported_by_workflow(served: Served) -> None:
    ask(served, ["JFK"] * 3, workflow="fraud", log=False)
    ask(served, ["JFK"] * 4, log=False)
    query = {"inputs": ["Origin.origin"], "outputs": ["Orgin"], "data": {"Origin.origin": []}, "workflow": "fraud"}
    served.post("/api/v1/query", query)
    expected = {
        f'feature="{feature}",featureset="Origin",workflow="{workflow}"': count
        for feature in ("departures", "is_late")
        for workflow, count in (("fraud", 3.0), ("default", 4.0))
    }
    assert figures(served, "umbel_features_total") == expected
    assert figures(served, "umbel_features_total") == expected
    assert figures(served, "umbel_query_errors_total") == {'code="unknown-name",workflow="fraud"': 1.0}
    assert figures(served, "umbel_query_seconds_count") == {'workflow="fraud"': 1.0, 'workflow="default"': 1.0}


def test_figures_do_not_grow_with_names(served: Served) -> None:
    for number in range(110):
        ask(served, ["JFK"], workflow=f"w{number}", log=False)
    counts = figures(served, "umbel_query_seconds_count")
    assert (len(counts), counts['workflow="(other)"']) == (101, 10.0)
