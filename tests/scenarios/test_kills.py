"""A worker is killed again and again, wherever it happens to be; what comes out is what plain Python computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import VICTIMS, run
from tests.seeds import chance_of_seed


def test_three_kills(tmp_path: Path) -> None:
    run(tmp_path, list(VICTIMS), chance_of_seed())


@pytest.mark.nightly
def test_many_kills(tmp_path: Path) -> None:
    chance = chance_of_seed()
    run(tmp_path, chance.choices(VICTIMS, k=12), chance)
