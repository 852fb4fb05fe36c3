"""Aliases of features whose featureset is not committed (api §6.4)."""

from datetime import datetime, timezone
from decimal import Decimal as PythonDecimal
from typing import Optional

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.api.commit import check_commit
from umbel.dtypes import Decimal
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@featureset
class Request:
    uid: int = F()
    amount: Optional[Decimal[1]] = F()


@featureset
class Aliases:
    """No python extractor: `Request` need not be committed."""

    uid: int = F(Request.uid)
    amount: Decimal[1] = F(Request.amount, default=0.25)
    next: int = F(col("uid") + 1)


@featureset
class Chained:
    uid: int = F(Aliases.uid)
    double: int

    @extractor
    @inputs("uid")
    @outputs("double")
    def doubled(cls, ts, uid):
        return (uid * 2).rename("double")


@featureset
class Reading:
    double: int

    @extractor(env="prod")
    @inputs(Request.uid)
    @outputs("double")
    def doubled(cls, ts, uid):
        return (uid * 2).rename("double")


@mock
def test_aliases_of_featuresets_that_are_not_committed(client) -> None:
    client.commit(message="m", featuresets=[Aliases])
    found = client.query([Request.uid], [Aliases.next], pd.DataFrame({"Request.uid": [1, 2]}))
    assert found["Aliases.next"].tolist() == [2, 3]
    found = client.query(["Request.uid"], ["Aliases.uid"], pd.DataFrame({"Request.uid": [1, 2]}))
    assert found["Aliases.uid"].tolist() == [1, 2]
    # a Feature has its declared type, text has none
    with pytest.raises(Exception, match=r"Request.uid.*int"):
        client.query([Request.uid], [Aliases.next], pd.DataFrame({"Request.uid": ["x"]}))
    frame = pd.DataFrame({"Request.amount": [PythonDecimal("1.5"), None]})
    found = client.query([Request.amount], [Aliases.amount], frame)
    assert found["Aliases.amount"].tolist() == [PythonDecimal("1.5"), PythonDecimal("0.2")]
    offline = client.query_offline(
        [Request.uid],
        [Aliases.next],
        timestamp_column="ts",
        input_dataframe=pd.DataFrame({"Request.uid": [4], "ts": [T]}),
    )
    assert offline["Aliases.next"].tolist() == [5]
    with pytest.raises(ValueError, match=r"Request\.uid"):
        client.query([], [Aliases.next], pd.DataFrame({"x": [1]}))


def test_python_extractors_need_the_featuresets_they_read() -> None:
    with refusal(ValueError, "doubled", "Request"):
        check_commit([], [Reading])
    with refusal(ValueError, "doubled", "Request"):
        check_commit([], [Reading], env="prod")
    check_commit([], [Reading], env="dev")
    check_commit([], [Reading, Request])


def test_aliases_beside_python_extractors_need_theirs() -> None:
    with refusal(ValueError, "Chained", "Aliases"):
        check_commit([], [Chained])
    with refusal(ValueError, "Aliases", "Request"):  # following aliases on
        check_commit([], [Chained, Aliases])
    check_commit([], [Chained, Aliases, Request])
    check_commit([], [Aliases])
