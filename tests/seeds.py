"""Seeds of tests that draw lots: printed, and set again by the environment to repeat a failure."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

SEED = "UMBEL_TEST_SEED"


def new_seed() -> int:
    """Return a seed, that of the environment if there is one; pytest shows it with a failure."""
    seed = int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}; {SEED}={seed} makes the same choices")
    return seed


def chance_of_seed() -> random.Random:
    """Return a source of chance with a new seed."""
    return random.Random(new_seed())


def seeds(here: int, nightly: int) -> list[Any]:
    """Return the seeds of a test; all but the first ones are those of `make nightly`."""
    return [*range(here), *(pytest.param(each, marks=pytest.mark.nightly) for each in range(here, nightly))]
