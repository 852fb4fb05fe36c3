"""`@mock`, `log` and star imports."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pandas as pd
import pytest

from umbel.datasets import dataset
from umbel.testing import MockClient, almost_equal, log, mock

__owner__ = "test@umbel.dev"


@dataset
class Rows:
    n: int
    t: datetime


FRAME = pd.DataFrame({"n": [1, 2], "t": [datetime(2024, 1, 1, tzinfo=UTC)] * 2})


@mock
def test_a_client_is_passed_by_keyword(client):
    client.commit(message="rows", datasets=[Rows])
    assert log(Rows, FRAME).ok
    assert client.get_dataset_df("Rows")["n"].tolist() == [1, 2]


class TestMethods:
    @mock
    def test_methods_work_too(self, client):
        assert isinstance(client, MockClient)


def test_the_signature_is_hidden_and_the_result_returned():
    @mock
    def example(client, number=3):
        return number, client

    assert "client" not in inspect.signature(example).parameters
    assert example.__name__ == "example"
    number, client = example(number=4)
    assert number == 4
    assert example()[0] == 3
    assert isinstance(client, MockClient)


def test_tests_for_servers_are_not_run():
    @mock
    def some_data_integration_test(client):
        raise AssertionError

    assert some_data_integration_test() is None


def test_log_feeds_the_client_made_last():
    first, second = MockClient(), MockClient()
    for client in (first, second):
        client.commit(message="rows", datasets=[Rows])
    log(Rows, FRAME)
    assert (len(first.get_dataset_df("Rows")), len(second.get_dataset_df("Rows"))) == (0, 2)

    @dataset
    class Others:
        n: int
        t: datetime

    with pytest.raises(Exception, match="'Others' is not registered"):
        log(Others, FRAME)


def test_star_import():
    names: dict[str, object] = {}
    exec("from umbel.testing import *", names)
    assert {"MockClient", "almost_equal", "log", "mock"} <= set(names)


def test_older_places():
    from umbel.testing.mock_client import MockClient as Deep
    from umbel.testing.test_utils import almost_equal as deep

    assert (Deep, deep) == (MockClient, almost_equal)


def test_almost_equal():
    assert almost_equal(1.0, 1.0000001)
    assert not almost_equal(1.0, 1.0 + 1e-5)
    assert not almost_equal(1.0, 1.1)
    assert almost_equal(1.0, 1.1, epsilon=0.2)
