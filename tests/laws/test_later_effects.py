"""Rows of tables that take effect after their timestamps, as changes of a database do.

Aggregates are those of the rows in force, also where a key has none any more.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.aggregating import TABLE, Job, aggregation, frame
from tests.comparing import assert_rows
from tests.laws.test_tiles import FOREVER, SECOND, batches, tables, tilings, version_history
from tests.profiles import examples
from tests.reference import is_found, live, value
from umbel.aggregates import Average, Count, Sum
from umbel.windowing.tiling import Tiling

UNBOUNDED = (Count(window=FOREVER), Sum(of="x", window=FOREVER), Average(of="f", window=FOREVER))
delayed = st.lists(st.sampled_from([0, 1, 50, 3000, 90_000]).map(SECOND.__mul__), min_size=1, max_size=4)


@given(tiling=tilings, drawn=tables, order=st.randoms(use_true_random=False), delays=delayed)
@examples(40)
def test_rows_that_take_effect_after_their_instants(tiling: Tiling, drawn: Any, order: Any, delays: Any) -> None:
    changes = version_history(drawn, delays)
    job = Job(aggregation(*UNBOUNDED, keyed=True, tiling=tiling))
    for batch in batches(changes, order, 4):
        job.feed(frame(batch, TABLE))
    end = max(change.at for _, change in changes)
    requested = [(key, end + ahead) for key in (1, 2) for ahead in (0, SECOND)]
    found = job.lookup(requested)
    replayed = job.operator.replay(frame(changes, TABLE), job.points(requested))
    for place, (key, now) in enumerate(requested):
        rows = live(change for k, change in changes if k == key)
        is_there = is_found([c for k, c in changes if k == key], now)
        values = [value(each, rows, now) if is_there else each.missing for each in UNBOUNDED]
        names = [f"a{number}" for number in range(len(UNBOUNDED))]
        assert_rows(replayed.select(names).row(place), values, 1e3, f"offline {key}")
        if not found["_history"][place]:
            assert_rows(found.select(names).row(place), values, 1e3, f"online {key}")
