"""A worker is killed again and again, wherever it happens to be; what comes out is what plain Python computes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kills import VICTIMS, run


def test_three_kills(tmp_path: Path) -> None:
    run(tmp_path, list(VICTIMS), random.Random())


@pytest.mark.nightly
def test_many_kills(tmp_path: Path) -> None:
    chance = random.Random()
    run(tmp_path, chance.choices(VICTIMS, k=12), chance)
