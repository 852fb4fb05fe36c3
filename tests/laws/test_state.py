"""Laws of the state layer: keys order as values do, rows come back as they were, tables are maps, undo is exact."""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.profiles import examples
from umbel.errors import InvalidValue
from umbel.state.keys import LONGEST, encode_keys, encode_time, shard_of
from umbel.state.memory import MemoryStore
from umbel.state.port import LAST, MAX_KEY, Stamp, Store
from umbel.state.rows import RowCodec
from umbel.state.tables import State, Table
from umbel.state.urls import open_store

Values = st.SearchStrategy[Any]
INSTANT = pl.Datetime("us", "UTC")
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
SCALE = 5
DIGITS = st.integers(-(10**28) + 1, 10**28 - 1).map(lambda digits: Decimal(digits).scaleb(-SCALE))

SIMPLE: dict[Any, Values] = {
    pl.Int64(): st.integers(-(2**63), 2**63 - 1),
    pl.Int32(): st.integers(-(2**31), 2**31 - 1),
    pl.Int16(): st.integers(-(2**15), 2**15 - 1),
    pl.Int8(): st.integers(-128, 127),
    pl.UInt64(): st.integers(0, 2**64 - 1),
    pl.UInt32(): st.integers(0, 2**32 - 1),
    pl.UInt16(): st.integers(0, 2**16 - 1),
    pl.UInt8(): st.integers(0, 255),
    pl.Float64(): FLOATS,
    pl.Float32(): st.floats(width=32),
    pl.Boolean(): st.booleans(),
    pl.String(): TEXTS,
    pl.Binary(): st.binary(max_size=12),
    INSTANT: TIMES,
    pl.Date(): st.dates(),
    pl.Decimal(28, SCALE): DIGITS,
}


def null_or(values: Values) -> Values:
    return st.none() | values


def nested(kind: Any, values: Values) -> list[tuple[Any, Values]]:
    """Return the types made of a type, with their values."""
    pairs = pl.Struct({"key": pl.String(), "value": kind})
    parts = st.fixed_dictionaries({"key": null_or(TEXTS), "value": null_or(values)})
    return [
        (pl.List(kind), st.lists(null_or(values), max_size=4)),
        (pl.List(pl.List(kind)), st.lists(null_or(st.lists(null_or(values), max_size=3)), max_size=3)),
        (pl.Array(kind, 3), st.lists(null_or(values), min_size=3, max_size=3)),
        (pl.List(pl.Array(kind, 2)), st.lists(null_or(st.lists(null_or(values), min_size=2, max_size=2)), max_size=3)),
        (pairs, parts),
        (pl.List(pairs), st.lists(null_or(parts), max_size=3)),
    ]


SIMPLE_TYPES = list(SIMPLE.items())
ALL_TYPES = SIMPLE_TYPES + [pair for item in SIMPLE_TYPES for pair in nested(*item)]


def column(kind: Any, values: list[Any]) -> pl.Series:
    return pl.Series("v", values, dtype=kind)


def bits(value: Any) -> Any:
    """Return a value such that equality is equality to the bit."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    if isinstance(value, list | pl.Series):
        return [bits(part) for part in value]
    return value


# rows


@st.composite
def frames(draw: st.DrawFn) -> tuple[pl.DataFrame, np.ndarray[Any, Any]]:
    """Return rows of one to four columns, and the sizes of their groups."""
    columns = draw(st.lists(st.sampled_from(ALL_TYPES), min_size=1, max_size=4))
    counts = draw(st.lists(st.integers(0, 3), max_size=5))
    rows = sum(counts)
    made = [
        column(kind, draw(st.lists(null_or(values), min_size=rows, max_size=rows))).alias(f"c{number}")
        for number, (kind, values) in enumerate(columns)
    ]
    return pl.DataFrame(made), np.array(counts, np.int64)


@given(frames())
@examples(100, suppress_health_check=list(HealthCheck))
def test_rows_come_back_to_the_bit(given_rows: tuple[pl.DataFrame, np.ndarray[Any, Any]]) -> None:
    frame, counts = given_rows
    codec = RowCodec(frame.schema)
    encoded = codec.encode(frame, counts)
    decoded, found = codec.decode(encoded)
    assert found.tolist() == counts.tolist()
    assert decoded.schema == frame.schema
    assert bits(decoded.rows()) == bits(frame.rows()) or _same(decoded, frame)
    assert codec.encode(decoded, found) == encoded
    halves = [codec.decode(encoded[:2])[0], codec.decode(encoded[2:])[0]]
    assert codec.encode(pl.concat(halves), found) == encoded


def _same(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    return all(bits(one[name].to_list()) == bits(other[name].to_list()) for name in other.columns)


@pytest.mark.parametrize("number", range(len(ALL_TYPES)), ids=[str(kind) for kind, _ in ALL_TYPES])
@given(data=st.data())
@examples(8, suppress_health_check=list(HealthCheck))
def test_every_type_comes_back(number: int, data: st.DataObject) -> None:
    kind, values = ALL_TYPES[number]
    given_column = column(kind, data.draw(st.lists(null_or(values), max_size=6)))
    sliced = given_column[1:] if data.draw(st.booleans()) else given_column
    codec = RowCodec({"v": kind})
    decoded, _ = codec.decode(codec.encode(sliced.to_frame(), np.ones(len(sliced), np.int64)))
    assert decoded.schema == {"v": kind}
    assert bits(decoded["v"].to_list()) == bits(sliced.to_list())


# keys


def rank(value: Any) -> Any:
    """Return what a value sorts by: null first, numbers before NaN, lists by their elements."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, (1, 0.0) if math.isnan(value) else (0, value + 0.0))
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, dict):
        return (1, tuple(rank(value[name]) for name in sorted(value)))
    if isinstance(value, list | pl.Series):
        return (1, tuple(map(rank, value)))
    return (1, value)


ORDERED = [
    *SIMPLE_TYPES,
    (pl.List(pl.String()), st.lists(null_or(TEXTS), max_size=3)),
    (pl.List(pl.Int64()), st.lists(null_or(SIMPLE[pl.Int64()]), max_size=3)),
    (pl.Array(pl.Int64(), 2), st.lists(null_or(SIMPLE[pl.Int64()]), min_size=2, max_size=2)),
    (
        pl.Struct({"a": pl.String(), "b": pl.Int64()}),
        st.fixed_dictionaries({"a": null_or(TEXTS), "b": null_or(SIMPLE[pl.Int64()])}),
    ),
    (pl.List(pl.List(pl.Boolean())), st.lists(null_or(st.lists(null_or(st.booleans()), max_size=3)), max_size=3)),
]


@given(st.data())
@examples(150, suppress_health_check=list(HealthCheck))
def test_keys_sort_as_their_values_do(data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(ORDERED), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*[null_or(values) for _, values in columns]), min_size=2, max_size=6))
    made = [
        pl.Series(f"c{number}", [row[number] for row in rows], dtype=kind) for number, (kind, _) in enumerate(columns)
    ]
    keys = encode_keys(pl.DataFrame(made)).to_list()
    ranks = [tuple(map(rank, row)) for row in rows]
    for one, key in zip(ranks, keys, strict=True):
        for other, other_key in zip(ranks, keys, strict=True):
            assert (one == other) == (key == other_key)
            assert (one < other) == (key < other_key)
            assert key == other_key or not other_key.startswith(key)


@given(st.lists(null_or(TEXTS | st.text("ab\0\x01\xff", max_size=LONGEST * 2)), min_size=1, max_size=8))
@example(["x" * 1000, "x" * 1000 + "\0", "x" * 64])
def test_long_keys_stay_apart_and_short_enough(texts: list[str | None]) -> None:
    keys = encode_keys(pl.DataFrame({"a": pl.Series(texts, dtype=pl.String)})).to_list()
    assert len(set(keys)) == len(set(texts))
    assert max(map(len, keys)) <= LONGEST < MAX_KEY
    assert not any(one != other and other.startswith(one) for one in keys for other in keys)


@given(st.lists(TIMES, min_size=1))
def test_instants_sort_as_bytes(instants: list[datetime]) -> None:
    encoded = encode_time(pl.Series(instants, dtype=INSTANT)).to_list()
    assert [at for _, at in sorted(zip(encoded, instants, strict=True))] == sorted(instants)
    assert {len(each) for each in encoded} == {8}


@given(st.lists(null_or(TEXTS)), st.integers(1, 64))
def test_equal_keys_have_one_shard_whatever_is_around_them(texts: list[str | None], shards: int) -> None:
    keys = encode_keys(pl.DataFrame({"a": pl.Series(texts, dtype=pl.String)}))
    found = shard_of(keys, shards).to_list()
    assert all(0 <= shard < shards for shard in found)
    assert found == [shard_of(keys[number : number + 1], shards).item() for number in range(len(keys))]


# tables

KEYS = encode_keys(pl.DataFrame({"k": ["", "a", "a\0", "ab", "b", "x" * 500, "x" * 501, None]})).sort()
START = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = {"n": pl.Int64(), "s": pl.String()}
Key = bytes


def instant(number: int) -> datetime:
    return START + timedelta(microseconds=number)


keys_of_tables = st.sampled_from(KEYS.to_list())
points = st.tuples(keys_of_tables, st.integers(-6, 6).map(instant))
groups = st.lists(st.tuples(null_or(st.integers(-3, 3)), null_or(st.sampled_from(["", "a", "bc"]))), max_size=3)
opens = st.integers(-7, 7).map(instant) | st.none()


class TablesAreMaps(RuleBasedStateMachine):
    """A plain and a timed table beside two dicts; transactions are kept or dropped."""

    store: Store
    sequence = 0

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore(1)
        self.plain: dict[Key, list[Any]] = {}
        self.timed: dict[tuple[Key, datetime], list[Any]] = {}

    def change(self, work: Callable[[Table, Table], None]) -> None:
        self.sequence += 1
        with self.store.transaction(0, ["o"], Stamp(1, self.sequence)) as tx:
            work(State(tx, "o").table("plain", COLUMNS), State(tx, "o").table("timed", COLUMNS))

    @rule(entries=st.dictionaries(keys_of_tables, groups, min_size=1))
    def replace(self, entries: dict[Key, list[Any]]) -> None:
        rows = [(key, *row) for key, group in entries.items() for row in group]
        frame = pl.DataFrame(rows, {"_key": pl.Binary(), **COLUMNS}, orient="row")
        self.change(lambda plain, _: plain.replace(pl.Series(list(entries), dtype=pl.Binary), frame))
        self.plain = {key: group for key, group in {**self.plain, **entries}.items() if group}

    @rule(entries=st.dictionaries(points, groups, min_size=1))
    def replace_at(self, entries: dict[tuple[Key, datetime], list[Any]]) -> None:
        touched = pl.DataFrame(list(entries), {"_key": pl.Binary(), "_time": INSTANT}, orient="row")
        rows = [(*entry, *row) for entry, group in entries.items() for row in group]
        frame = pl.DataFrame(rows, {"_key": pl.Binary(), "_time": INSTANT, **COLUMNS}, orient="row")
        self.change(lambda _, timed: timed.replace_at(touched, frame))
        self.timed = {entry: group for entry, group in {**self.timed, **entries}.items() if group}

    def read(self, work: Callable[[Table, Table], pl.DataFrame]) -> list[Any]:
        with self.store.snapshot(0) as reader:
            return work(State(reader, "o").table("plain", COLUMNS), State(reader, "o").table("timed", COLUMNS)).rows()

    @rule(keys=st.lists(keys_of_tables))
    def get(self, keys: list[Key]) -> None:
        found = self.read(lambda plain, _: plain.get(pl.Series(keys, dtype=pl.Binary)))
        assert found == [(key, *row) for key in sorted(set(keys)) for row in self.plain.get(key, [])]

    @rule(low=null_or(keys_of_tables), high=null_or(keys_of_tables), limit=null_or(st.integers(0, 3)))
    def between(self, low: Key | None, high: Key | None, limit: int | None) -> None:
        found = self.read(lambda plain, _: plain.between(low, high, limit=limit))
        keys = [key for key in sorted(self.plain) if (low or b"") <= key and (high is None or key < high)]
        assert found == [(key, *row) for key in keys[:limit] for row in self.plain[key]]

    @rule(wanted=st.lists(st.tuples(keys_of_tables, opens, opens)), before=st.booleans(), after=st.booleans())
    def scan(self, wanted: list[Any], before: bool, after: bool) -> None:
        ranges = pl.DataFrame(wanted, {"_key": pl.Binary(), "_low": INSTANT, "_high": INSTANT}, orient="row")
        found = self.read(lambda _, timed: timed.scan(ranges, before=before, after=after))
        entries: set[tuple[Key, datetime]] = set()
        for key, low, high in wanted:
            entries |= {(key, at) for at in self._covered(key, low, high, before, after)}
        assert found == [(*entry, *row) for entry in sorted(entries) for row in self.timed[entry]]

    def _covered(
        self, key: Key, low: datetime | None, high: datetime | None, before: bool, after: bool
    ) -> list[datetime]:
        times = sorted(at for found, at in self.timed if found == key)
        start = bisect_left(times, low) if low else 0
        end = bisect_left(times, high) if high else len(times)
        inside = times[start:end]
        return inside + times[max(0, start - 1) : start] * before + times[end : end + 1] * after

    @rule(wanted=st.lists(points))
    def floor(self, wanted: list[tuple[Key, datetime]]) -> None:
        frame = pl.DataFrame(wanted, {"_key": pl.Binary(), "_time": INSTANT}, orient="row")
        found = self.read(lambda _, timed: timed.floor(frame))
        expected = []
        for number, (key, at) in enumerate(wanted):
            times = sorted(each for owner, each in self.timed if owner == key)
            position = bisect_right(times, at)
            if position:
                latest = times[position - 1]
                expected += [(number, latest, *row) for row in self.timed[key, latest]]
        assert found == expected

    @invariant()
    def everything(self) -> None:
        if not hasattr(self, "plain"):
            return
        assert self.read(lambda plain, _: plain.all()) == [
            (key, *row) for key, group in sorted(self.plain.items()) for row in group
        ]
        assert self.read(lambda _, timed: timed.all_at()) == [
            (*entry, *row) for entry, group in sorted(self.timed.items()) for row in group
        ]


def test_tables_are_maps() -> None:
    run_state_machine_as_test(TablesAreMaps, settings=examples(25, stateful_step_count=20))


# undo


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, list[dict[bytes, bytes | None]]]]:
    """Return writes in the order they happen: (batch, step, puts), with runs again of steps of the last batch."""
    written: list[tuple[int, int, Any]] = []
    batch, step = 0, 0
    for _ in range(draw(st.integers(1, 12))):
        batch, step = draw(st.sampled_from([(batch + 1, 0), (batch, step + 1), (batch, draw(st.integers(0, step)))]))
        small = st.dictionaries(st.sampled_from([b"", b"a", b"b", b"c"]), null_or(st.binary(max_size=2)))
        written.append((batch, step, draw(st.lists(small, max_size=3))))
    return written


def replayed(store: Store, history: list[tuple[int, int, list[dict[bytes, bytes | None]]]], epoch: int) -> None:
    """Apply a history and compare the state with copies of whole states taken before each step."""
    before: dict[tuple[int, int], dict[bytes, bytes]] = {}
    state: dict[bytes, bytes] = {}
    for batch, step, puts in history:
        later = sorted(place for place in before if place[0] == batch and place[1] >= step)
        state = dict(before[later[0]]) if later else state
        before = {place: retained for place, retained in before.items() if place < (batch, step) and place[0] == batch}
        before[batch, step] = dict(state)
        with store.transaction(0, ["o"], Stamp(epoch, batch, step)) as tx:
            assert dict(tx.scan("o", "t", [(b"", LAST)])[0]) == state
            for entries in puts:
                retained = {key: value for key, value in entries.items() if value is not None}
                tx.get("o", "t", list(retained))
                tx.put("o", "t", list(retained), list(retained.values()))
                tx.delete("o", "t", [key for key, value in entries.items() if value is None])
                state = {key: value for key, value in {**state, **entries}.items() if value is not None}
            assert tx.get("o", "t", [b"", b"a", b"b", b"c"]) == [state.get(key) for key in (b"", b"a", b"b", b"c")]
    with store.snapshot(0) as reader:
        assert dict(reader.scan("o", "t", [(b"", LAST)])[0]) == state


@given(histories())
@examples(100)
def test_undo_in_memory_is_exact(history: Any) -> None:
    replayed(MemoryStore(1), history, 1)


@given(history=histories())
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_undo_on_disk_is_exact(history: Any, tmp_path: Path) -> None:
    store = open_store(f"lmdb://{tmp_path}/db?sync=off", 1)
    store.drop("o")
    replayed(store, history, 1)
    store.close()


def test_rows_for_keys_that_are_not_replaced_are_refused() -> None:
    with MemoryStore(1).transaction(0, ["o"], Stamp(1, 1)) as tx:
        table = State(tx, "o").table("t", {"n": pl.Int64})
        rows = pl.DataFrame({"_key": [b"a", b"b"], "n": [1, 2]})
        with pytest.raises(InvalidValue, match="'t'"):
            table.replace(pl.Series([b"a"]), rows)
