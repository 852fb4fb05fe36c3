"""Rows behind the watermark can change no result any more: the state drops them."""

from __future__ import annotations

import polars as pl
import pytest

from tests.unit.operators.frames import changes, day, leaf, schema
from umbel.operators.dedup import Dedup
from umbel.operators.operator import Clock
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.windows import Session, Tumbling

CLICKS = schema(click=int)


@pytest.mark.parametrize("window", [Tumbling("1d"), Session("12h"), None])
def test_dedup_forgets_rows_behind_the_watermark(window: Tumbling | Session | None) -> None:
    operator = Dedup(parents=(leaf(CLICKS),), by=("click",), window=window)
    store = MemoryStore(shards=1)

    def emitted(number: int, at: float, watermark: float) -> int:
        rows = changes(CLICKS, (7, at, at, 1)).with_columns(pl.lit(number, pl.Int64).alias("_seq"))
        with store.transaction(0, ["op"], Stamp(0, number)) as transaction:
            found = operator.step((rows,), State(transaction, "op"), Clock(watermark=day(watermark)))
        return int(found.filter(pl.col("_weight") < 0).height)

    emitted(0, 0.1, -5)
    assert emitted(1, 0.1, 0.05) == 1, "the row before is there, and retracted"
    assert emitted(2, 0.1, 3) == 0, "it was dropped: its window has been over for long"
