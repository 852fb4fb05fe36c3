"""Commits, erasure and the rest of the mock client."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

import pandas as pd
import pytest

from tests.unit.testing.shop import (
    DATASETS,
    DAY,
    JAN,
    ROWS,
    VISITS,
    User,
    Users,
    Visited,
    Visits,
    committed,
    users,
)
from umbel.datasets import dataset, field, pipeline
from umbel.expr import col
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"


@pytest.fixture
def client():
    return committed()


def test_a_commit_starts_empty_an_incremental_one_keeps(client):
    client.log("hook", "users", ROWS)
    client.log("hook", "visits", VISITS)
    client.commit(message="again", datasets=DATASETS, featuresets=[User])
    assert users(client, 1)["User.name"].tolist() == ["?"]

    client.log("hook", "users", ROWS)

    @featureset
    class More:
        uid: int
        name: Optional[str] = F(Users.name)

    client.commit(message="more", featuresets=[More], incremental=True)
    frame = pd.DataFrame({"More.uid": [1]})
    assert client.query([More.uid], [More.name], frame)["More.name"].tolist() == ["anna"]
    assert users(client, 1)["User.name"].tolist() == ["anna"]
    assert {each.__name__ for each in client.get_datasets()} == {"Users", "Visits", "Visited"}
    assert [each.__name__ for each in client.get_featuresets()] == ["User", "More"]


def test_a_pipeline_committed_later_sees_what_was_logged_before(client):
    client.log("hook", "visits", VISITS)

    @dataset(index=True)
    class Doubled:
        uid: int = field(key=True)
        n: int
        t: datetime

        @pipeline
        @inputs(Visits)
        def double(cls, visits):
            return visits.assign(n=(col("n") * 2).astype(int)).groupby("uid").latest()

    client.commit(message="doubled", datasets=[Doubled], incremental=True)
    rows, _ = client.lookup("Doubled", pd.DataFrame({"uid": [1, 2]}))
    assert rows["n"].tolist() == [4, 10]


def test_what_commits_refuse(client):
    with pytest.raises(TypeError):
        client.commit(message="x", datasets=[User])
    with pytest.raises(ValueError, match="Users"):
        client.commit(message="x", datasets=[Users, Users])
    with pytest.raises(ValueError, match="Visits"):
        client.commit(message="x", datasets=[Visited])
    assert users(client, 1)["User.name"].tolist() == ["?"], "a refused commit changes nothing"


def test_erase(client):
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
def test_what_erase_refuses(client, keys, field):
    with pytest.raises(ValueError, match=f"field '{field}'"):
        client.erase(Users, pd.DataFrame(keys))
    with pytest.raises(ValueError, match="Visits"):
        client.erase(Visits, pd.DataFrame({"uid": [1]}))
    with pytest.raises(TypeError):
        client.erase(3, pd.DataFrame({"uid": [1]}))


def test_the_rest(client):
    assert client.is_integration_client() is False
    assert client.integration_mode() == "mock"
    assert client.track_offline_query("x").status_code == 404
    assert client.cancel_offline_query("x").status_code == 404
    client.sleep()
    client.sleep(30)

    @dataset
    class Added:
        n: int
        t: datetime

    client.add(Added)
    assert client.get_dataset_df("Added").empty


def test_older_spellings():
    client = MockClient()
    with pytest.warns(DeprecationWarning, match="commit"):
        client.sync(datasets=DATASETS, featuresets=[User])
    client.log("hook", "users", ROWS)
    frame = pd.DataFrame({"User.uid": [1], "at": [JAN]})
    with pytest.warns(DeprecationWarning, match="query"):
        found = client.extract_features(
            output_feature_list=[User.name], input_feature_list=[User.uid], input_dataframe=frame
        )
    assert found["User.name"].tolist() == ["anna"]
    with pytest.warns(DeprecationWarning, match="query_offline"):
        found = client.extract_historical_features(
            output_feature_list=[User.name], input_feature_list=[User.uid], timestamp_column="at", input_dataframe=frame
        )
    assert found["User.name"].tolist() == ["ann"]
