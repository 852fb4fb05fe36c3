"""Commits, erasure and the rest of the mock client."""

from __future__ import annotations

from datetime import datetime

import pandas as pd
import pytest

from tests.unit.testing.shop import (
    DATASETS,
    JAN,
    ROWS,
    User,
    committed,
)
from umbel.datasets import dataset
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"


@pytest.fixture
def client():
    return committed()


def test_the_rest(client):
    assert client.is_integration_client() is False
    assert client.integration_mode() == "mock"
    assert client.track_offline_query("x").status_code == 404
    assert client.cancel_offline_query("x").status_code == 404
    assert client.sleep() is None
    assert client.sleep(30) is None
    assert client.sleep(seconds=0.1) is None

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
