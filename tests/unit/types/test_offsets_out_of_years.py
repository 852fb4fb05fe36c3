"""Instants of the first and the last year whose offset leads out of them: no value Python can return."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.refusals import refusal
from umbel.api.bucketize import bucketize
from umbel.connectors import Webhook, source
from umbel.expr import datetime as instant
from umbel.expr import lit
from umbel.types.dtypes import Datetime, List

BEFORE = dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9)))
AFTER = dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(dt.timedelta(hours=-9)))
WEB = Webhook(name="web").endpoint("rows")

USES: list[Callable[[dt.datetime], Any]] = [
    lambda at: lit(at, dt.datetime),
    lambda at: bucketize(at, "1h"),
    lambda at: source(WEB, disorder="1d", cdc="append", since=at),
    lambda at: source(WEB, disorder="1d", cdc="append", until=at),
]


@pytest.mark.parametrize("at", [BEFORE, AFTER])
def test_a_value_of_a_column(at: dt.datetime) -> None:
    assert Datetime().ingest([at, "2026-01-01"]).errors.keys() == {0}
    assert List(Datetime()).ingest([[at]]).errors.keys() == {0}


@pytest.mark.parametrize("at", [BEFORE, AFTER])
@pytest.mark.parametrize("use", USES)
def test_a_value_of_a_definition(use: Callable[[dt.datetime], Any], at: dt.datetime) -> None:
    with refusal(ValueError, str(at.year), at=False):
        use(at)


@pytest.mark.parametrize(
    "parts", [(1, 1, 1, 0, 0, 0, 0, "Asia/Tokyo"), (9999, 12, 31, 23, 0, 0, 0, "America/New_York"), (2**70, 1, 1)]
)
def test_a_constant_of_an_expression(parts: tuple[Any, ...]) -> None:
    with refusal(ValueError, "datetime: ", at=False):
        instant(*parts).typeof()
