"""Fields may have names that begin with an underscore, whatever the operators add to their rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from umbel.datasets import Count, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Session, Tumbling
from umbel.errors import InvalidValue
from umbel.lib import inputs
from umbel.testing import MockClient

__owner__ = "test@umbel.dev"
START = datetime(2024, 1, 1, tzinfo=UTC)


@dataset
class Hits:
    _group: int
    _source: int
    _bucket: int
    _row: int
    _found: int
    at: datetime


@index
@dataset
class Latest:
    _group: int = field(key=True)
    _source: int
    _bucket: int
    _row: int
    _found: int
    at: datetime

    @pipeline
    @inputs(Hits)
    def latest(cls, hits):
        return hits.groupby("_group").latest()


@index
@dataset
class PerHour:
    _source: int = field(key=True)
    _found: int
    at: datetime

    @pipeline
    @inputs(Hits)
    def per_hour(cls, hits):
        single = hits.dedup("_source", "_bucket", window=Tumbling("1h")).dedup("_source", window=Session("1m"))
        return single.groupby("_source").aggregate(_found=Count(window=Tumbling("1h")))


@index
@dataset
class Totals:
    _row: int = field(key=True)
    _found: int
    _history: int
    _changed: int
    at: datetime

    @pipeline
    @inputs(Latest)
    def totals(cls, latest):
        window = Continuous("2h")
        return latest.groupby("_row").aggregate(
            _found=Sum(of="_found", window=window),
            _history=Sum(of="_source", window=window),
            _changed=Count(window=window),
        )


def found(client, dataset, minute, **key):
    values, there = client.lookup(
        dataset, pd.DataFrame([key]), timestamps=pd.Series([START + timedelta(minutes=minute)])
    )
    return [*values.drop(columns=["at", *key]).iloc[0].tolist(), *there.tolist()]


def test_names_of_columns_that_operators_add_are_names_of_fields():
    client = MockClient()
    client.commit("m", datasets=[Hits, Latest, PerHour, Totals])
    for group, source, bucket, minute in [(1, 7, 1, 0), (1, 8, 2, 10), (2, 7, 1, 5), (1, 9, 1, 90), (2, 8, 3, 20)]:
        at = START + timedelta(minutes=minute)
        row = {"_group": group, "_source": source, "_bucket": bucket, "_row": 4, "_found": 100 + minute, "at": at}
        client.log_to("Hits", pd.DataFrame([row]))
    assert found(client, Latest, 15, _group=1) == [8, 2, 4, 110, True]
    assert found(client, PerHour, 60, _source=8) == [2, True]
    assert found(client, PerHour, 60, _source=7) == [1, True]
    assert found(client, Totals, 15, _row=4) == [215, 15, 2, True]
    assert found(client, Totals, 95, _row=4) == [310, 17, 2, True]
    assert not found(client, Totals, 95, _row=5)[-1]


@pytest.mark.parametrize("name", ["_hash", "_removed", "_has_retracted", "_key_of_mine"])
def test_a_name_that_is_stored_beside_the_fields_is_refused(name):
    with pytest.raises(InvalidValue, match=f"column names '{name}' are reserved"):
        dataset(type("Clash", (), {"__annotations__": {name: int, "at": datetime}, "__module__": __name__}))
