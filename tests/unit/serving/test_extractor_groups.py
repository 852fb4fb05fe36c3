"""Extractors that follow each other are called together; what they return and how they fail is as of single calls."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pandas as pd
import pytest

from tests.unit.serving.asgi import serving_admin
from tests.unit.serving.conftest import NOON, Served
from umbel.api.commit import check_commit
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.featuresets import extractor, featureset
from umbel.isolation.process import IsolatedProcess
from umbel.lib import inputs, outputs, secrets
from umbel.query.extractor_groups import MOST_ROWS
from umbel.runtime import extractors
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment

__owner__ = "tests@example.com"
webhook = Webhook(name="events")


@source(webhook.endpoint("people"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Person:
    name: str = field(key=True)
    age: int
    at: datetime


@featureset
class Chain:
    name: str
    size: int
    twice: int
    age: int
    marked: str
    calls: int

    @extractor
    @inputs("name")
    @outputs("size")
    def sizes(cls, ts: pd.Series, names: pd.Series):
        if (names == "raise").any():
            raise ValueError("no such thing")
        if (names == "exit").any():
            os._exit(7)
        return names.str.len().astype("Int64").rename("size")

    @extractor
    @inputs("size")
    @outputs("twice")
    def doubled(cls, ts: pd.Series, sizes: pd.Series):
        if (sizes == 9).any():
            raise KeyError("nine")
        if (sizes == 11).any():
            time.sleep(60)
        return (sizes * 2).rename("twice")

    @extractor(deps=[Person])
    @inputs("name")
    @outputs("age")
    def ages(cls, ts: pd.Series, names: pd.Series):
        found, _ = Person.lookup(ts, name=names)
        return found["age"].fillna(-1).astype(int).rename("age")

    @extractor
    @inputs("name")
    @outputs("marked")
    def marks(cls, ts: pd.Series, names: pd.Series):
        return (names + secrets.get("mark")).rename("marked")

    @extractor
    @inputs("name")
    @outputs("calls")
    def counts(cls, ts: pd.Series, names: pd.Series):
        import builtins

        builtins.calls = getattr(builtins, "calls", 0) + 1  # type: ignore[attr-defined]
        return pd.Series([builtins.calls] * len(names), name="calls")  # type: ignore[attr-defined]


@featureset
class Slow:
    name: str
    one: int
    other: int

    @extractor
    @inputs("name")
    @outputs("one")
    def first(cls, ts: pd.Series, names: pd.Series):
        time.sleep(0.06)
        return pd.Series([1] * len(names), name="one")

    @extractor
    @inputs("name")
    @outputs("other")
    def second(cls, ts: pd.Series, names: pd.Series):
        return pd.Series([2] * len(names), name="other")


VALUES = ["Chain.size", "Chain.twice", "Chain.age", "Chain.marked"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMBEL_EXTRACTOR_SECONDS", "5")
        deployment = Deployment.at(tmp_path_factory.mktemp("served"), shards=2)
        deployment.vault.add("mark", "!")
        commit(deployment, check_commit([Person], [Chain, Slow]))
        with serving_admin(deployment) as transport, httpx.Client(transport=transport, base_url="http://umbel") as http:
            found = Served(deployment, transport, http)
            found.log("people", [{"name": "ann", "age": 41, "at": NOON}])
            found.process()
            yield found
        deployment.store.close()
        deployment.catalog.close()


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of extractors of each call of several that succeeded; all that end are quick."""
    monkeypatch.setattr(extractors, "QUICK", 30.0)
    monkeypatch.setattr(extractors, "TOGETHER", 30.0)
    found, call = list[int](), IsolatedProcess.call_together

    def counted(self: IsolatedProcess, keys: tuple[str, ...], *args: Any, **options: Any) -> Any:
        values = call(self, keys, *args, **options)
        found.extend([] if values is None else [len(keys)])
        return values

    monkeypatch.setattr(IsolatedProcess, "call_together", counted)
    return found


def ask(served: Served, outputs: list[str], *names: str, **more: list[Any]) -> httpx.Response:
    owner = outputs[0].partition(".")[0]
    data = {f"{owner}.name": list(names), **{f"{owner}.{name}": values for name, values in more.items()}}
    return served.post("/api/v1/query", {"inputs": list(data), "outputs": outputs, "data": data})


def test_values_are_those_of_single_calls(served: Served, together: list[int]) -> None:
    names = ["ann", "bob", ""]
    expected = {
        "Chain.size": [3, 3, 0],
        "Chain.twice": [6, 6, 0],
        "Chain.age": [41, -1, -1],
        "Chain.marked": ["ann!", "bob!", "!"],
    }
    found = [ask(served, VALUES, *names).json() for _ in range(3)]
    assert found == [expected] * 3
    assert together[-1] == 4


def test_features_of_the_query_are_not_replaced(served: Served, together: list[int]) -> None:
    for _ in range(3):
        found = ask(served, ["Chain.twice", "Chain.age"], "ann", size=[50]).json()
        assert found == {"Chain.twice": [100], "Chain.age": [41]}
    assert together


def test_many_rows_are_called_one_by_one(served: Served, together: list[int]) -> None:
    for count, is_together in ((MOST_ROWS, True), (MOST_ROWS + 1, False)):
        together.clear()
        for _ in range(2):
            assert ask(served, VALUES, *["ann"] * count).json()["Chain.age"] == [41] * count
        assert bool(together) == is_together


def test_functions_have_the_state_that_single_calls_left(served: Served, together: list[int]) -> None:
    counts = [ask(served, ["Chain.calls", "Chain.size"], "ann").json()["Chain.calls"][0] for _ in range(3)]
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]
    assert together


@pytest.mark.parametrize(
    ("name", "owner", "code", "text"),
    [
        ("raise", "sizes", "extractor-refused", "no such thing"),
        ("exit", "sizes", "extractor-ended", "exit code 7"),
        ("ninety ni", "doubled", "extractor-failed", "nine"),
        ("eleven char", "doubled", "extractor-timed-out", "longer than"),
    ],
)
def test_a_failure_names_the_extractor_and_the_row(
    served: Served, together: list[int], name: str, owner: str, code: str, text: str
) -> None:
    for _ in range(2):
        assert ask(served, VALUES, "ann").status_code == 200
    assert together
    refusal = ask(served, VALUES, "ann", name).json()
    assert (refusal["code"], f"Extractor {owner} in Chain" in refusal["message"]) == (code, True)
    assert text in refusal["message"]
    assert "row 1 of 2" in refusal["message"]
    assert ask(served, VALUES, "ann").json()["Chain.twice"] == [6]


def test_slow_extractors_are_called_one_by_one(
    served: Served, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractors, "QUICK", 0.05)
    for _ in range(3):
        assert ask(served, ["Slow.one", "Slow.other"], "a").json() == {"Slow.one": [1], "Slow.other": [2]}
    assert together == []


def test_one_that_hangs_has_the_time_of_one_call(
    served: Served, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert ask(served, VALUES, "ann").status_code == 200
    assert together
    monkeypatch.undo()
    allowed = list[float]()
    for name in ("call", "call_together"):
        call = getattr(IsolatedProcess, name)

        def timed(self: IsolatedProcess, *args: Any, call: Any = call, **options: Any) -> Any:
            allowed.append(options["seconds"])
            return call(self, *args, **options)

        monkeypatch.setattr(IsolatedProcess, name, timed)
    monkeypatch.setattr(extractors, "QUICK", 30.0)
    assert ask(served, VALUES, "eleven char").json()["code"] == "extractor-timed-out"
    together_for, *alone = [round(seconds, 3) for seconds in allowed if seconds < extractors.LOADING]
    assert (together_for, set(alone)) == (0.5, {5.0})
