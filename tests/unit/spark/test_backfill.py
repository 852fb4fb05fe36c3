"""How history is cut into steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from umbel.spark import backfill


@given(st.dictionaries(st.integers(-5, 50), st.integers(1, 2_500_000)))
def test_stretches_cover_every_batch_once_in_order(sizes):
    stretches = list(backfill._time_ranges(sizes))
    stored = [[batch for batch in sorted(sizes) if first <= batch <= last] for first, last in stretches]
    assert [batch for stretch in stored for batch in stretch] == sorted(sizes)
    assert all(sum(sizes[batch] for batch in stretch[:-1]) < backfill.ROWS_AT_ONCE for stretch in stored)
    assert all(sum(sizes[batch] for batch in stretch) >= backfill.ROWS_AT_ONCE for stretch in stored[:-1])
