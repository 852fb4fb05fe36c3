"""Slices of history are read from change logs, and a batch of which parts are read is read once."""

from __future__ import annotations

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

    def read(self, node: Any, condition: pl.Expr, *, until: int, columns: list[str] | None = None) -> pl.DataFrame:
        self.reads.append(node.log)
        self.columns = columns
        batches = [number // 10 for number in range(50)]
        rows = pl.DataFrame({"k": [f"{node.log}-{n}" for n in range(50)], "v": range(50), "_batch": batches})
        return rows.filter(condition & (pl.col("_batch") <= until)).drop("_batch")


def node(log: str) -> Any:
    return SimpleNamespace(log=log, operator=SimpleNamespace(schema=SCHEMA))


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


def test_what_is_retained_has_all_columns(reader: HistoryReader, changes: Changes) -> None:
    reader.read(node("a"), parts(1)[0], retain=True, columns=set())
    assert changes.columns is None
