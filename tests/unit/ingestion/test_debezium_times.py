"""Times of deletions in Debezium's envelopes: those in µs count, so that changes within a millisecond keep their order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from tests.unit.ingestion.test_rows import dataset, feed, taken
from umbel.connectors import Webhook, source
from umbel.datasets import dataset as declared
from umbel.datasets import field
from umbel.runtime.batch import drain

__owner__ = "tests@example.com"
TABLE = dataset(("k",), k=int, t=datetime)
T0 = datetime(2026, 3, 1, tzinfo=UTC)
MS = 1_772_323_200_000


@pytest.mark.parametrize(
    ("times", "micros"),
    [
        ({"source": {"ts_ms": MS + 1, "ts_us": MS * 1000 + 300}}, 300),
        ({"source": {"ts_ms": MS + 1}, "ts_us": MS * 1000 + 300}, 1000),
        ({"ts_ms": MS + 1, "ts_us": MS * 1000 + 300}, 300),
        ({"source": {"ts_us": None, "ts_ms": MS + 1}}, 1000),
        ({"source": {"ts_us": "1", "ts_ms": MS + 1}}, 1000),
        ({"source": {"ts_us": 0, "ts_ms": 0}, "ts_ms": MS}, 0),
        ({"source": None, "ts_ms": MS + 0.5}, 500),
    ],
    ids=repr,
)
def test_the_time_of_a_deletion(times: dict[str, Any], micros: int) -> None:
    found = taken([{"op": "d", "before": {"k": 1}, "after": None, **times}], feed("debezium"), TABLE)
    assert found.frame["_at"].to_list() == [T0 + timedelta(microseconds=micros)]


def test_a_time_of_no_year_is_named() -> None:
    found = taken([{"op": "d", "before": {"k": 1}, "source": {"ts_us": 1 << 60}}], feed("debezium"), TABLE)
    assert found.rejects["reason"][0].startswith("ts_us is 1152921504606846976")


def test_changes_within_a_millisecond_keep_their_order(tmp_path: Path) -> None:
    @source(Webhook(name="web").endpoint("rows"), disorder="3650d", cdc="debezium")
    @declared(index=True)
    class Row:
        k: int = field(key=True)
        t: datetime

    def change(op: str, k: int, micros: int, at: int) -> dict[str, Any]:
        row = {"k": k, "t": (T0 + timedelta(microseconds=at)).isoformat()}
        sides = {"before": {"k": k} if k == 2 else row, "after": None} if op == "d" else {"before": None, "after": row}
        # sinks of umbel round milliseconds up, Debezium rounds them down
        millis = -(-micros // 1000) if k == 1 else micros // 1000
        return {"op": op, **sides, "source": {"ts_ms": MS + millis, "ts_us": MS * 1000 + micros}}

    made = Deployed(tmp_path / "umbel")
    made.commit([Row])
    made.log("rows", [change("c", 1, 100, 100), change("d", 1, 300, 100), change("c", 1, 500, 500)])
    made.log("rows", [change("c", 2, 700, 300), change("d", 2, 700, 300)])
    drain(made.deployment)
    first, second = made.lookup("Row", [{"k": 1}, {"k": 2}], [T0 + timedelta(days=1)] * 2)
    assert first["t"] == T0 + timedelta(microseconds=500)
    assert second is None
    made.close()
