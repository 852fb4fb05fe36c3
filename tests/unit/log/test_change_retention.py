"""Dropping the oldest changes of a log: what is left says the same of every later instant."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from umbel.errors import Damaged
from umbel.log import change_retention
from umbel.log.change_retention import RetentionLimits, drop_oldest, retained_since
from umbel.log.change_tail import FileTail
from umbel.log.changes import ChangeLog, Due
from umbel.types.dtypes import Int, Str
from umbel.types.schema import Schema

START = datetime(2024, 1, 1, tzinfo=UTC)
KEYED = Schema((("user", Int()),), (("city", Str()),), "t")
KEYLESS = Schema((), (("user", Int()), ("city", Str())), "t")


def day(number: float) -> datetime:
    return START + timedelta(days=number)


@contextmanager
def free() -> Iterator[bool]:
    yield True


def change(user: int, at: float, weight: int = 1, since: float | None = None, city: str = "Rome") -> dict[str, Any]:
    """A change that takes effect on a day, of a row that is from that day or an earlier one."""
    t = day(at if since is None else since)
    return {"user": user, "city": city, "t": t, "_at": day(at), "_weight": weight, "_seq": 0}


def written(folder: Path, schema: Schema, batches: list[list[dict[str, Any]]]) -> ChangeLog:
    log = ChangeLog(folder / "log", schema.changes(), "Town")
    for number, rows in enumerate(batches):
        log.commit(log.write(pl.DataFrame(rows, schema=schema.changes()), number), "parts", number)
    return log


def rows_at(log: ChangeLog, instants: range) -> dict[int, Counter[tuple[Any, ...]]]:
    """The rows of a log's dataset on each of some days."""
    found = dict[int, Counter[tuple[Any, ...]]]()
    changes = log.read().select("user", "city", "t", "_at", "_weight").rows()
    for number in instants:
        rows = Counter[tuple[Any, ...]]()
        for *row, changed, weight in changes:
            if changed <= day(number):
                rows[tuple(row)] += weight
        found[number] = Counter({row: count for row, count in rows.items() if count})
    return found


def test_of_a_keyless_dataset_old_files_go(tmp_path: Path) -> None:
    log = written(tmp_path, KEYLESS, [[change(n, n)] for n in range(10)])
    assert retained_since(log.table()) is None
    assert drop_oldest(log, (), RetentionLimits(before=day(4)), free) == 4
    assert sorted(log.read()["user"]) == [4, 5, 6, 7, 8, 9]
    since = retained_since(log.table())
    assert since is not None
    assert day(3).timestamp() * 1e6 < since <= day(3).timestamp() * 1e6 + 1000  # as much as there is can be answered
    assert drop_oldest(log, (), RetentionLimits(before=day(4)), free) == 0
    assert retained_since(log.table()) == since


def test_changes_of_a_file_that_has_later_ones_stay(tmp_path: Path) -> None:
    log = written(tmp_path, KEYLESS, [[change(0, 0), change(1, 8)], [change(2, 1)]])
    assert drop_oldest(log, (), RetentionLimits(before=day(4)), free) == 1
    assert sorted(log.read()["user"]) == [0, 1]


def test_by_size_the_newest_file_stays(tmp_path: Path) -> None:
    log = written(tmp_path, KEYLESS, [[change(n, n)] for n in range(10)])
    one = pl.DataFrame(log.table().get_add_actions(flatten=True))["size_bytes"].max()  # type: ignore[union-attr]
    assert drop_oldest(log, (), RetentionLimits(size=3 * int(one)), free) == 7  # type: ignore[arg-type]
    assert sorted(log.read()["user"]) == [7, 8, 9]
    assert drop_oldest(log, (), RetentionLimits(size=1), free) == 2
    assert sorted(log.read()["user"]) == [9]


def test_of_a_keyed_dataset_the_rows_of_the_instant_stay(tmp_path: Path) -> None:
    moved = [change(1, 0), change(2, 0), change(3, 0), change(4, 6)]
    ended = [change(1, 2, -1, 0), change(1, 2, city="Oslo"), change(2, 3, -1, 0), change(3, 7, -1, 0)]
    log = written(tmp_path, KEYED, [moved[:3], moved[3:], ended[:3], ended[3:]])
    before = rows_at(log, range(3, 12))
    assert drop_oldest(log, ["user"], RetentionLimits(before=day(5)), free) == 4
    assert rows_at(log, range(3, 12)) == before
    assert sorted(log.read()["user"]) == [1, 3, 3, 4]
    assert retained_since(log.table()) == int((day(3) + timedelta(milliseconds=1)).timestamp() * 1e6)
    assert drop_oldest(log, ["user"], RetentionLimits(before=day(5)), free) == 0  # not again and again


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows_at_once", [3, 10_000])
def test_random_histories_say_the_same_of_every_later_instant(
    tmp_path: Path, seed: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_retention, "PART_ROWS", rows_at_once)
    chance, changes, alive = random.Random(seed), list[dict[str, Any]](), dict[int, dict[str, Any]]()
    for at in range(60):
        user = chance.randrange(8)
        if user in alive:
            changes.append({**alive.pop(user), "_at": day(at), "_weight": -1})
        if chance.random() < 0.7:
            alive[user] = change(user, at, city=chance.choice(["Rome", "Oslo"]))
            changes.append(alive[user])
    chance.shuffle(changes)  # rows that are late come in any batch
    log = written(tmp_path, KEYED, [changes[n : n + 12] for n in range(0, len(changes), 12)])
    before = rows_at(log, range(60))
    for cut in (20, 21, 45):
        drop_oldest(log, ["user"], RetentionLimits(before=day(cut)), free)
        since = retained_since(log.table()) or 0
        after = rows_at(log, range(60))
        later = [number for number in range(60) if day(number).timestamp() * 1e6 >= since]
        assert [after[number] for number in later] == [before[number] for number in later]
        assert since <= (day(cut).timestamp() + 1) * 1e6


def test_rows_that_a_sink_has_not_yet_stay(tmp_path: Path) -> None:
    log = written(tmp_path, KEYLESS, [[change(n, n)] for n in range(10)])
    assert drop_oldest(log, (), RetentionLimits(before=day(8), batch=2), free) == 3
    assert sorted(log.read()["user"]) == [3, 4, 5, 6, 7, 8, 9]
    assert drop_oldest(log, (), RetentionLimits(before=day(8), batch=-1), free) == 0


def test_what_was_dropped_is_not_missed_and_what_is_missing_is(tmp_path: Path) -> None:
    log = written(tmp_path, KEYED, [[change(n, n)] for n in range(4)] + [[change(n, 5, -1, n)] for n in range(3)])
    due = Due(*log.state())
    drop_oldest(log, ["user"], RetentionLimits(before=day(6)), free)
    checked = ChangeLog(log.path, log.columns, log.title, due)
    checked.check(deep=True)
    assert log.state()[1] == due.rows
    (path,) = [each for each in log.path.rglob("*.parquet") if "retained" in each.name]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged):
        checked.check(deep=True)


def test_a_damaged_file_is_not_dropped_unseen_from_a_keyed_log(tmp_path: Path) -> None:
    log = written(tmp_path, KEYED, [[change(0, 0)], [change(0, 1, -1, 0)]])
    path = next(iter(log.path.rglob("*.parquet")))
    path.write_bytes(b"")
    with pytest.raises(Damaged):
        drop_oldest(log, ["user"], RetentionLimits(before=day(6)), free)
    assert retained_since(log.table()) is None


def test_others_append_meanwhile(tmp_path: Path) -> None:
    log, came = written(tmp_path, KEYLESS, [[change(n, n)] for n in range(4)]), [False]

    @contextmanager
    def busy() -> Iterator[bool]:
        if not came[0]:
            came[0] = True
            log.commit(log.write(pl.DataFrame([change(9, 9)], schema=KEYLESS.changes()), 9), "parts", 9)
        yield True

    assert drop_oldest(log, (), RetentionLimits(before=day(2)), busy) == 2
    assert sorted(log.read()["user"]) == [2, 3, 9]


def test_nothing_is_dropped_where_that_is_locked(tmp_path: Path) -> None:
    log = written(tmp_path, KEYLESS, [[change(n, n)] for n in range(4)])

    @contextmanager
    def locked() -> Iterator[bool]:
        yield False

    assert drop_oldest(log, (), RetentionLimits(before=day(2)), locked) == 0
    assert log.read().height == 4


def test_merged_files_and_tails_are_as_before(tmp_path: Path) -> None:
    log = written(tmp_path, KEYLESS, [[change(n, n)] for n in range(6)])
    tail = FileTail(log.path / "_tail")
    tail.put(7, pl.DataFrame([change(7, 0)], schema=KEYLESS.changes()))
    drop_oldest(log, (), RetentionLimits(before=day(2)), free)
    assert log.compact() == 4
    assert drop_oldest(log, (), RetentionLimits(before=day(4)), free) == 0  # its file has later ones
    assert sorted(log.read(tail)["user"]) == [2, 3, 4, 5, 7]
    assert drop_oldest(log, (), RetentionLimits(before=day(6)), free) == 4
    assert sorted(log.read(tail)["user"]) == [7]
    since = retained_since(log.table())
    assert since == int((day(5) + timedelta(milliseconds=1)).timestamp() * 1e6)


def test_a_log_without_changes_has_nothing_to_drop(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "log", KEYLESS.changes())
    assert drop_oldest(log, (), RetentionLimits(before=day(6)), free) == 0
    assert retained_since(log.table()) is None
