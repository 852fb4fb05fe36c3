"""The cases, by family."""

from __future__ import annotations

from tests.conformance.case import Case
from tests.conformance.cases import aggregates, chains, choices, features, joins, keyed, rowwise, windows

CASES: list[Case] = [
    case for family in (rowwise, joins, keyed, windows, aggregates, choices, chains, features) for case in family.CASES
]
