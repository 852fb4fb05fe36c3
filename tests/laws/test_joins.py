"""Joins and choices: whatever the batches and their order, the changes add up to what plain Python says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples
from umbel.operators.dedup import Dedup
from umbel.operators.first import First
from umbel.operators.index import Index, IndexMode
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.latest import Latest
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Clock, Keyed, Operator
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.dtypes import Int, Str
from umbel.types.schema import Schema
from umbel.types.windows import Session, Tumbling

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LEFT = Schema((), (("k", Int()), ("v", Str())), "t")
TABLE = Schema((("id", Int()),), (("k", Int()), ("v", Str())), "t")
RIGHT = Schema((("k", Int()),), (("r", Int()),), "rt")

rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.sampled_from("ab")), max_size=4)
writes = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 9), st.sampled_from("ab"), st.booleans()),
    max_size=5,
)
"""Key, minute, value, and whether a row begins there; otherwise that of the key ends, if there is any."""
batches = st.lists(st.tuples(writes, writes), max_size=4)


def at(minute: int) -> datetime:
    return EPOCH + timedelta(minutes=minute)


class Engine:
    """A few operators over one store in memory."""

    def __init__(self) -> None:
        self.store, self.seq, self.batch = MemoryStore(shards=1), 0, 0

    def step(self, operator: Keyed, *changes: pl.DataFrame, owner: str = "") -> pl.DataFrame:
        self.batch += 1
        owner = owner or operator.id
        with self.store.transaction(0, [owner], Stamp(0, self.batch)) as transaction:
            return operator.step(changes, State(transaction, owner), Clock())

    def changes(self, schema: Schema, values: list[dict[str, Any]]) -> pl.DataFrame:
        numbered = []
        for value in values:
            self.seq += 1
            numbered.append({"_weight": 1, "_at": value[schema.timestamp], "_seq": self.seq, **value})
        return pl.DataFrame(numbered, schema=schema.changes(), orient="row")


def total(frames: list[pl.DataFrame], names: list[str]) -> Counter[Any]:
    summed: Counter[Any] = Counter()
    for frame in frames:
        for row in frame.select(*names, "_at", "_weight").iter_rows():
            summed[row[:-1]] += row[-1]
    return Counter({row: count for row, count in summed.items() if count})


def leaf(name: str, schema: Schema) -> Leaf:
    return Leaf(dataset=name, version=1, columns=schema)


def weight(begins: bool) -> int:
    return 1 if begins else -1


def versions(drawn_rows: Sequence[tuple[Any, ...]]) -> dict[int, list[tuple[int, int]]]:
    """Return for each key its (minute, value) pairs in time order; of one minute the last given wins."""
    found: dict[int, dict[int, int]] = {}
    for number, (key, minute, *_) in enumerate(drawn_rows):
        found.setdefault(key, {})[minute] = number
    return {key: sorted(by_minute.items()) for key, by_minute in found.items()}


BEGUN, ENDED_TWICE = [(0, 6, "a", True)], [(0, 7, "a", False), (0, 9, "a", False)]
"""Right rows: of two ends that come together the second one ends nothing."""


@given(batches, st.sampled_from([None, 2]), st.sampled_from([0, 1]), st.booleans())
@example([([(0, 9, "a", True)], BEGUN), ([], ENDED_TWICE)], None, 0, False)
@examples(200)
def test_as_of_join_is_confluent(drawn_batches: Any, back: int | None, ahead: int, inner: bool) -> None:
    engine, sides = Engine(), (leaf("L", LEFT), leaf("R", RIGHT))
    index = Index(parents=(sides[1],), dataset="R", mode=IndexMode.UPSERT)
    minute = 60_000_000
    join = AsOfJoin(
        parents=sides, on=(("k", "k"),), inner=inner, back=back and back * minute, ahead=ahead * minute, fields=("r",)
    )
    out, lefts, rights = [], [], []
    for left_rows, right_rows in drawn_batches:
        lefts += left_rows
        numbered = [
            {"k": k, "r": len(rights) + i, "rt": at(m), "_weight": weight(begins)}
            for i, (k, m, _, begins) in enumerate(right_rows)
        ]
        rights += right_rows
        right = engine.step(index, engine.changes(RIGHT, numbered), owner=sides[1].id) if numbered else RIGHT.empty()
        left = engine.changes(LEFT, [{"k": k, "v": v, "t": at(m)} for k, m, v, _ in left_rows])
        out.append(engine.step(join, left, right))
    expected: Counter[Any] = Counter()
    history = versions(rights)
    for key, minute_of, value, _ in lefts:
        fits = [(m, number) for m, number in history.get(key, []) if m <= minute_of + ahead]
        found = fits[-1] if fits and (back is None or fits[-1][0] >= minute_of - back) else None
        found = found if found and rights[found[1]][3] else None
        if found or not inner:
            expected[key, value, at(minute_of), found and found[1], at(minute_of)] += 1
    assert total(out, ["k", "v", "t", "r"]) == expected


@given(batches, st.booleans())
@example([([(0, 4, "a", True)], BEGUN), ([], ENDED_TWICE)], True)
@examples(200)
def test_table_join_is_confluent(drawn_batches: Any, inner: bool) -> None:
    engine, sides = Engine(), (leaf("L", TABLE), leaf("R", RIGHT))
    indexes = [Index(parents=(side,), dataset=side.dataset, mode=IndexMode.UPSERT) for side in sides]
    join = TableJoin(parents=sides, on=(("k", "k"),), inner=inner, fields=("r",))
    out: list[pl.DataFrame] = []
    lefts: list[tuple[int, int, str, bool]] = []
    rights: list[tuple[int, int, str, bool]] = []
    for left_rows, right_rows in drawn_batches:
        frames = []
        named = [
            {"id": i, "k": ord(v) - ord("a"), "v": v, "t": at(m), "_weight": weight(begins)}
            for i, m, v, begins in left_rows
        ]
        numbered = [
            {"k": k % 2, "r": len(rights) + i, "rt": at(m), "_weight": weight(begins)}
            for i, (k, m, _, begins) in enumerate(right_rows)
        ]
        lefts, rights = lefts + left_rows, rights + [(k % 2, *others) for k, *others in right_rows]
        for side, index, schema, values in zip(sides, indexes, (TABLE, RIGHT), (named, numbered), strict=True):
            rows_in = engine.changes(schema, values)
            frames.append(engine.step(index, rows_in, owner=side.id) if values else schema.empty())
        if named or numbered:
            out.append(engine.step(join, *frames))
    assert total(out, ["id", "v", "t", "r"]) == _overlaps(lefts, rights, inner)


def _overlaps(
    lefts: list[tuple[int, int, str, bool]], rights: list[tuple[int, int, str, bool]], inner: bool
) -> Counter[Any]:
    """Walk minute by minute: what is the joined row of each id now?"""
    report: Counter[Any] = Counter()
    right = versions(rights)
    for key, story in versions(lefts).items():
        before: Any = None
        for minute in range(12):
            current = [number for m, number in story if m <= minute]
            now: Any = None
            if current and lefts[current[-1]][3]:
                value = lefts[current[-1]][2]
                known = [number for m, number in right.get(ord(value) - ord("a"), []) if m <= minute]
                match = known[-1] if known and rights[known[-1]][3] else None
                if match is not None or not inner:
                    now = (current[-1], key, value, match)
            if now != (before and before[0]):
                if before:
                    report[*before[0][1:3], before[1], before[0][3], at(minute)] -= 1
                if now:
                    report[*now[1:3], at(minute), now[3], at(minute)] += 1
                before = now and (now, at(minute))
    return Counter({row: count for row, count in report.items() if count})


def _latest(drawn_rows: list[tuple[int, int, str]]) -> Counter[Any]:
    report: Counter[Any] = Counter()
    for key, story in versions(drawn_rows).items():
        for (minute, number), later in zip(story, [*story[1:], None], strict=True):
            report[key, drawn_rows[number][2], at(minute), at(minute)] += 1
            if later:
                report[key, drawn_rows[number][2], at(minute), at(later[0])] -= 1
    return Counter({row: count for row, count in report.items() if count})


def _first(drawn_rows: list[tuple[int, int, str]]) -> Counter[Any]:
    best: dict[int, tuple[int, int]] = {}
    for number, (key, minute, _) in enumerate(drawn_rows):
        best[key] = min(best.get(key, (minute, number)), (minute, number))
    return Counter({(k, drawn_rows[n][2], at(m), at(m)): 1 for k, (m, n) in best.items()})


def _dedup(drawn_rows: list[tuple[int, int, str]], window: str) -> Counter[Any]:
    report: Counter[Any] = Counter()
    for key in {row[0] for row in drawn_rows}:
        mine = sorted((m, n) for n, (k, m, _) in enumerate(drawn_rows) if k == key)
        for (minute, number), later in zip(mine, [*mine[1:], None], strict=True):
            ends = {
                "instant": later is None or later[0] != minute,
                "tumbling": later is None or later[0] // 3 != minute // 3,
                "session": later is None or later[0] - minute >= 2,
            }
            if ends[window]:
                report[key, drawn_rows[number][2], at(minute), at(minute)] += 1
    return report


def _made(kind: str) -> tuple[Keyed, Any]:
    source: Operator = leaf("L", LEFT)
    window = {"tumbling": Tumbling("3m"), "session": Session("2m"), "instant": None}
    if kind == "latest":
        return Latest(parents=(source,), keys=("k",)), _latest
    if kind == "first":
        return First(parents=(source,), keys=("k",)), _first
    return Dedup(parents=(source,), by=("k",), window=window[kind]), lambda drawn_rows: _dedup(drawn_rows, kind)


@pytest.mark.parametrize("kind", ["latest", "first", "instant", "tumbling", "session"])
@given(st.lists(rows, max_size=4), st.data())
@examples(40)
def test_choices_are_confluent_and_undone_by_retraction(kind: str, drawn_batches: Any, data: st.DataObject) -> None:
    """Rows come in batches; some are retracted again: what is left decides."""
    engine = Engine()
    operator, expected = _made(kind)
    out, fed = [], []
    for batch in drawn_batches:
        if batch:
            frame = engine.changes(LEFT, [{"k": k, "v": v, "t": at(m)} for k, m, v in batch])
            fed += list(zip(batch, frame.iter_slices(1), strict=True))
            out.append(engine.step(operator, frame))
    taken = data.draw(st.sets(st.integers(0, max(len(fed) - 1, 0)))) if fed else set()
    if taken:
        back = pl.concat([fed[number][1] for number in sorted(taken)]).with_columns(-pl.col("_weight"))
        out.append(engine.step(operator, back))
    left = [row for number, (row, _) in enumerate(fed) if number not in taken]
    assert total(out, ["k", "v", "t"]) == expected(left)


@pytest.mark.parametrize("kind", ["latest", "first", "instant", "tumbling", "session"])
def test_a_corrected_row_is_corrected_downstream(kind: str) -> None:
    """A join corrects a row by taking it back and giving it again with other values, at the same place of its source."""
    engine = Engine()
    operator, expected = _made(kind)
    first = engine.changes(LEFT, [{"k": 1, "v": "a", "t": at(0)}, {"k": 1, "v": "a", "t": at(5)}])
    corrected = first.with_columns(pl.lit("b").alias("v"))
    out = [engine.step(operator, first)]
    out.append(engine.step(operator, pl.concat([first.with_columns(-pl.col("_weight")), corrected])))
    assert total(out, ["k", "v", "t"]) == expected([(1, 0, "b"), (1, 5, "b")])
