"""A worker is killed again and again, wherever it happens to be; what comes out is what plain Python computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import VICTIMS, run
from tests.seeds import chance_of_seed

KILLS, PARTS = 800, 20
"""How many kills there are in `make nightly`, and how many deployments they are spread over."""


def test_a_kill_of_each(tmp_path: Path) -> None:
    run(tmp_path, list(VICTIMS), chance_of_seed())


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_many_kills(tmp_path: Path, part: int) -> None:
    chance = chance_of_seed()
    run(tmp_path, chance.choices(VICTIMS, k=KILLS // PARTS), chance)
