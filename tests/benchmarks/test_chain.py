"""Ten minutes of 1.2 billion events a day: the backlog does not grow, and every event is counted once."""

from __future__ import annotations

import pytest

from benchmarks.chain import RATE, figures
from tests.servers.golang import go


@pytest.mark.nightly
@pytest.mark.spark
def test_the_chain_keeps_up_for_ten_minutes() -> None:
    go()
    found = {each.name: each for each in figures(600.0, RATE)}
    print(*found.values(), sep="\n")
    assert [each.name for each in found.values() if each.is_reached is False] == []
    assert found["chain: events that the feature has counted / accepted"].value == 1.0
