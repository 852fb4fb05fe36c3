"""Slices of history are read from change logs, and a batch of which parts are read is read once."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from umbel.runtime import history_reader
from umbel.runtime.history_reader import HistoryReader
from umbel.runtime.history_slices import HistorySlice
from umbel.types.dtypes import Int, Str
from umbel.types.schema import Schema

SCHEMA = Schema((("k", Str()),), (("v", Int()),), "at")


class Changes:
    """Change logs of ten rows in each batch; counts what is read."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.columns: list[str] | None = None

    def read(
        self, node: Any, condition: pl.Expr | None, *, first: int, until: int, columns: list[str] | None = None
    ) -> pl.DataFrame:
        self.reads.append(node.log)
        self.columns = columns
        batches = [number // 10 for number in range(50)]
        rows = pl.DataFrame({"k": [f"{node.log}-{n}" for n in range(50)], "v": range(50), "_batch": batches})
        at = pl.col("v").reverse().cast(pl.Datetime("us", "UTC")).alias("at")
        found = rows.with_columns(at).filter(pl.col("_batch").is_between(first, until))
        return (found if condition is None else found.filter(condition)).drop("_batch")


def node(log: str, schema: Schema = SCHEMA) -> Any:
    return SimpleNamespace(log=log, operator=SimpleNamespace(schema=schema))


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def reader(changes: Changes) -> HistoryReader:
    return HistoryReader(SimpleNamespace(changes=changes))  # type: ignore[arg-type]


def parts(batch: int) -> list[HistorySlice]:
    return [HistorySlice(batch, batch, part, part + 1, 3) for part in range(3)]


def test_a_batch_is_read_once_for_all_its_parts(reader: HistoryReader, changes: Changes) -> None:
    for batch in (1, 2):
        found = [reader.read(node(log), piece, retain=True) for piece in parts(batch) for log in ("a", "b")]
        assert sorted(pl.concat(found)["v"]) == sorted([*range(batch * 10, batch * 10 + 10)] * 2)
    assert changes.reads == ["a", "b", "a", "b"]


def test_whole_batches_and_large_ones_are_not_retained(
    reader: HistoryReader, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_reader, "RETAINED_BYTES", 10)
    reader.read(node("a"), HistorySlice(1, 3), retain=True)
    found = [reader.read(node("a"), piece, retain=True) for piece in parts(1)]
    assert sorted(pl.concat(found)["v"]) == [*range(10, 20)]
    assert len(changes.reads) == 4


def test_what_is_released_is_read_again(reader: HistoryReader, changes: Changes) -> None:
    (first, *_) = parts(1)
    reader.read(node("a"), first, retain=True)
    reader.release()
    reader.read(node("a"), first, retain=True)
    reader.read(node("a"), first)
    assert len(changes.reads) == 3


def test_only_named_columns_are_read_with_those_of_changes_and_slices(reader: HistoryReader, changes: Changes) -> None:
    reader.read(node("a"), HistorySlice(1, 3), columns=set())
    assert changes.columns == ["k", "at", "_at", "_weight", "_seq"]
    reader.read(node("a"), HistorySlice(1, 3), columns={"v"})
    assert changes.columns == ["k", "v", "at", "_at", "_weight", "_seq"]
    reader.read(node("a"), HistorySlice(1, 3))
    assert changes.columns is None


@pytest.mark.parametrize("retain", [False, True])
def test_parts_of_keyless_rows_are_ranges_of_time(reader: HistoryReader, changes: Changes, *, retain: bool) -> None:
    keyless = node("a", Schema((), (("v", Int()),), "at"))
    found = [reader.read(keyless, piece, retain=retain)["at"] for piece in parts(2)]
    assert [part.len() for part in found] == [3, 3, 4]
    assert all(before.max() < after.min() for before, after in pairwise(found))  # type: ignore[operator]
    assert len(changes.reads) == (2 if retain else 4)  # the first one found the ranges


def test_parts_of_a_batch_without_rows_of_a_node_are_empty(reader: HistoryReader) -> None:
    """Another node of the backfill has the rows of that batch."""
    keyless = node("a", Schema((), (("v", Int()),), "at"))
    assert all(reader.read(keyless, piece).is_empty() for piece in parts(77))


def test_what_is_retained_has_all_columns(reader: HistoryReader, changes: Changes) -> None:
    reader.read(node("a"), parts(1)[0], retain=True, columns=set())
    assert changes.columns is None
