"""The change logs of a deployment: parts of large batches, the tail of small ones, backfills before all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from umbel.graph.graph import GraphNode
from umbel.operators.leaf import Leaf
from umbel.runtime.changelogs import ChangeLogs
from umbel.state.port import Stamp
from umbel.types.dtypes import Int
from umbel.types.schema import Schema

AT = datetime(2013, 1, 1, tzinfo=UTC)


def node() -> Any:
    leaf = Leaf(parents=(), dataset="Payment", version=1, columns=Schema((), (("user", Int()),), "at"))
    return GraphNode(leaf, (), leaf.id, 0, 0, dataset="Payment")


def changes(user: int) -> pl.DataFrame:
    row = {"user": user, "at": AT, "_at": AT, "_weight": 1, "_seq": user}
    return pl.DataFrame([row], schema=Schema((), (("user", Int()),), "at").changes())


def users(logs: ChangeLogs, of: Any, **options: Any) -> list[int]:
    return sorted(logs.read(of, **options)["user"])


def test_batches_of_all_kinds_are_there_once(tmp_path: Path) -> None:
    logs, log = ChangeLogs(tmp_path), node()
    for _ in range(2):  # every step may be repeated
        logs.commit(-1, [logs.write_part(log, Stamp(1, -1), "0-0", [changes(0)])], {log.log: log})
        logs.keep(log, 0, [changes(1)])
        logs.commit(1, [logs.write_part(log, Stamp(1, 1), f"1-{n}", [changes(2 + n)]) for n in (0, 1)], {log.log: log})
        logs.keep(log, 2, [changes(4)])
        assert users(logs, log) == [0, 1, 2, 3, 4]
        assert users(logs, log, until=1) == [0, 1, 2, 3]
        assert users(logs, log, predicate=pl.col("user") > 2) == [3, 4]
        assert logs.sizes(log, until=1) == {-1: 1, 0: 1, 1: 2}
        assert logs.sizes(log, until=2, after=0) == {1: 2, 2: 1}
        logs.flush(log, everything=True)
    assert users(logs, log) == [0, 1, 2, 3, 4]
