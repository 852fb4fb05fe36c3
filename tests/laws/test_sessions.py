"""Sessions of rows that come and go over many batches are those of the rows that are left, however little the state retains."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import Job, aggregation, frame, instant, micros
from tests.comparing import assert_rows
from tests.profiles import examples
from tests.reference import Change, sessions
from umbel.aggregates import Count, Distinct, LastK, Max, Min, Quantile, Stddev, Sum
from umbel.state.tables import TimedTable
from umbel.types.windows import Session
from umbel.windowing import session_instants

SECOND = 1_000_000
GAP = 10
BRIEF = 1_500_000
START = 10**9 * SECOND
AGGREGATES = (
    Count(),
    Sum(of="x"),
    Min(of="x", default=0.0),
    Max(of="x", default=0.0),
    Stddev(of="f"),
    Distinct(of="x", unordered=True),
    LastK(of="x", limit=3, dedup=False, dropnull=False),
    Quantile(of="f", p=0.5, approx=True),
)

batch = st.tuples(
    st.integers(0, 40),  # seconds by which time goes on before it
    st.lists(st.tuples(st.integers(1, 2), st.integers(-30, 0), st.integers(-3, 3)), max_size=12),
    st.lists(st.integers(0, 200), max_size=8),  # which of the rows that are left are retracted
)


class Site:
    """Rows that come late by at most half a minute, and are retracted no later than that.

    Args:
        final: True if sessions are emitted when they are over.
        gap: of the sessions, µs.
    """

    def __init__(self, *, final: bool = False, gap: int = GAP * SECOND) -> None:
        self.gap, window = gap, Session(f"{gap / SECOND}s")
        self.job = Job(aggregation(*AGGREGATES, window=window, appends=False, emit="final" if final else "eager"))
        self.rows: list[tuple[int, Change]] = []
        self.now, self.seq = START, 0

    def feed(self, inserted: list[tuple[int, int, int]], picks: list[int]) -> None:
        """Run a batch: rows of keys, each some µs ago with a value, and retractions of rows that are left."""
        watermark, changes = self.now - 31 * SECOND, []
        late = [each for each in self.rows if each[1].time > watermark]
        for pick in picks:
            if late:
                key, row = late.pop(pick % len(late))
                self.rows.remove((key, row))
                changes.append((key, Change(row.at, row.time, row.values, -1, row.seq)))
        for key, ago, value in inserted:
            self.seq += 1
            at = self.now + ago
            self.rows.append((key, Change(at, at, {"x": value, "f": value / 4}, 1, self.seq)))
            changes.append(self.rows[-1])
        self.job.feed(frame(changes), watermark=instant(watermark))

    def check(self) -> None:
        """Assert that what was emitted is what the rows that are left give."""
        found = self.job.changes()
        assert (found["_weight"] == 1).all()
        for key in (1, 2):
            expected = sessions(AGGREGATES, [row for mine, row in self.rows if mine == key], self.gap)
            mine = found.filter(pl.col("k") == key).sort("t")
            spans = [(micros(w["begin"]), micros(w["end"])) for w in mine["window"]]
            assert spans == sorted(expected)
            for span, values in zip(spans, mine.select(f"a{n}" for n in range(len(AGGREGATES))).rows(), strict=True):
                assert_rows(values, expected[span], 1e3, (key, span))


@pytest.fixture(params=[0, 4])
def ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(session_instants, "AHEAD", request.param)
    return int(request.param)


@given(steps=st.lists(batch, min_size=1, max_size=12), final=st.booleans(), is_brief=st.booleans())
@examples(40)
@pytest.mark.usefixtures("ahead")
def test_rows_come_and_go(steps: list[Any], final: bool, is_brief: bool) -> None:
    unit = BRIEF // 5 if is_brief else SECOND
    site = Site(final=final, gap=BRIEF if is_brief else GAP * SECOND)
    for seconds, inserted, picks in steps:
        site.now += seconds * unit
        site.feed([(key, ago * unit, value) for key, ago, value in inserted], picks)
        if not final:
            site.check()
    end = instant(site.now + 10**9)
    site.job.tick(watermark=end, stream_time=end)
    site.check()


@pytest.mark.usefixtures("ahead")
def test_a_session_longer_than_the_disorder_loses_nothing() -> None:
    site = Site()
    for number in range(120):
        site.now += 7 * SECOND
        site.feed([(1, 0, number % 5)], [])
    site.check()
    site.feed([], [0])  # the oldest row that may be retracted: the session falls apart there
    assert len(site.job.changes()) == 2
    site.check()
    site.feed([(1, -28 * SECOND, 1)], [])
    assert len(site.job.changes()) == 1
    site.check()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of instants that are read, read by read."""
    counted: list[int] = []
    original = session_instants.SessionInstants._read

    def counting(self: Any, *arguments: Any, **options: Any) -> pl.DataFrame:
        found = original(self, *arguments, **options)
        counted.append(found.height)
        return found

    monkeypatch.setattr(session_instants.SessionInstants, "_read", counting)
    return counted


def test_a_batch_reads_what_it_touches_and_not_the_whole_session(reads: list[int]) -> None:
    site = Site()
    site.now += 1000 * SECOND
    site.feed([(1, -number * SECOND // 100, 1) for number in range(3000)], [])
    reads.clear()
    site.now += SECOND
    site.feed([(1, -number, 2) for number in range(100)], [])
    assert sum(reads) == 0, "rows after all others"
    site.feed([(1, -5 * SECOND - 7, 2), (1, -6 * SECOND, 2)], [])
    assert sum(reads) == 1, "one late row has an instant that is there"
    reads.clear()
    site.feed([], [1500])
    assert sum(reads) <= 3, "a retracted row: its instant and its neighbours"
    site.check()


def test_a_row_replaced_at_its_instant_reads_its_instant_only(reads: list[int]) -> None:
    site = Site()
    site.feed([(1, -number * SECOND, 1) for number in range(20)], [])
    reads.clear()
    _, row = site.rows[4]
    site.feed([(1, row.time - site.now, 3)], [4])
    assert sum(reads) == 1
    site.check()


def test_instants_outlive_their_session_by_a_multiple_of_its_length_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    original = TimedTable.renumber

    def counting(self: TimedTable, keys: pl.Series, rows: pl.DataFrame) -> None:
        original(self, keys, rows)
        left.append(self.all().height)

    monkeypatch.setattr(TimedTable, "renumber", counting)
    site = Site()
    site.feed([(1, -number * SECOND, 1) for number in range(20)], [])
    assert left[-1] == 20
    site.now += (31 + GAP + 1 + GAP + 4 * 20) * SECOND
    for _ in range(3):  # what is final is known after the tick of a batch, and dropped by the next one
        site.feed([(2, 0, 1)], [])
    assert left[-1] == 1


def test_a_row_that_comes_and_goes_in_one_batch_leaves_nothing() -> None:
    site = Site()
    site.feed([(1, 0, 1), (1, -60 * SECOND, 1)], [])
    row = Change(site.now, site.now, {"x": 9, "f": 1.5}, 1, 50)
    inside = Change(site.now - SECOND, site.now - SECOND, {"x": 9, "f": 1.5}, 1, 51)
    for each in (row, inside):
        back = Change(each.at, each.time, each.values, -1, each.seq)
        site.job.feed(frame([(1, each), (1, back), (2, each), (2, back)]))
        site.check()
