"""The cases, by family."""

from __future__ import annotations

from tests.conformance.case import Case
from tests.conformance.cases import (
    aggregates,
    chains,
    choices,
    expressions,
    features,
    joins,
    keyed,
    matrix,
    rowwise,
    windows,
)

CASES: list[Case] = [
    case
    for family in (rowwise, joins, keyed, windows, aggregates, choices, chains, features, expressions, matrix)
    for case in family.CASES
]
