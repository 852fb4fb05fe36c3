"""Functions that sort the rows they are given: what they return belongs to the rows it was made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.connectors import eval as computed
from umbel.datasets import dataset, field, pipeline
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient

__owner__ = "sorted@umbel.dev"

webhook = Webhook(name="sorted")


@source(
    webhook.endpoint("Owned"),
    disorder="14d",
    cdc="upsert",
    preproc={"rank": computed(lambda df: df.sort_values("x")["x"] * 10)},
)
@dataset(index=True)
class Owned:
    uid: int = field(key=True)
    x: int
    rank: int
    at: datetime


def derived(body: Callable[[Any], Any]) -> Any:
    def derive(cls: Any, rows: Any) -> Any:
        return body(rows)

    annotations = {"uid": int, "x": int, "rank": int, "at": datetime}
    shape = {"__module__": __name__, "__annotations__": annotations, "uid": field(key=True)}
    return dataset(index=True)(type("Derived", (), {**shape, "derive": pipeline(inputs(Owned)(derive))}))


def logged(*committed: Any, **options: Any) -> MockClient:
    client = MockClient()
    client.commit(message="case", datasets=[Owned, *committed], **options)
    days = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
    client.log("sorted", "Owned", pd.DataFrame({"uid": [1, 2, 3, 1], "x": [7, 1, 3, 2], "at": days}))
    return client


def values(client: MockClient, name: str, column: str) -> list[tuple[int, int]]:
    rows = client.get_dataset_df(name).sort_values("at")
    return list(zip(rows["uid"], rows[column], strict=True))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda o: o.assign("rank", int, lambda df: df.sort_values("x")["x"] + 1), [(1, 8), (2, 2), (3, 4), (1, 3)]),
        (lambda o: o.assign("rank", int, lambda df: (df.sort_values("x")["x"] + 1).to_numpy()), None),
        (lambda o: o.filter(lambda df: df.sort_values("x")["x"] > 2), [(1, 70), (3, 30)]),
        (lambda o: o.transform(lambda df: df.sort_values("x")), [(1, 70), (2, 10), (3, 30), (1, 20)]),
    ],
    ids=["assign", "assign without index", "filter", "transform"],
)
def test_operators(body: Callable[[Any], Any], expected: list[tuple[int, int]] | None) -> None:
    made = derived(body)
    found = values(logged(made), "Derived", "rank")
    if expected is None:
        assert sorted(rank for _, rank in found) == [2, 3, 4, 8]
    else:
        assert found == expected


def test_a_transform_keeps_the_ends_of_rows() -> None:
    client = logged(derived(lambda owned: owned.transform(lambda df: df.sort_values("x"))))
    instants = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-03", "2024-01-04"], utc=True))
    found, _ = client.lookup("Derived", pd.DataFrame({"uid": [1, 1, 1]}), timestamps=instants)
    assert found["x"].tolist() == [7, 7, 2]


def test_preproc() -> None:
    assert values(logged(), "Owned", "rank") == [(1, 70), (2, 10), (3, 30), (1, 20)]


def test_extractors() -> None:
    @featureset
    class Doubled:
        uid: int = F()
        twice: int = F()

        @extractor
        @inputs("uid")
        @outputs("twice")
        def double(cls, ts, uid):
            return (uid.sort_values() * 2).rename("twice")

    client = logged(featuresets=[Doubled])
    found = client.query(
        inputs=[Doubled.uid], outputs=[Doubled.twice], input_dataframe=pd.DataFrame({"Doubled.uid": [3, 1, 2]})
    )
    assert found["Doubled.twice"].tolist() == [6, 2, 4]
