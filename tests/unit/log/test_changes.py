"""Change logs: what was written is read once, from table and tail together, whenever somebody stops or dies."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from umbel.errors import Damaged, Transient
from umbel.log import changes as module
from umbel.log.change_tail import ChangeTail, FileTail
from umbel.log.changes import TAIL, ChangeLog, Due
from umbel.types.schema import CHANGE_COLUMNS

T0 = datetime(2013, 1, 1, tzinfo=UTC)
PLAIN = {"user": pl.Int64(), "name": pl.String(), "at": pl.Datetime("us", "UTC"), **CHANGE_COLUMNS}

Put = Callable[[int, pl.DataFrame], None]


def changes(rows: list[tuple[int, int]], columns: dict[str, pl.DataType] | None = None) -> pl.DataFrame:
    """Return a frame of changes of (user, day)."""
    instants = [T0 + timedelta(days=day, microseconds=user) for user, day in rows]
    data = {"user": [user for user, _ in rows], "name": [f"n{user}" for user, _ in rows], "at": instants}
    return pl.DataFrame({**data, "_at": instants, "_weight": 1, "_seq": range(len(rows))}, schema=columns or PLAIN)


@pytest.fixture
def tail(tmp_path: Path) -> tuple[ChangeTail, Put]:
    files = FileTail(tmp_path / "tail")
    return files, files.put


def users(frame: pl.DataFrame) -> list[int]:
    return sorted(frame["user"].to_list())


NESTED = {
    "i": (pl.Int64(), [1, None, -(2**63)]),
    "f": (pl.Float64(), [float("inf"), None, 0.1]),
    "s": (pl.String(), ["", None, "ü\0"]),
    "b": (pl.Binary(), [b"\0\xff", None, b""]),
    "o": (pl.Boolean(), [True, None, False]),
    "t": (pl.Datetime("us", "UTC"), [T0, None, datetime(1, 1, 1, 0, 0, 0, 1, UTC)]),
    "d": (pl.Date(), [date(2013, 1, 1), None, date(1, 1, 1)]),
    "c": (pl.Decimal(28, 2), [Decimal("1.25"), None, Decimal("-99999999999999999999999999.99")]),
    "l": (pl.List(pl.Int64()), [[1, None], None, []]),
    "m": (pl.List(pl.Struct({"key": pl.String(), "value": pl.Float64()})), [[{"key": "k", "value": None}], None, []]),
    "e": (pl.Array(pl.Float64(), 2), [[1.0, 2.0], None, [3.0, 4.0]]),
    "le": (pl.List(pl.Array(pl.Float64(), 2)), [[[1.0, 2.0]], None, []]),
    "se": (pl.Struct({"v": pl.Array(pl.Float64(), 2), "x": pl.String()}), [{"v": [1.0, 2.0], "x": None}, None, None]),
    "w": (
        pl.Struct({"begin": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC")}),
        [{"begin": T0, "end": T0}, None, {"begin": T0, "end": None}],
    ),
}


def test_every_type_comes_back_from_table_and_tail(tmp_path: Path, tail: tuple[ChangeTail, Put]) -> None:
    columns = {name: dtype for name, (dtype, _) in NESTED.items()}
    rows = pl.DataFrame({name: values for name, (_, values) in NESTED.items()}, schema=columns)
    rows = rows.with_columns(pl.lit(T0).alias("_at"), pl.lit(1, pl.Int64).alias("_weight"), user=pl.Series([0, 1, 2]))
    rows = rows.with_columns(pl.col("user").alias("_seq"))
    log = ChangeLog(tmp_path / "log", {**columns, "user": pl.Int64(), **CHANGE_COLUMNS})
    reading, put = tail
    put(1, rows)
    recent = log.read(reading).sort("_seq")
    assert log.flush(reading, 1) == 3
    moved = log.read(reading).sort("_seq")
    expected = rows.select(recent.columns)
    assert recent.schema == moved.schema == expected.schema
    assert recent.equals(expected)
    assert moved.equals(expected)


def test_a_log_nobody_wrote_is_empty(tmp_path: Path, tail: tuple[ChangeTail, Put]) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    assert log.read(tail[0]).schema == pl.Schema(PLAIN)
    assert log.read().is_empty()
    assert (log.flush(tail[0], 5), log.reached(TAIL), log.compact(), log.vacuum()) == (0, -1, 0, [])


def test_table_and_tail_together_have_each_change_once(tmp_path: Path, tail: tuple[ChangeTail, Put]) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    sent: list[int] = []
    for batch in range(1, 9):
        rows = [(batch * 10 + n, batch * 20) for n in range(4)]
        put(batch, changes(rows))
        sent += [user for user, _ in rows]
        if batch in (3, 6):
            log.flush(reading, batch - 1)
            assert log.reached(TAIL) == batch - 1
        assert users(log.read(reading)) == sent
    assert users(log.read(reading, through=4)) == [user for user in sent if user < 50]
    assert users(log.read(None)) == [user for user in sent if user < 60]
    assert log.read(reading, columns=["user", "_batch"]).filter(pl.col("user") // 10 != pl.col("_batch")).is_empty()


def test_a_crash_between_commit_and_forgetting_doubles_nothing(
    tmp_path: Path, tail: tuple[ChangeTail, Put], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    for batch in (1, 2, 3):
        put(batch, changes([(batch, batch)]))
    with monkeypatch.context() as patch:
        patch.setattr(type(reading), "forget", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            log.flush(reading, 2)
    assert users(log.read(reading)) == [1, 2, 3]
    assert log.flush(reading, 2) == 0
    assert users(log.read(reading)) == [1, 2, 3]
    found = reading.read(-1)
    assert found is not None
    assert users(found) == [3]


def test_a_crash_before_the_commit_loses_nothing(
    tmp_path: Path, tail: tuple[ChangeTail, Put], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    put(1, changes([(1, 1), (2, 40)]))
    with monkeypatch.context() as patch:
        patch.setattr(ChangeLog, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            log.flush(reading, 1)
    assert users(log.read(reading)) == [1, 2]
    assert log.flush(reading, 1) == 2
    assert users(log.read(reading)) == [1, 2]
    assert len(log.vacuum(timedelta(0))) == 2  # the parts of the first try
    assert users(log.read(reading)) == [1, 2]


def test_a_batch_run_again_is_there_once(tmp_path: Path, tail: tuple[ChangeTail, Put]) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    put(1, changes([(1, 1)]))
    put(1, changes([(1, 1)]))
    assert users(log.read(reading)) == [1]
    log.flush(reading, 1)
    put(1, changes([(1, 1)]))
    assert users(log.read(reading)) == [1]
    assert log.flush(reading, 1) == 0
    assert users(log.read(reading)) == [1]


def test_readers_see_everything_while_it_is_moved(
    tmp_path: Path, tail: tuple[ChangeTail, Put], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    for batch in range(1, 4):
        put(batch, changes([(batch, 1)]))
    opened, done = ChangeLog.table, list[bool]()

    def table(self: ChangeLog) -> Any:
        if not done:
            done.append(True)
            log.flush(reading, 3)  # in the middle of a read: behind the tail, before the table
        return opened(self)

    monkeypatch.setattr(ChangeLog, "table", table)
    assert users(log.read(reading)) == [1, 2, 3]


def test_files_that_go_while_a_tail_is_read_are_passed_over(tmp_path: Path) -> None:
    log, files = ChangeLog(tmp_path / "log", PLAIN), FileTail(tmp_path / "tail")
    files.put(1, changes([(1, 1)]))
    files.put(2, changes([(2, 1)]))
    listed = FileTail._files

    def moved(self: FileTail) -> list[Path]:
        found = listed(self)
        FileTail._files = listed  # type: ignore[method-assign]
        log.flush(files, 1)
        return found

    FileTail._files = moved  # type: ignore[method-assign]
    try:
        assert users(log.read(files)) == [1, 2]
    finally:
        FileTail._files = listed  # type: ignore[method-assign]
    assert (files.last(), files.size()[0]) == (2, 1)


def test_parts_are_committed_once_per_transaction(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN, "Payment")
    parts = log.write(changes([(1, 1), (2, 80)]), 5)
    assert [part.month for part in parts] == ["2013-01-01", "2013-03-01"]
    assert log.read().is_empty()
    assert log.commit(parts, "backfill", 1)
    assert not log.commit(log.write(changes([(1, 1)]), 5), "backfill", 1)
    assert log.commit(log.write(changes([(3, 1)]), 6), "other", 0)
    assert users(log.read()) == [1, 2, 3]
    assert (log.reached("backfill"), log.reached("other"), log.reached(TAIL)) == (1, 0, -1)
    assert DeltaTable(log.path).metadata().name == "Payment"


def test_of_two_committers_at_the_same_time_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    log.commit(log.write(changes([(0, 0)]), 0), "job", 0)
    opened = ChangeLog._opened

    def late(self: ChangeLog) -> DeltaTable:
        table = opened(self)
        monkeypatch.setattr(ChangeLog, "_opened", opened)
        log.commit(log.write(changes([(1, 1)]), 1), "job", 1)
        return table

    monkeypatch.setattr(ChangeLog, "_opened", late)
    with pytest.raises(Transient, match="another process"):
        log.commit(log.write(changes([(1, 1)]), 1), "job", 1)
    assert users(log.read()) == [0, 1]


def test_time_bounds_and_predicates_skip_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, chance = ChangeLog(tmp_path / "log", PLAIN), random.Random(0)
    rows = [(user, chance.randrange(-400, 400)) for user in range(300)]
    for batch in range(3):
        log.commit(log.write(changes(rows[batch * 100 : batch * 100 + 100]), batch), "job", batch)
    everything, scanned = log.read(), list[list[Path]]()
    scan = pl.scan_parquet
    monkeypatch.setattr(pl, "scan_parquet", lambda paths, **options: (scanned.append(paths), scan(paths, **options))[1])
    since, until = T0 + timedelta(days=31), T0 + timedelta(days=59)
    found = log.read(since=since, until=until, predicate=pl.col("user") % 2 == 0)
    naive = everything.filter((pl.col("_at") >= since) & (pl.col("_at") < until) & (pl.col("user") % 2 == 0))
    assert Counter(found.rows()) == Counter(naive.rows())
    assert 1 <= len(scanned[0]) <= 3
    assert len(DeltaTable(log.path).file_uris()) > 60
    assert log.read(until=T0 - timedelta(days=1000)).is_empty()


def test_files_of_other_batches_are_not_opened(
    tmp_path: Path, tail: tuple[ChangeTail, Put], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    for number, batch in enumerate((-(1 << 40), -1, 0, 1, 2, 10**12)):
        part = log.write(changes([(number, 1)]), batch, "0-stage-1")
        log.commit(part, "job", number)
    log.commit(log.write_stored(log.stored(log.path / part[0].path), "rewritten"), "other", 0)
    for batch in (3, 4):
        put(batch, changes([(batch + 100, 1)]))
    log.flush(reading, 3)
    scanned, scan = list[list[Path]](), pl.scan_parquet
    monkeypatch.setattr(pl, "scan_parquet", lambda paths, **options: (scanned.append(paths), scan(paths, **options))[1])
    assert users(log.read(reading, first=0, through=1)) == [2, 3]
    assert [sorted(path.name.partition("-0-")[0] for path in paths) for paths in scanned] == [
        [f"batch-{0:012d}", f"batch-{1:012d}", *sorted(path.name for path in scanned[0][2:])]
    ]
    assert len(scanned[0]) == 4, "and the files that tell nothing of their batches"
    assert users(log.read(reading, first=2)) == [4, 5, 5, 103, 104]
    assert users(log.read(reading, through=-1)) == [0, 1]
    assert users(log.read(reading, first=-1, through=2)) == [1, 2, 3, 4]


def test_bounds_of_time_are_the_first_instant_and_the_one_after_the_last(
    tmp_path: Path, tail: tuple[ChangeTail, Put]
) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    first, last = T0 + timedelta(days=1), T0 + timedelta(days=2)
    put(1, changes([(0, 0), (0, 1), (0, 2)]))
    for _ in range(2):
        assert log.read(reading, since=first)["at"].sort().to_list() == [first, last]
        assert log.read(reading, since=last)["at"].to_list() == [last]  # the last of its file
        assert log.read(reading, until=last)["at"].sort().to_list() == [T0, first]
        assert log.read(reading, since=first, until=last)["at"].to_list() == [first]
        log.flush(reading, 1)


def test_a_batch_that_is_moved_while_its_tail_is_checked_is_not_missed(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    tail = FileTail(tmp_path / "tail")
    for batch in range(2):
        tail.put(batch, changes([(batch, 0)]), batch - 1)

    class Moved(FileTail):
        def missing(self, last: int, reached: int) -> int | None:
            log.flush(tail, 1)
            return FileTail.missing(self, last, reached)

    due = replace(log, due=Due(last=1))
    due.check(Moved(tail.folder))
    assert users(due.read(tail)) == [0, 1]
    with pytest.raises(Damaged, match="batch 2 is missing in its tail"):
        replace(log, due=Due(last=2)).check(Moved(tail.folder))


def test_others_can_read_the_table(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", {**PLAIN, "e": pl.Array(pl.Float64(), 2)})
    rows = [(1, 1), (2, 80), (3, -800_000 // 365)]
    frame = changes(rows).with_columns(pl.Series("e", [[1.0, 2.0]] * 3, dtype=pl.Array(pl.Float64(), 2)))
    log.commit(log.write(frame, 7), "job", 7)
    seen = pl.scan_delta(str(log.path)).filter(pl.col("_at") > T0).collect()
    assert users(seen) == [1, 2]
    arrow = pyarrow.dataset.dataset(DeltaTable(log.path).file_uris()).to_table()
    assert sorted(arrow["user"].to_pylist()) == [1, 2, 3]
    assert arrow["e"].to_pylist() == [[1.0, 2.0]] * 3
    assert set(arrow["_batch"].to_pylist()) == {7}


def test_small_files_are_merged_and_old_ones_deleted(tmp_path: Path, tail: tuple[ChangeTail, Put]) -> None:
    log, (reading, put) = ChangeLog(tmp_path / "log", PLAIN), tail
    for batch in range(1, 7):
        put(batch, changes([(batch, 1)]))
        log.flush(reading, batch)
    assert log.compact() == 6
    assert users(log.read(reading)) == [1, 2, 3, 4, 5, 6]
    assert log.reached(TAIL) == 6
    assert log.read(since=T0 + timedelta(days=2)).is_empty()
    assert log.vacuum() == []
    assert len(log.vacuum(timedelta(0))) == 6
    assert users(log.read(reading)) == [1, 2, 3, 4, 5, 6]
    assert log.compact() == 0


def test_parts_are_plain_data(tmp_path: Path) -> None:
    (part,) = ChangeLog(tmp_path, PLAIN).write(changes([(1, 1)]), 1)
    assert json.loads(json.dumps([part.path, part.size, part.rows]))[1:] == [(tmp_path / part.path).stat().st_size, 1]


def test_a_tail_inside_the_folder_of_its_table_is_not_taken_for_rubbish(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    files = FileTail(log.path / "_tail")
    log.commit(log.write(changes([(1, 1)]), 0), "job", 0)
    files.put(1, changes([(2, 1)]))
    log.write(changes([(3, 1)]), 2)
    assert len(log.vacuum(timedelta(0))) == 1
    assert users(log.read(files)) == [1, 2]


def test_tidying_waits_until_it_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    log.tidy()
    monkeypatch.setattr(module, "MANY_FILES", 5)
    for batch in range(5):
        assert len(list((tmp_path / "log").glob("*/*.parquet"))) == batch
        log.commit(log.write(changes([(batch, 1)]), batch), "job", batch)
        log.tidy()
    assert len(DeltaTable(log.path).file_uris()) == 1
    assert users(log.read()) == [0, 1, 2, 3, 4]


def test_merging_and_committing_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    for batch in range(3):
        log.commit(log.write(changes([(batch, 1)]), batch), "job", batch)
    opened = ChangeLog._opened

    def merged_meanwhile(self: ChangeLog) -> DeltaTable:
        table = opened(self)
        assert log.compact() == 3
        return table

    monkeypatch.setattr(ChangeLog, "_opened", merged_meanwhile)
    assert log.commit(log.write(changes([(3, 1)]), 3), "job", 3)
    assert users(log.read()) == [0, 1, 2, 3]


def test_each_file_has_the_changes_of_one_month(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", PLAIN)
    instants = [
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 31, 23, 59, 59, 999999, UTC),
        datetime(1970, 2, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ]
    rows = changes([(number, 0) for number in range(len(instants))])
    parts = log.write(rows.with_columns(pl.Series("_at", instants, pl.Datetime("us", "UTC"))), batch=0)
    assert [(part.month, part.rows) for part in parts] == [
        ("0001-01-01", 1),
        ("1969-12-01", 1),
        ("1970-01-01", 2),
        ("1970-02-01", 1),
        ("9999-12-01", 1),
    ]
    assert log.commit(parts, "test", 0)
    assert log.read().sort("_at")["user"].to_list() == [5, 1, 2, 3, 4, 0]


def test_compacted_files_of_wide_rows_are_read_by_time(tmp_path: Path) -> None:
    wide = {**{f"v{n}": pl.Int64() for n in range(40)}, **PLAIN}
    log = ChangeLog(tmp_path / "log", wide)
    for day in (0, 1):
        rows = changes([(day, day)]).with_columns(pl.lit(n, pl.Int64).alias(f"v{n}") for n in range(40))
        assert log.commit(log.write(rows.select(list(wide)), day), "test", day)
    assert log.compact() == 2
    assert users(log.read()) == [0, 1]
    assert users(log.read(since=T0 + timedelta(days=1))) == [1]
    assert users(log.read(until=T0 + timedelta(days=1))) == [0]
    assert users(log.read(columns=["user"], predicate=pl.col("_batch") > 0)) == [1]
