"""How many examples a law tries: it says how many here, CI tries an eighth and `make nightly` forty times as many."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings

TESTS = "UMBEL_TESTS"
COUNT = 100
"""What stands for once."""

settings.register_profile("here", deadline=None, max_examples=COUNT)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=COUNT // 8,
    derandomize=True,
    print_blob=True,
    # examples depend on the modules that are loaded, their size and time on the machine: no defects of umbel
    suppress_health_check=(HealthCheck.data_too_large, HealthCheck.too_slow),
)
settings.register_profile("nightly", deadline=None, max_examples=40 * COUNT, print_blob=True)
settings.register_profile(
    "mutants", deadline=None, max_examples=30, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)


def is_nightly() -> bool:
    """Return whether laws try as many examples as at night."""
    return os.environ.get(TESTS) == "nightly"


def load() -> None:
    """Put the profile in force that `UMBEL_TESTS` names; else the one of CI where that is."""
    settings.load_profile(os.environ.get(TESTS) or ("ci" if os.environ.get("CI") else "here"))


def examples(count: int, **options: Any) -> settings:
    """Return the settings of a law that tries so many examples here, and in other profiles as many times more or fewer."""
    return settings(max_examples=max(1, count * settings().max_examples // COUNT), deadline=None, **options)
