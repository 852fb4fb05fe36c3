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
    orders,
    rowwise,
    windows,
)

CASES: list[Case] = [
    case
    for family in (rowwise, joins, keyed, windows, aggregates, choices, chains, features, expressions, matrix, orders)
    for case in family.CASES
]
