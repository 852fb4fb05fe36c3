"""Every case on every engine."""

from __future__ import annotations

import pytest

from tests.conformance.cases import CASES
from tests.conformance.engines import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, engine):
    session = ENGINES[engine](case)
    for step in case.steps:
        step.run(session)


def test_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)
