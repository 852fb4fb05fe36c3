"""In how many steps a backfill emits what has waited for the watermark, and up to when each does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.log.test_changes import PLAIN, T0, changes
from umbel.log.change_tail import FileTail
from umbel.log.changes import ChangeLog
from umbel.runtime.backfill_emission import instants_of
from umbel.runtime.progress import EventTimeProgress, Ramp
from umbel.windowing.tiling import micros

JAN = datetime(2024, 1, 1, tzinfo=UTC)


def test_each_step_has_about_as_many_rows() -> None:
    spreads = [(JAN, JAN + timedelta(days=10), 1000), (JAN + timedelta(days=5), JAN + timedelta(days=10), 1000)]
    days = [(at - micros(JAN)) / 86_400e6 for at in instants_of(spreads, 250)]
    assert days == pytest.approx([2.5, 5.0, 5.83, 6.67, 7.5, 8.33, 9.17], abs=0.3)


def test_a_row_of_long_ago_takes_no_steps() -> None:
    long_ago = datetime(1970, 1, 2, tzinfo=UTC)
    found = instants_of([(long_ago, long_ago, 1), (JAN, JAN + timedelta(days=1), 999)], 100)
    assert len(found) == 9
    assert min(found) > micros(JAN)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500), st.integers(1, 5_000)), max_size=20),
    st.integers(1, 4_000),
)
def test_instants_ascend_and_are_as_many_as_parts(found: list[tuple[int, int, int]], rows: int) -> None:
    spreads = [(JAN + timedelta(hours=a), JAN + timedelta(hours=a + b), count) for a, b, count in found]
    instants = instants_of(spreads, rows)
    assert instants == sorted(set(instants))
    assert len(instants) <= sum(count for *_, count in spreads) // rows
    assert all(
        min(first for first, *_ in spreads) <= JAN + (at - micros(JAN)) * timedelta(microseconds=1) for at in instants
    )


def test_the_spread_of_a_log_is_that_of_its_files_and_its_tail(tmp_path: Path) -> None:
    log, tail = ChangeLog(tmp_path / "log", PLAIN), FileTail(tmp_path / "tail")
    assert log.spread(tail) == []
    tail.put(0, changes([(0, 0), (0, 40)]))
    assert sorted(log.spread(tail)) == [(T0, T0, 1), (T0 + timedelta(days=40), T0 + timedelta(days=40), 1)]
    log.flush(tail, 0)
    tail.put(1, changes([(1, number % 70) for number in range(6_400)]), 0)
    found = log.spread(tail)
    assert sum(rows for *_, rows in found) == 6_402
    assert len(found) > 60
    assert max(last - first for first, last, _ in found) < timedelta(days=3)


def test_no_source_has_reached_more_than_the_instant() -> None:
    late, early = JAN + timedelta(days=2), JAN - timedelta(days=2)
    time = EventTimeProgress({"a": late, "b": early}, ended=frozenset({"a"}), ramps={"a": Ramp(JAN, 4, 1)})
    assert time.until(late).newest == {"a": JAN + timedelta(hours=12), "b": early}
    assert time.until(JAN).newest == {"a": JAN, "b": early}
    assert not time.until(JAN).ended
