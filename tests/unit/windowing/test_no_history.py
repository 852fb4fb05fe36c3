"""Continuous windows of keys that have no rows."""

from __future__ import annotations

import pytest

from tests.aggregating import Job, aggregation, frame
from tests.unit.windowing.test_tiles import HOUR, clock, event
from umbel.aggregates import Count, Sum
from umbel.types.windows import Continuous


@pytest.mark.parametrize("appends", [True, False])
def test_a_key_without_history_is_answered_from_it(appends: bool) -> None:
    operator = aggregation(Count(window=HOUR), Sum(of="x", window=Continuous("forever")), appends=appends)
    for known in ([], [event(0, clock("0:00"), x=1)]):
        found = operator.replay(frame(known), Job.points([(2, clock("1:00"))]))
        assert found.select("a0", "a1").row(0) == (None, None)
    assert operator.tiles.combine(frame([])).is_empty()
