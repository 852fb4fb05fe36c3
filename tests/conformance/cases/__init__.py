"""The cases, by family."""

from __future__ import annotations

from tests.conformance.case import Case
from tests.conformance.cases import (
    aggregates,
    chains,
    choices,
    edges,
    expressions,
    features,
    joins,
    keyed,
    matrix,
    nonfinite,
    orders,
    retractions,
    rowwise,
    windows,
)

FAMILIES = (
    rowwise,
    joins,
    keyed,
    retractions,
    windows,
    aggregates,
    choices,
    chains,
    features,
    expressions,
    matrix,
    orders,
    nonfinite,
    edges,
)
CASES: list[Case] = [case for family in FAMILIES for case in family.CASES]
