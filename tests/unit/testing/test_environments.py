"""Which pipelines and sources a commit to an environment runs (api §2.5, §3.4)."""

from datetime import datetime, timezone
from typing import Optional

import pandas as pd

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, pipeline
from umbel.expr import col
from umbel.lib import inputs, meta
from umbel.testing import MockClient

__owner__ = "team@example.com"

webhook = Webhook(name="w")

T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@source(webhook.endpoint("A"), disorder="14d", cdc="append")
@dataset
class A:
    k: int
    v: float
    o: Optional[str]
    t: datetime


def test_pass_through() -> None:
    @dataset
    class Copy:
        k: int
        v: float
        o: Optional[str]
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a

    client = MockClient()
    client.commit("m", [A, Copy])
    client.log("w", "A", pd.DataFrame({"k": [1], "v": [1], "o": [None], "t": [T]}))
    assert len(client.get_dataset_df("Copy")) == 1


def enved(one: object, other: object) -> Dataset:
    @dataset
    class Many:
        k: int
        t: datetime

        @pipeline(env=one)
        @inputs(A)
        def first(cls, a: Dataset):
            return a.filter(col("k") > 1).select("k")

        @pipeline(env=other)
        @inputs(A)
        def second(cls, a: Dataset):
            return a.filter(col("k") <= 1).select("k")

    return Many


def test_several_pipelines() -> None:
    for one, other, words in (
        (None, "dev", ("first",)),
        (None, None, ("first",)),
        ("dev", "dev", ("dev",)),
        (["a", "b"], ["b"], ("b",)),
        ("~a", "b", ("b",)),
        ("~a", "~b", ()),
    ):
        with refusal(ValueError, "Many", *words):
            MockClient().commit("m", [A, enved(one, other)], env="dev")
    for one, other, env, expected in (
        ("prod", "dev", "dev", [1]), ("prod", "dev", "prod", [2]), ("prod", "dev", "other", []),
        ("~dev", "dev", "prod", [2]), (["prod", "q"], ["dev", "x"], "x", [1]),
    ):  # fmt: skip
        client = MockClient()
        client.commit("m", [A, enved(one, other)], env=env)
        client.log("w", "A", pd.DataFrame({"k": [1, 2], "v": [1, 1], "o": [None, None], "t": [T, T]}))
        assert client.get_dataset_df("Many")["k"].tolist() == expected


def test_selected_sources() -> None:
    @source(webhook.endpoint("dev"), disorder="1d", cdc="append", env=["dev", "staging"])
    @source(webhook.endpoint("not-prod"), disorder="1d", cdc="append", env="~prod")
    @source(webhook.endpoint("prod"), disorder="1d", cdc="append", env="prod")
    @source(webhook.endpoint("any"), disorder="1d", cdc="append")
    @dataset
    class S:
        k: int
        t: datetime

    expected = {"dev": {"dev", "not-prod", "any"}, "staging": {"dev", "not-prod", "any"}, "prod": {"prod", "any"},
                "x": {"not-prod", "any"}, None: {"dev", "not-prod", "prod", "any"}}  # fmt: skip
    for env, taken in expected.items():
        client = MockClient()
        client.commit("m", [S], env=env)
        for endpoint in ("dev", "not-prod", "prod", "any"):
            try:
                client.log("w", endpoint, pd.DataFrame({"k": [1], "t": [T]}))
            except ValueError:
                assert endpoint not in taken
            else:
                assert endpoint in taken


def test_deleted_pipelines() -> None:
    @dataset
    class D:
        k: int
        t: datetime

        @meta(deleted=True)
        @pipeline
        @inputs(A)
        def gone(cls, a: Dataset):
            return a.select("k")

        @pipeline
        @inputs(A)
        def here(cls, a: Dataset):
            return a.filter(col("k") > 1).select("k")

    client = MockClient()
    client.commit("m", [A, D])
    client.log("w", "A", pd.DataFrame({"k": [1, 2], "v": [1, 1], "o": [None, None], "t": [T, T]}))
    assert client.get_dataset_df("D")["k"].tolist() == [2]
    assert D.num_pipelines() == 2
