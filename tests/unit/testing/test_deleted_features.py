"""Features marked as deleted: they stay in code, and queries are answered without them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"
ROWS = pd.DataFrame({"Before.a": [1, 2]})


@featureset
class Before:
    a: int
    gone: int = F(col("a") + 1).meta(deleted=True)
    half_gone: int = F().meta(deleted=True)
    here: int
    needs: int = F(col("gone") + 1)

    @extractor
    @inputs("a")
    @outputs("half_gone", "here")
    def both(cls, ts: pd.Series, a: pd.Series):
        return pd.DataFrame({"half_gone": a, "here": a * 10})


@pytest.fixture
def client() -> MockClient:
    made = MockClient()
    made.commit("m", featuresets=[Before])
    return made


def found(client: MockClient, outputs: list[Any], **others: Any) -> dict[str, list[Any]]:
    frame = ROWS.assign(**{f"Before.{name}": value for name, value in others.items()})
    return client.query([Before.a, *(f"Before.{name}" for name in others)], outputs, frame).to_dict("list")


def test_a_featureset_is_queried_without_them(client: MockClient) -> None:
    rest = {"Before.a": [1, 2], "Before.here": [10, 20], "Before.needs": [8, 8]}
    assert found(client, [Before], gone=7) == rest
    assert found(client, ["Before"], gone=7) == rest


def test_they_are_no_outputs(client: MockClient) -> None:
    for output in (Before.gone, "Before.half_gone"):
        with refusal(ValueError, f"feature '{output if isinstance(output, str) else output.fqn()}' is deleted"):
            found(client, [Before.here, output])
        with refusal(ValueError, "is deleted"):
            client.query_offline([Before.a], [output], "t", ROWS.assign(t="2024-01-01"))


def test_features_that_need_one_say_so(client: MockClient) -> None:
    with refusal(ValueError, "No extractor found for feature Before.gone, which is deleted (needed by Before.needs)"):
        found(client, [Before.needs])
