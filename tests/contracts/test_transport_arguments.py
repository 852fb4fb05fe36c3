"""Arguments of the wrong kind are refused by the client itself, with one error for a server and a mock client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.contracts.transport_shop import JAN, USERS, Computed, User, begun, mocked, served_at, webhook
from umbel.client import Client
from umbel.errors import InvalidType, InvalidValue, UmbelError, UnknownName

ROWS = pd.DataFrame({"User.uid": [1], "at": [JAN]})
KEYS = pd.DataFrame({"uid": [1]})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    for served in served_at(tmp_path_factory.mktemp("served") / "umbel"):
        yield begun(served).client, begun(mocked()).client


def query(client: Client, **options: Any) -> Any:
    return client.query([User.uid], [User.name], ROWS, **options)


def offline(client: Client, timestamp_column: Any, rows: pd.DataFrame = ROWS, columns: Any = None) -> Any:
    return client.query_offline([User.uid], [User.name], timestamp_column, rows, feature_to_column_map=columns)


REFUSALS: dict[str, tuple[Callable[[Client], Any], type[UmbelError], str]] = {
    "a webhook in place of its name": (lambda c: c.log(webhook, "users", USERS), InvalidType, "webhook must be text"),
    "no endpoint": (lambda c: c.log("shop", None, USERS), InvalidType, "endpoint must be text, got None"),
    "parts of batches": (
        lambda c: c.log("shop", "users", USERS, 2.5),
        InvalidValue,
        "batch_size must be .*, found 2.5",
    ),
    "batches as text": (lambda c: c.log("shop", "users", USERS, "5"), InvalidValue, "batch_size must be .*, found '5'"),
    "a text for a truth value": (lambda c: query(c, log="no"), InvalidType, "log must be True or False, got 'no'"),
    "a rate of NaN": (lambda c: query(c, sampling_rate=float("nan")), InvalidValue, "from 0 to 1, found nan"),
    "a feature as the timestamp column": (
        lambda c: offline(c, User.since),
        InvalidType,
        "timestamp_column must be text",
    ),
    "a number as the timestamp column": (
        lambda c: offline(c, 5, ROWS.rename(columns={"at": 5})),
        InvalidType,
        "timestamp_column must be text, got 5",
    ),
    "a list for a dictionary": (lambda c: offline(c, "at", columns=["a"]), InvalidType, "must be a dictionary, got"),
    "a secret of the parent": (lambda c: c.add_secret("..", "v"), InvalidValue, "not '.' or '..'"),
    "a secret elsewhere": (lambda c: c.add_secret("env:HOME", "v"), InvalidValue, "'env:HOME' cannot be the name"),
    "a long secret": (lambda c: c.add_secret("x" * 257, "v"), InvalidValue, "cannot be the name of a secret"),
    "a secret with a NUL": (lambda c: c.update_secret("x\0", "v"), InvalidValue, "cannot be the name of a secret"),
    "half a character": (lambda c: c.add_secret("other", "\ud800"), InvalidValue, "unpaired surrogate"),
    "a dataset of the parent": (lambda c: c.lookup("../x", KEYS), UnknownName, "dataset '../x' is not committed"),
    "a dataset without a name": (lambda c: c.inspect(""), UnknownName, "dataset '' is not committed"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_arguments_are_refused(both: tuple[Client, Client], name: str) -> None:
    call, kind, text = REFUSALS[name]
    found = []
    for client in both:
        with pytest.raises(UmbelError, match=text) as caught:
            call(client)
        found.append((type(caught.value), caught.value.message))
    assert found == [(kind, found[0][1])] * 2


def test_numbers_of_numpy_are_numbers(both: tuple[Client, Client]) -> None:
    for client in both:
        assert client.log("shop", "users", USERS.head(0), batch_size=np.int64(5)).ok
        assert len(client.inspect("Users", n=np.int64(1))) == 1
        assert query(client, log=np.bool_(False), sampling_rate=np.float64(0.5)).shape == (1, 1)


def test_a_column_may_be_called_as_it_likes(both: tuple[Client, Client]) -> None:
    rows = pd.DataFrame({5: [1], "at": [JAN]})
    for client in both:
        found = client.query_offline(
            [Computed.who], [Computed.twice], "at", rows, feature_to_column_map={Computed.who: 5}
        )
        assert found["Computed.twice"].tolist() == [2]
