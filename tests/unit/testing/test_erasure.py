"""Erasure by the mock client."""

from __future__ import annotations

from datetime import datetime, timezone

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from tests.unit.testing.shop import (
    DAY,
    JAN,
    ROWS,
    Users,
    Visits,
    committed,
    users,
)
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, pipeline
from umbel.lib import inputs
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"

webhook = Webhook(name="w")

JAN1 = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(webhook.endpoint("E"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Two:
    a: int = field(key=True, erase_key=True)
    b: int = field(key=True, erase_key=True)
    c: int = field(key=True)
    v: int
    t: datetime


@dataset(index=True)
class Down:
    a: int = field(key=True)
    b: int = field(key=True)
    v: int
    t: datetime

    @pipeline
    @inputs(Two)
    def p(cls, two: Dataset):
        return two.changelog(delete="gone").drop("c", "gone").groupby("a", "b").latest()


@mock
def test_erase(client: MockClient) -> None:
    client.commit("m", [Two, Down])
    rows = pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 1], "c": [1, 1, 1], "v": [1, 2, 3], "t": [JAN1] * 3})
    client.log("w", "E", rows)
    assert client.erase("Nothing", pd.DataFrame({"a": [1]})).status_code == 404
    assert client.erase(Two, pd.DataFrame({"a": [1], "b": [1]})).status_code == 200
    assert sorted(client.get_dataset_df("Two")["v"].tolist()) == [2, 3]
    found = client.lookup(Two, pd.DataFrame({"a": [1, 1], "b": [1, 2], "c": [1, 1]}))
    assert found[1].tolist() == [False, True]
    assert found[0]["v"].tolist() == [pd.NA, 2]
    assert len(client.get_dataset_df("Down")) == 3
    client.log("w", "E", rows)
    client.log("w", "E", pd.DataFrame({"a": [1], "b": [1], "c": [9], "v": [9], "t": [JAN1]}))
    assert client.lookup(Two, pd.DataFrame({"a": [1], "b": [1], "c": [9]}))[1].tolist() == [False]


@mock
def test_bad_erasures(client: MockClient) -> None:
    client.commit("m", [Two, Down])
    for frame, name in (({"a": [1]}, "b"), ({"a": [1], "b": [1], "c": [1]}, "c"), ({"a": [1], "b": [1], "z": [1]}, "z"),
                        ({"a": [1], "b": [1], "v": [1]}, "v")):  # fmt: skip
        with refusal(ValueError, name, "Two"):
            client.erase(Two, pd.DataFrame(frame))
    with refusal(TypeError, "5"):
        client.erase(5, pd.DataFrame({"a": [1]}))
    with refusal(ValueError, "Down"):
        client.erase("Down", pd.DataFrame({"a": [1]}))


__owner__ = "test@umbel.dev"


@pytest.fixture
def client():
    return committed()


def test_erased_keys_stay_erased(client):
    client.log("hook", "users", ROWS)
    assert client.erase(Users, pd.DataFrame({"uid": [1]})).status_code == 200
    assert client.get_dataset_df("Users")["uid"].tolist() == [2]
    assert users(client, 1, 2)["User.name"].tolist() == ["?", "bob"]
    client.log("hook", "users", ROWS.assign(t=JAN + 3 * DAY))
    assert users(client, 1)["User.name"].tolist() == ["?"]
    _, found = client.lookup("Users", pd.DataFrame({"uid": [1, 2]}), timestamps=pd.Series([JAN, JAN]))
    assert found.tolist() == [False, True]
    assert client.erase("Nobody", pd.DataFrame({"uid": [1]})).status_code == 404


@pytest.mark.parametrize(
    ("keys", "field"), [({"id": [1]}, "id"), ({"uid": [1], "name": ["x"]}, "name"), ({}, "uid")], ids=str
)
def test_keys_that_erase_refuses(client, keys, field):
    with pytest.raises(ValueError, match=f"field '{field}'"):
        client.erase(Users, pd.DataFrame(keys))
    with pytest.raises(ValueError, match="Visits"):
        client.erase(Visits, pd.DataFrame({"uid": [1]}))
    with pytest.raises(TypeError):
        client.erase(3, pd.DataFrame({"uid": [1]}))
