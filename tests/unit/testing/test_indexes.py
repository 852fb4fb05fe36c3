"""Which indexes a dataset has, seen by lookups."""

from datetime import datetime, timezone

import pandas as pd

from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, index
from umbel.testing import MockClient

__owner__ = "team@example.com"

webhook = Webhook(name="w")

JAN1 = datetime(2024, 1, 1, tzinfo=timezone.utc)


def test_index_combinations() -> None:
    def of(**options: object) -> str:
        @source(webhook.endpoint("I"), disorder="1d", cdc="upsert")
        @dataset(**options)
        class D:
            k: int = field(key=True)
            v: int
            t: datetime

        return works(D)

    assert of(index=True) == "online offline"
    assert of(index=True, offline=False) == "online"
    assert of(index=True, online=False) == "offline"
    assert of(index=True, online=False, offline=False) == ""
    assert of(online=True) == "online"
    assert of(offline=True) == "offline"
    assert of() == ""
    assert of(index=False) == ""


def works(D: Dataset) -> str:
    client = MockClient()
    client.commit("m", [D])
    client.log("w", "I", pd.DataFrame({"k": [1], "v": [2], "t": [JAN1]}))
    found = []
    keys = pd.DataFrame({"k": [1]})
    for name, options in {"online": {}, "offline": {"timestamps": pd.Series([JAN1])}}.items():
        try:
            rows, is_found = client.lookup("D", keys, **options)
        except ValueError as error:
            expected = (
                f"{name} index"
                if D._body.is_indexed and (D._record.online or D._record.offline)
                else "define an index on dataset D"
            )
            if expected not in str(error):
                raise
        else:
            assert is_found.tolist() == [True]
            assert rows["v"].tolist() == [2]
            found.append(name)
    return " ".join(found)


def test_index_decorator() -> None:
    def of(decorator: object) -> str:
        @decorator
        @source(webhook.endpoint("I"), disorder="1d", cdc="upsert")
        @dataset
        class D:
            k: int = field(key=True)
            v: int
            t: datetime

        return works(D)

    assert of(index) == "online offline"
    assert of(index()) == "online offline"
    assert of(index(type="primary", online=True, offline=None)) == "online"
    assert of(index(online=False, offline="forever")) == "offline"
