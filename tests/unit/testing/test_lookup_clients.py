"""§2.4 amended: which mock client answers `Dataset.lookup`."""

import asyncio
import subprocess
import sys
import threading
from datetime import datetime, timezone

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(Webhook(name="w").endpoint("Users"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    uid: int = field(key=True)
    name: str
    t: datetime


def users(*rows: tuple[int, str, datetime]) -> pd.DataFrame:
    return pd.DataFrame([{"uid": uid, "name": name, "t": at} for uid, name, at in rows])


def names(*at: datetime, uid: int = 1) -> list[object]:
    rows, _ = Users.lookup(pd.Series(at), uid=pd.Series([uid] * len(at)))
    return rows["name"].tolist()


def test_the_client_made_last_answers() -> None:
    first, second = MockClient(), MockClient()
    for client, name in ((first, "first"), (second, "second")):
        client.commit(message="m", datasets=[Users])
        client.log("w", "Users", users((1, name, T)))
    assert names(T) == ["second"]

    @mock
    def inner(client) -> None:
        with refusal(ValueError, "'Users' is not committed", at=False):
            names(T)
        client.commit(message="m", datasets=[Users])
        client.log("w", "Users", users((1, "inner", T)))
        assert names(T) == ["inner"]

        @mock
        def innermost(client) -> None:
            client.commit(message="m", datasets=[Users])
            assert names(T) == [pd.NA]
            own = MockClient()
            own.commit(message="m", datasets=[Users])
            own.log("w", "Users", users((1, "own", T)))
            assert names(T) == ["own"]

        innermost()
        assert names(T) == ["inner"]
        with pytest.raises(ZeroDivisionError):
            mock(lambda client: 1 / 0)()
        assert names(T) == ["inner"]

    inner()
    assert names(T) == ["second"]


@pytest.fixture
def fed() -> MockClient:
    client = MockClient()
    client.commit(message="m", datasets=[Users])
    client.log("w", "Users", users((1, "fixture", T)))
    return client


@pytest.fixture
@mock
def yielded(client):
    client.commit(message="m", datasets=[Users])
    client.log("w", "Users", users((1, "yielded", T)))
    yield client


def test_a_client_of_a_fixture(fed: MockClient) -> None:
    assert names(T) == ["fixture"]


def test_a_client_of_a_fixture_that_yields(yielded: MockClient) -> None:
    assert names(T) == ["yielded"]


@mock
def test_threads(client) -> None:
    client.commit(message="m", datasets=[Users])
    client.log("w", "Users", users((1, "thread", T)))
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(names(T)))
    thread.start()
    thread.join()
    assert found == ["thread"]


def test_asynchronous_tests_have_a_client_each() -> None:
    @mock
    async def example(name: str, client) -> list[object]:
        client.commit(message="m", datasets=[Users])
        await asyncio.sleep(0)
        client.log("w", "Users", users((1, name, T)))
        await asyncio.sleep(0)
        return await asyncio.create_task(_later())

    async def _later() -> list[object]:
        await asyncio.sleep(0)
        return names(T)

    async def both() -> list[list[object]]:
        return await asyncio.gather(example("a"), example("b"))

    assert asyncio.run(both()) == [["a"], ["b"]]


PROGRAM = """
import asyncio
from datetime import datetime
import pandas as pd
from umbel.datasets import dataset, field
from umbel.testing import MockClient, log, mock

__owner__ = "a@b.cd"

@dataset(index=True)
class D:
    k: int = field(key=True)
    t: datetime

T = datetime(2024, 1, 1)
def look():
    return D.lookup(pd.Series([T]), k=pd.Series([1]))[1].tolist()

try:
    look()
    raise SystemExit("no error")
except ValueError as error:
    assert "not committed" in str(error), error

@mock
def test(client):
    client.commit(message="m", datasets=[D])
    assert look() == [False]

test()
try:
    look()
    raise SystemExit("the client outlived its test")
except ValueError:
    pass

async def setup():
    MockClient().commit(message="m", datasets=[D])
    log(D, pd.DataFrame({"k": [1], "t": [T]}))

asyncio.run(setup())
assert look() == [True]
client = MockClient()
client.commit(message="m", datasets=[D])
assert look() == [False]
"""


def test_in_a_fresh_process() -> None:
    """At module level; before there is a client; when it is made in an asynchronous setup; without a name for it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
