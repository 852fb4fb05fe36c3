"""What users' functions may return, and which pipelines of a dataset run."""

from datetime import date, datetime, timezone
from decimal import Decimal as Number
from typing import Any, Optional

import numpy as np
import pandas as pd
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous, Decimal
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "team@example.com"
T = datetime(2024, 1, 1, tzinfo=timezone.utc)
ROWS = pd.DataFrame({"k": [1, 2, 1], "v": [1, 2, 3], "t": [T] * 3})


@source(Webhook(name="w").endpoint("A"), disorder="14d", cdc="append")
@dataset
class A:
    k: int
    v: int
    t: datetime


@pytest.mark.parametrize(
    ("declared", "value", "stored"),
    [
        (int, 7, 7),
        (int, np.int64(7), 7),
        (float, 1, 1.0),
        (float, np.float64(1.5), 1.5),
        (bool, True, True),
        (str, "x", "x"),
        (bytes, b"x", b"x"),
        (date, date(2020, 1, 2), date(2020, 1, 2)),
        (Decimal[2], Number("1.5"), Number("1.50")),
        (Optional[float], np.nan, pd.NA),
    ],
)
def test_one_value_for_all_rows(declared: Any, value: Any, stored: Any) -> None:
    @dataset
    class B:
        k: int
        v: int
        x: declared
        t: datetime

        @pipeline
        @inputs(A)
        def p(cls, a: Dataset):
            return a.assign("x", declared, lambda df: value)

    client = MockClient()
    client.commit("m", [A, B])
    client.log("w", "A", ROWS)
    assert client.get_dataset_df("B")["x"].tolist() == [stored] * 3


def test_pipelines_of_several_environments() -> None:
    @dataset(index=True)
    class B:
        k: int = field(key=True)
        n: int
        t: datetime

        @pipeline(env="prod")
        @inputs(A)
        def counted(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Count(window=Continuous("forever")))

        @pipeline(env=["dev", "test"])
        @inputs(A)
        def summed(cls, a: Dataset):
            return a.groupby("k").aggregate(n=Sum(of="v", window=Continuous("forever")))

    for env, expected in {"prod": [2, 1], "test": [4, 2], None: [4, 2]}.items():
        client = MockClient()
        client.commit("m", [A, B], env=env)
        client.log("w", "A", ROWS)
        rows, _ = client.lookup(B, pd.DataFrame({"k": [1, 2]}))
        assert rows["n"].tolist() == expected
