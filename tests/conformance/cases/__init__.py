"""The cases, by family."""

from __future__ import annotations

from tests.conformance.cases import aggregates, choices, features, joins, keyed, windows
from tests.conformance.case import Case

CASES: list[Case] = [
    case for family in (joins, keyed, windows, aggregates, choices, features) for case in family.CASES
]
