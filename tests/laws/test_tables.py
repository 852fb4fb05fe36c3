"""Laws of tables: rows come back as they were, tables are maps, undo is exact; in memory and in files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.contracts.store_entries import Entries, stored_entries
from tests.hashing import share_hashes
from tests.laws.state_types import ALL_TYPES, INSTANT, bits, column, null_or
from tests.profiles import examples
from umbel.errors import InvalidValue
from umbel.state.file import FileStore
from umbel.state.keys import encode_keys
from umbel.state.memory import MemoryStore
from umbel.state.port import Reader, Stamp, Store
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.points import PointRecords, RowSlice, frame_of, slices_of
from umbel.state.runs.shard import ShardOptions
from umbel.state.tables import NUMBER, State, Table, TimedTable
from umbel.state.urls import open_store
from umbel.state.values import shown, units

# rows


@st.composite
def frames(draw: st.DrawFn) -> tuple[pl.DataFrame, list[int]]:
    """Return rows of one to four columns, and the sizes of their groups."""
    columns = draw(st.lists(st.sampled_from(ALL_TYPES), min_size=1, max_size=4))
    counts = draw(st.lists(st.integers(0, 3), max_size=5))
    rows = sum(counts)
    made = [
        column(kind, draw(st.lists(null_or(values), min_size=rows, max_size=rows))).alias(f"c{number}")
        for number, (kind, values) in enumerate(columns)
    ]
    return pl.DataFrame(made), counts


def must_come_back(frame: pl.DataFrame, counts: list[int]) -> None:
    """Write groups of rows to a store in memory and one in files, and read them in all ways, before and after a flush."""
    keys = pl.Series("_key", [b"%03d" % number for number in range(len(counts))], dtype=pl.Binary)
    address = [
        keys.gather(np.repeat(np.arange(len(counts)), counts)),
        pl.Series("_time", [START] * frame.height, INSTANT),
    ]
    rows = pl.DataFrame([*address, *frame.get_columns()])
    times = keys.to_frame().with_columns(pl.Series("_time", [START] * len(counts), INSTANT))
    with TemporaryDirectory() as folder:
        for store in (MemoryStore(1), FileStore(folder, 1, is_synced=False)):
            with store.transaction(0, ["o"], Stamp(1, 1)) as tx:
                State(tx, "o").table("plain", frame.schema).replace(keys, rows)
                State(tx, "o").timed("timed", frame.schema).replace(times, rows)
                must_hold(tx, keys, frame, counts)
            with store.snapshot(0) as reader:
                must_hold(reader, keys, frame, counts)
            with store.transaction(0, ["o"], Stamp(1, 2)):
                pass
            if isinstance(store, FileStore):
                assert maintain(store._shards[0], flush_bytes=0)
                assert bool(list(Path(folder).rglob("*.run"))) == any(counts)
                for each in (store, FileStore(folder, 1)):
                    with each.snapshot(0) as reader:
                        must_hold(reader, keys, frame, counts)


def must_hold(reader: Reader, keys: pl.Series, frame: pl.DataFrame, counts: list[int]) -> None:
    """Raise unless the groups are read to the bit, in each way of reading."""
    plain, timed = State(reader, "o").table("plain", frame.schema), State(reader, "o").timed("timed", frame.schema)
    found = plain.numbered(keys)
    assert np.bincount(found[NUMBER].to_numpy(), minlength=len(counts)).tolist() == counts
    must_equal(found.drop(NUMBER), frame)
    must_equal(plain.get(keys.reverse()).drop("_key"), frame)
    unbounded = keys.to_frame().with_columns(pl.lit(None, INSTANT).alias("_low"), pl.lit(None, INSTANT).alias("_high"))
    for entries in (timed.scan(unbounded), timed.all(), timed.until(0).sort("_key", maintain_order=True)):
        must_equal(entries.drop("_key", "_time"), frame)
    for groups in (plain.groups(keys.to_list()), timed.latest(keys.to_list(), [0] * len(keys))):
        assert [0 if each is None else each.high - each.low for each in groups] == counts
        must_equal(frame_of([each for each in groups if each is not None], frame.schema), frame)
        must_be_read_as_points(PointRecords(slices_of(groups), frame.schema), frame)


def must_be_read_as_points(records: PointRecords, frame: pl.DataFrame) -> None:
    rows = np.arange(frame.height)
    for name, dtype in frame.schema.items():
        due = frame[name]
        assert records.nulls(name).tolist() == due.is_null().to_list()
        if dtype in (pl.Binary, pl.String):
            assert records.binaries(name, rows) == due.to_list()
        elif isinstance(dtype, pl.Decimal):
            digits = [0 if value is None else int(value.scaleb(dtype.scale)) for value in due]
            assert units(records[name]).tolist() == digits
        elif not dtype.is_nested():
            assert records[name].tobytes() == fixed(due).tobytes()
        elif isinstance(dtype, pl.List) and not dtype.inner.is_nested():
            values, lengths = records.lists(name, rows)
            assert lengths.tolist() == [len(each) if each is not None else 0 for each in due.to_list()]
            elements = due.explode(empty_as_null=False, keep_nulls=False)
            assert values.nulls.tolist() == elements.is_null().to_list()
            there = ~values.nulls
            assert bits(shown(values.stored[there], dtype.inner)) == bits(elements.drop_nulls().to_list())


def fixed(column: pl.Series) -> np.ndarray[Any, Any]:
    """Return the stored numbers of a column, 0 for null."""
    numbers = column.to_physical().cast(pl.UInt8) if column.dtype == pl.Boolean else column.to_physical()
    return numbers.fill_null(0).to_numpy()


def must_equal(found: pl.DataFrame, frame: pl.DataFrame) -> None:
    assert found.schema == frame.schema
    for name in frame.columns:
        assert bits(found[name].to_list()) == bits(frame[name].to_list())


@given(frames())
@examples(40, suppress_health_check=list(HealthCheck))
def test_rows_come_back_to_the_bit(written: tuple[pl.DataFrame, list[int]]) -> None:
    must_come_back(*written)


@pytest.mark.parametrize("number", range(len(ALL_TYPES)), ids=[str(kind) for kind, _ in ALL_TYPES])
@given(data=st.data())
@examples(2, suppress_health_check=list(HealthCheck))
def test_every_type_comes_back(number: int, data: st.DataObject) -> None:
    kind, values = ALL_TYPES[number]
    drawn = column(kind, data.draw(st.lists(null_or(values), min_size=1, max_size=6)))
    sliced = drawn[1:] if data.draw(st.booleans()) else drawn
    must_come_back(sliced.to_frame(), [1] * len(sliced))


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
instants = st.integers(-7, 7).map(instant)


class TablesAreMaps(RuleBasedStateMachine):
    """A plain and a timed table beside two dicts; transactions are kept or dropped."""

    store: Store
    sequence = 0

    def opened(self) -> Store:
        """Return a new store."""
        return MemoryStore(1)

    @initialize()
    def begin(self) -> None:
        self.store = self.opened()
        self.plain: dict[Key, list[Any]] = {}
        self.timed: dict[tuple[Key, datetime], list[Any]] = {}

    def change(self, work: Callable[[Table, TimedTable], None]) -> None:
        self.sequence += 1
        with self.store.transaction(0, ["o"], Stamp(1, self.sequence)) as tx:
            work(*tables(tx))

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
        self.change(lambda _, timed: timed.replace(touched, frame))
        self.timed = {entry: group for entry, group in {**self.timed, **entries}.items() if group}

    @rule(entries=st.dictionaries(points, groups, min_size=1))
    def raise_after_writes(self, entries: dict[tuple[Key, datetime], list[Any]]) -> None:
        with pytest.raises(KeyError), self.store.transaction(0, ["o"], Stamp(1, self.sequence + 1)) as tx:  # noqa: PT012
            plain, timed = tables(tx)
            touched = pl.DataFrame(list(entries), {"_key": pl.Binary, "_time": INSTANT}, orient="row")
            rows = touched.with_columns(pl.lit(9, pl.Int64).alias("n"), pl.lit("9").alias("s"))
            timed.replace(touched, rows)
            plain.replace(rows["_key"], rows)
            raise KeyError

    def read(self, work: Callable[[Table, TimedTable], pl.DataFrame]) -> list[Any]:
        with self.store.snapshot(0) as reader:
            return work(*tables(reader)).rows()

    @rule(keys=st.lists(keys_of_tables))
    def get(self, keys: list[Key]) -> None:
        found = self.read(lambda plain, _: plain.get(pl.Series(keys, dtype=pl.Binary)))
        assert found == [(key, *row) for key in sorted(set(keys)) for row in self.plain.get(key, [])]

    @rule(keys=st.lists(keys_of_tables), at=instants)
    def single(self, keys: list[Key], at: datetime) -> None:
        with self.store.snapshot(0) as reader:
            plain, timed = tables(reader)
            for key, group in zip(keys, plain.groups(keys), strict=True):
                assert self._rows(group) == self.plain.get(key, [])
            bound = (at - START) // timedelta(microseconds=1)
            for key, group in zip(keys, timed.latest(keys, [bound] * len(keys)), strict=True):
                times = [each for owner, each in self.timed if owner == key and each <= at]
                assert self._rows(group) == (self.timed[key, max(times)] if times else [])

    @staticmethod
    def _rows(group: RowSlice | None) -> list[Any]:
        return [] if group is None else frame_of([group], COLUMNS).rows()

    @rule(at=instants)
    def until(self, at: datetime) -> None:
        bound = (at - START) // timedelta(microseconds=1)
        found = self.read(lambda _, timed: timed.until(bound).sort("_key", "_time", maintain_order=True))
        assert found == [
            (*place, *row) for place, group in sorted(self.timed.items()) if place[1] <= at for row in group
        ]

    @rule(requested=st.lists(st.tuples(keys_of_tables, opens, opens)), before=st.booleans(), after=st.booleans())
    def scan(self, requested: list[Any], before: bool, after: bool) -> None:
        ranges = pl.DataFrame(requested, {"_key": pl.Binary(), "_low": INSTANT, "_high": INSTANT}, orient="row")
        found = self.read(lambda _, timed: timed.scan(ranges, before=before, after=after))
        entries: set[tuple[Key, datetime]] = set()
        for key, low, high in requested:
            entries |= {(key, at) for at in self._covered(key, low, high, before, after)}
        assert found == [(*entry, *row) for entry in sorted(entries) for row in self.timed[entry]]

    def _covered(
        self, key: Key, low: datetime | None, high: datetime | None, before: bool, after: bool
    ) -> list[datetime]:
        times = sorted(at for found, at in self.timed if found == key)
        start = bisect_left(times, low) if low else 0
        end = max(start, bisect_left(times, high) if high else len(times))
        inside = times[start:end]
        return inside + times[max(0, start - 1) : start] * before + times[end : end + 1] * after

    @rule(requested=st.lists(points))
    def floor(self, requested: list[tuple[Key, datetime]]) -> None:
        frame = pl.DataFrame(requested, {"_key": pl.Binary(), "_time": INSTANT}, orient="row")
        found = self.read(lambda _, timed: timed.floor(frame))
        expected = []
        for number, (key, at) in enumerate(requested):
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
        assert self.read(lambda plain, _: plain.get(KEYS)) == [
            (key, *row) for key, group in sorted(self.plain.items()) for row in group
        ]
        assert self.read(lambda _, timed: timed.all()) == [
            (*entry, *row) for entry, group in sorted(self.timed.items()) for row in group
        ]


class TablesInFilesAreMaps(TablesAreMaps):
    """The same in files, flushed, merged and opened again at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()

    def teardown(self) -> None:
        self.folder.cleanup()

    def opened(self) -> Store:
        options = ShardOptions(journal_bytes=3000, part_rows=5, fan=2)
        return FileStore(self.folder.name, 1, options, is_synced=False)

    @rule(flush_bytes=st.sampled_from([0, 1, None]))
    def maintained(self, flush_bytes: int | None) -> None:
        assert isinstance(self.store, FileStore)
        assert maintain(self.store._shards[0], flush_bytes=flush_bytes)

    @rule()
    def reopened(self) -> None:
        self.store.close()
        self.store = self.opened()


def tables(reader: Reader) -> tuple[Table, TimedTable]:
    state = State(reader, "o")
    return state.table("plain", COLUMNS), state.timed("timed", COLUMNS)


@pytest.mark.parametrize("machine", [TablesAreMaps, TablesInFilesAreMaps])
def test_tables_are_maps(machine: type[TablesAreMaps]) -> None:
    run_state_machine_as_test(machine, settings=examples(25, stateful_step_count=20))


@pytest.mark.parametrize("hashes", [1, 2])
def test_tables_are_maps_where_keys_share_hashes(hashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    share_hashes(monkeypatch, hashes)
    run_state_machine_as_test(TablesInFilesAreMaps, settings=examples(15, stateful_step_count=20))


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
            found = Entries(tx, "o")
            assert found.all() == state
            for entries in puts:
                retained = {key: value for key, value in entries.items() if value is not None}
                found.get(list(retained))
                found.put(list(retained), list(retained.values()))
                found.delete([key for key, value in entries.items() if value is None])
                state = {key: value for key, value in {**state, **entries}.items() if value is not None}
            assert found.get([b"", b"a", b"b", b"c"]) == [state.get(key) for key in (b"", b"a", b"b", b"c")]
    assert stored_entries(store, "o") == state


@given(histories())
@examples(60)
def test_undo_in_memory_is_exact(history: Any) -> None:
    replayed(MemoryStore(1), history, 1)


@given(history=histories(), flushed=st.booleans())
@examples(40)
def test_undo_in_files_is_exact(history: Any, flushed: bool) -> None:
    with TemporaryDirectory() as folder:
        store = open_store(f"file://{folder}?sync=off" + "&flush_bytes=1" * flushed, 1)
        replayed(store, history, 1)
        again = open_store(f"file://{folder}?sync=off", 1)
        assert stored_entries(again, "o") == stored_entries(store, "o")
        again.close()
        store.close()


def test_rows_for_keys_that_are_not_replaced_are_refused() -> None:
    with MemoryStore(1).transaction(0, ["o"], Stamp(1, 1)) as tx:
        table = State(tx, "o").table("t", {"n": pl.Int64})
        rows = pl.DataFrame({"_key": [b"a", b"b"], "n": [1, 2]})
        with pytest.raises(InvalidValue, match=r"'o/t'"):
            table.replace(pl.Series([b"a"]), rows)
