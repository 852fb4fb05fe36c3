"""Dead letters of typed files that are processed again."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.catalog.replays import LetterFilter
from umbel.connectors import Files, source
from umbel.connectors import eval as computed
from umbel.datasets import dataset
from umbel.dtypes import Decimal, struct
from umbel.runtime.batch import drain
from umbel.runtime.replays import replay_letters

__owner__ = "tests@example.com"
READY = "IS_READY_FOR_ROWS"
AT = datetime(2026, 3, 1, 0, 0, 1, 123456, tzinfo=UTC)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    monkeypatch.delenv(READY, raising=False)
    (tmp_path / "in").mkdir()
    found = Deployed(tmp_path / "umbel")
    yield found
    found.close()


def checked(df: Any) -> Any:
    if READY not in os.environ:
        raise ValueError("it is not ready")
    return df["number"]


def replay(made: Deployed, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay all dead letters of the dataset, once its function accepts their rows."""
    drain(made.deployment)
    assert len(made.deployment.catalog.dead_letters("Event")) == count
    monkeypatch.setenv(READY, "1")
    assert replay_letters(made.deployment, LetterFilter(dataset="Event")).count == count
    drain(made.deployment)


def test_the_values_of_typed_rows_are_as_in_the_file(
    made: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @struct
    class Point:
        x: float
        raw: bytes | None

    @source(
        Files(name="f", folder=str(tmp_path / "in")).path("*.parquet", "parquet"),
        disorder="3650d",
        cdc="append",
        preproc={"same": computed(checked, schema={"number": int})},
    )
    @dataset
    class Event:
        number: int
        same: int
        score: float | None
        photo: bytes
        price: Decimal[2]
        point: Point
        pieces: list[bytes]
        day: date
        at: datetime

    scores = [1.5, math.nan, math.inf, -math.inf, None]
    others = {"price": Number("1.50"), "pieces": [b"a", b"\xfe"], "day": date(2026, 1, 1), "at": AT}
    rows = [
        {"number": n, "score": score, "photo": bytes([0, 255, n]), "point": {"x": math.nan, "raw": b"\xff"}, **others}
        for n, score in enumerate(scores)
    ]
    pl.DataFrame(rows, schema_overrides={"price": pl.Decimal(18, 2)}).write_parquet(tmp_path / "in" / "a.parquet")
    made.commit([Event])
    replay(made, len(rows), monkeypatch)
    found = made.changes("Event").sort("number").select(rows[0].keys()).to_dicts()
    assert repr([{**row, "at": row["at"].astimezone(UTC)} for row in found]) == repr(rows)  # NaN equals nothing
