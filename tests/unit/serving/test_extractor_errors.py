"""The error of a failing extractor is that of the call that failed, not one of the calls that look for the row."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from tests.contracts.transport_shop import Platform, mocked, served_at
from umbel.client import Client
from umbel.errors import UmbelError
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs

__owner__ = "tests@example.com"


@featureset
class Failing:
    way: str
    amount: int
    found: int

    @extractor
    @inputs("way", "amount")
    @outputs("found")
    def fail(cls, ts: pd.Series, way: pd.Series, amount: pd.Series):
        how = way.iloc[0]
        if how == "fraction":
            return pd.Series([1, 1.5, 3], name="found")
        if how == "dropped":
            return amount[amount > 1].rename("found")
        if how == "three":
            return pd.Series(["x", "y", "z"], name="found")
        if how == "neighbour":
            return {str(amount.iloc[1]): amount}[how].rename("found")
        return amount.map({2: 20, 3: 30}.__getitem__).rename("found")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    def committed(platform: Platform) -> Client:
        platform.client.commit(message="m", featuresets=[Failing])
        platform.settle()
        return platform.client

    for served in served_at(tmp_path_factory.mktemp("served") / "umbel"):
        yield committed(served), committed(mocked())


def failed(client: Client, way: str) -> str:
    rows = pd.DataFrame({"Failing.way": [way] * 3, "Failing.amount": [3, 1, 2]})
    with pytest.raises(UmbelError, match="Extractor fail in Failing") as caught:
        client.query([Failing.way, Failing.amount], [Failing.found], rows)
    return caught.value.message.removeprefix("the server answered 422: ").partition(" (at ")[0]


@pytest.mark.parametrize(
    ("way", "text", "place"),
    [
        ("fraction", "expected int, got 1.5", "one of 3 rows"),
        ("dropped", "2 values of feature Failing.found, but there are 3", "row 1 of 3"),
        ("three", "expected int, found texts", "one of 3 rows"),
        ("neighbour", "KeyError: 'neighbour'", "one of 3 rows"),
        ("unknown", "KeyError: 1", "row 1 of 3"),
    ],
)
def test_the_error_is_that_of_all_rows(both: tuple[Client, Client], way: str, text: str, place: str) -> None:
    served, local = (failed(client, way) for client in both)
    assert text in local
    assert served.startswith(f"{local} ({place}")
