"""A client that runs for long uses the types of what serves, whoever has committed it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Optional
from unittest.mock import patch

import httpx
import pandas as pd
import pytest

from tests.contracts.transport_shop import JAN, Platform, served_at, webhook
from umbel.client import Client
from umbel.client.connection import Unreachable
from umbel.connectors import source
from umbel.datasets import Dataset, dataset, field
from umbel.errors import InvalidValue
from umbel.expr import Expr, col
from umbel.featuresets import Featureset, featureset
from umbel.featuresets import feature as F

__owner__ = "tests@example.com"


def changing(dtype: Any, made: Expr) -> Featureset:
    body = {"__annotations__": {"a": dtype, "b": dtype}, "__module__": __name__, "b": F(made)}
    return featureset(type("Changing", (), body))


def things(version: int, **others: Any) -> Dataset:
    fields = {"uid": int, **others, "t": datetime}
    body = {"__annotations__": fields, "__module__": __name__, "uid": field(key=True)}
    made = dataset(index=True, version=version)(type("Things", (), body))
    return source(webhook.endpoint("things"), disorder="14d", cdc="upsert")(made)


VERSIONS = {
    "int": (changing(int, col("a") + 1), [1], 2),
    "optional": (changing(Optional[int], col("a") + 1), pd.array([None], dtype="Int64"), pd.NA),
    "text": (changing(str, col("a").str.concat("!")), ["x"], "x!"),
    "list": (changing(list[int], col("a")), [[1, 2]], [1, 2]),
    "instant": (changing(datetime, col("a")), [JAN], JAN),
    "number": (changing(int, col("a") + 1), [1_704_067_200], 1_704_067_201),
}


@pytest.fixture
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    yield from served_at(tmp_path_factory.mktemp("served") / "umbel")


@pytest.fixture
def old(platform: Platform) -> Iterator[Client]:
    """Another client of the platform, which does not learn of commits."""
    inner: httpx.Client = platform.client._transport._http._http  # type: ignore[attr-defined]
    with patch("umbel.client.schemas.RENEWAL", 0.0), patch.object(inner._transport, "close"):
        yield Client("http://umbel", transport=inner._transport)


def test_changed_features(platform: Platform, old: Client) -> None:
    for made, values, expected in VERSIONS.values():
        platform.client.commit("m", featuresets=[made])
        platform.settle()
        frame = pd.DataFrame({"Changing.a": values, "at": [JAN]})
        for found in (
            old.query(["Changing.a"], ["Changing.b"], frame),
            old.query_offline(["Changing.a"], ["Changing.b"], "at", frame),
        ):
            assert str(found["Changing.b"].iloc[0]) == str(expected)


def test_values_that_fit_no_type_are_refused_without_end_of_requests(platform: Platform, old: Client) -> None:
    platform.client.commit("m", featuresets=[VERSIONS["int"][0]])
    platform.settle()
    fetched: list[str] = []
    transport: Any = old._transport
    loaded = transport._serving
    frame = pd.DataFrame({"Changing.a": ["x"]})
    with (
        patch("umbel.client.schemas.RENEWAL", 1000.0),
        patch.object(transport._schemas, "_fetch", lambda branch: fetched.append(branch) or loaded(branch)),
    ):
        for _ in range(5):
            with pytest.raises(InvalidValue, match="expected int, got 'x'"):
                old.query(["Changing.a"], ["Changing.b"], frame)
    assert fetched == ["main"] * 2


def test_the_error_is_that_of_the_value_if_no_types_come(platform: Platform, old: Client) -> None:
    platform.client.commit("m", featuresets=[VERSIONS["int"][0]])
    platform.settle()
    old.query(["Changing.a"], ["Changing.b"], pd.DataFrame({"Changing.a": [1]}))
    transport: Any = old._transport
    with patch.object(transport._schemas, "_fetch", side_effect=Unreachable("no answer")):
        for _ in range(2):
            with pytest.raises(InvalidValue, match="expected int, got 'x'"):
                old.query(["Changing.a"], ["Changing.b"], pd.DataFrame({"Changing.a": ["x"]}))


def test_changed_datasets(platform: Platform, old: Client) -> None:
    row = {"uid": [1], "v": [5], "t": [JAN]}
    for version, others in enumerate([{}, {"v": int}, {"v": str}], 1):
        platform.client.commit("m", datasets=[things(version, **others)])
        platform.settle()
        platform.client.log("shop", "things", pd.DataFrame(row))
        platform.settle()
        assert list(old.inspect("Things").columns) == ["uid", *others, "t"]
    assert old.inspect("Things")["v"].tolist() == ["5"]
