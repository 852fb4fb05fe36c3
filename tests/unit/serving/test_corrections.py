"""Logged answers beside those of today: what late rows corrected, by how much, and what cannot be compared."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pandas as pd
import pytest

from tests.unit.serving.conftest import DEPARTURES, NOON, Served
from tests.unit.serving.flights import DATASETS, FEATURESETS, Greeting, Origin
from umbel.api.commit import check_commit
from umbel.client import Client, corrections
from umbel.client.corrections import compare
from umbel.client.logged import Logged
from umbel.dtypes import struct
from umbel.errors import InvalidValue, UnknownName
from umbel.runtime.commit import commit
from umbel.types.dtypes import DType, Float, Int, List, Optional, Str
from umbel.types.structs import struct_type

__owner__ = "tests@example.com"
LATER = "2013-12-01T16:00:00Z"
AT = pd.Timestamp(LATER)
INPUTS = [Origin.origin]


@pytest.fixture
def served(fresh: Served) -> Served:
    fresh.log("departures", DEPARTURES)
    fresh.process()
    return fresh


def query(served: Served, *origins: str, as_of: str = LATER, **extra: Any) -> None:
    body = {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": origins}, "log": True}
    answer = served.post("/api/v1/query", body | {"as_of": as_of, "workflow": "fraud"} | extra)
    assert answer.status_code == 200, answer.text


def client_of(served: Served) -> Client:
    return Client("http://umbel", transport=served.transport)


def totals(found: corrections.Corrections) -> dict[str, tuple[int, int]]:
    """Return how many answers of each feature were compared, and how many of them were corrected."""
    features = found.features
    return dict(zip(features["feature"], zip(features["answers"], features["corrected"], strict=True), strict=True))


def test_late_rows_correct_answers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    query(served, "JFK", "EWR")
    query(served, "LGA", "JFK", as_of="2013-12-01T15:10:00Z")
    client = client_of(served)
    before = client.corrections(INPUTS, workflow="fraud")
    assert totals(before) == {f"Origin.{name}": (4, 0) for name in ("departures", "average", "is_late")}
    assert before.answers.empty
    served.log("departures", [{"origin": "JFK", "delay": -25, "ratio": 0.5, "at": "2013-12-01T15:05:00Z"}])
    served.log("departures", [{"origin": "EWR", "delay": 60, "ratio": 0.5, "at": "2013-12-01T15:30:00Z"}])
    served.process()
    for at_once in (3, 10_000):
        monkeypatch.setattr(corrections, "AT_ONCE", at_once)
        found = client.corrections(INPUTS, workflow="fraud")
        assert totals(found) == {
            "Origin.departures": (4, 3),
            "Origin.average": (4, 3),
            "Origin.is_late": (4, 3),
        }
        about = found.answers[["timestamp", "Origin.origin", "feature", "served", "corrected", "change"]]
        departures = about[about["feature"] == "Origin.departures"].drop(columns="feature").to_numpy().tolist()
        assert departures == [
            [pd.Timestamp("2013-12-01T15:10:00Z"), "JFK", 2, 3, 1.0],
            [AT, "JFK", 2, 3, 1.0],
            [AT, "EWR", 0, 1, 1.0],
        ]
        average = about[about["feature"] == "Origin.average"]["change"].tolist()
        assert average == [-15.0, -15.0, 60.0]
        (row,) = found.features[found.features["feature"] == "Origin.average"].to_dict("records")
        assert (row["share"], row["mean_change"], row["largest_change"]) == (0.75, 30.0, 60.0)
        late = found.features.set_index("feature").loc["Origin.is_late"]
        assert math.isnan(late["mean_change"])


def test_what_is_compared_is_chosen(served: Served) -> None:
    query(served, "JFK")
    query(served, "JFK", as_of="2013-12-01T15:10:00Z", workflow="ranking")
    greeting = {"Origin.average": [1.0]}
    query(served, inputs=["Origin.average"], outputs=["Origin.is_late"], data=greeting)
    served.log("departures", [{"origin": "JFK", "delay": 0, "ratio": 0.5, "at": NOON}])
    served.process()
    client = client_of(served)
    found = client.corrections(["Origin.origin"], ["Origin.departures"])
    assert (totals(found), found.skipped) == ({"Origin.departures": (2, 2)}, 1)
    assert found.answers["workflow"].tolist() == ["ranking", "fraud"]
    assert totals(client.corrections(INPUTS, [Origin], since=LATER))["Origin.average"] == (1, 1)
    assert totals(client.corrections(INPUTS, [Origin], until=LATER, workflow="fraud")) == {}
    assert totals(client.corrections(["Origin.average"])) == {"Origin.is_late": (1, 0)}
    with pytest.raises(UnknownName, match=r"no feature 'Origin\.departure'.*did you mean 'Origin\.departures'"):
        client.corrections(INPUTS, ["Origin.departure"])
    with pytest.raises(UnknownName, match="no featureset 'Orogin'"):
        client.corrections(INPUTS, ["Orogin"])
    with pytest.raises(UnknownName, match="no feature"):
        client.corrections(["Origin.name"])


def test_features_that_are_gone_are_reported_without_a_comparison(served: Served) -> None:
    query(served, "JFK")
    without = [Greeting]
    commit(served.deployment, check_commit(DATASETS, without))
    served.process()
    line = {"timestamp": LATER, "workflow": "fraud", "Greeting.name": "a", "Origin.departures": 2}
    logged = Logged(orjson.dumps(line), client_of(served)._transport.feature_log("main", None, None, None).types)
    found = compare(logged, ["Greeting.name"], (), lambda *_: {})
    assert totals(found) == {"Origin.departures": (0, 0)}
    commit(served.deployment, check_commit(DATASETS, FEATURESETS))


def test_numbers_remain_what_they_are_beside_nulls() -> None:
    lines = [{"timestamp": LATER, "workflow": "w", "F.key": key, "F.value": key or None} for key in range(3)]
    logged = Logged(b"\n".join(map(orjson.dumps, lines)), {"F.key": Int(), "F.value": Optional(Int())})
    found = compare(logged, ["F.key"], (), lambda *_: {"F.value": [7, None, 7]}).answers
    values = [(each["served"], each["corrected"]) for each in found.to_dict("records")]
    assert values == [(None, 7), (1, None), (2, 7)]
    assert [type(each) for each, _ in values] == [type(None), int, int]


@struct
class Pair:
    left: float
    right: typing.Optional[int]


VALUES: Sequence[tuple[DType, Any, Any, bool]] = [
    (Float(), 0.1 + 0.2, 0.3, True),
    (Float(), 1.0, 1.0 + 1e-6, False),
    (Float(), "NaN", math.nan, True),
    (Float(), "NaN", 1.0, False),
    (Float(), 0.0, 0.1 + 0.2 - 0.3, True),
    (Optional(Float()), None, None, True),
    (Optional(Float()), None, 0.0, False),
    (Optional(Int()), 0, None, False),
    (Str(), "a", "a", True),
    (Str(), "a", "b", False),
    (List(Float()), ["NaN", 0.1 + 0.2], [math.nan, 0.3], True),
    (List(Float()), [1.0], [1.0, 2.0], False),
    (struct_type(Pair), {"left": 0.3, "right": None}, {"left": 0.1 + 0.2, "right": None}, True),
    (struct_type(Pair), {"left": 0.3, "right": None}, {"left": 0.3, "right": 1}, False),
]


@pytest.mark.parametrize(("dtype", "served", "now", "is_same"), VALUES)
def test_equal_values_are_no_corrections(dtype: DType, served: Any, now: Any, is_same: bool) -> None:
    line = {"timestamp": LATER, "workflow": "w", "F.key": 7, "F.value": served}

    def ask(features: Sequence[str], rows: pd.DataFrame) -> Mapping[str, Sequence[Any]]:
        assert (list(features), rows["F.key"].tolist()) == (["F.value"], [7])
        assert rows["timestamp"].tolist() == [datetime(2013, 12, 1, 16, tzinfo=UTC)]
        return {"F.value": [now]}

    logged = Logged(orjson.dumps(line), {"F.key": Int(), "F.value": dtype})
    assert totals(compare(logged, ["F.key"], (), ask)) == {"F.value": (1, int(not is_same))}


def test_values_of_another_type_are_an_error_with_a_remedy() -> None:
    line = {"timestamp": LATER, "workflow": "w", "F.key": 7, "F.value": "seven"}
    logged = Logged(orjson.dumps(line), {"F.key": Int(), "F.value": Int()})
    with pytest.raises(InvalidValue, match=r"logged values of F\.value have another type") as error:
        compare(logged, ["F.key"], (), lambda *_: {"F.value": [7]})
    assert "since=" in (error.value.hint or "")
