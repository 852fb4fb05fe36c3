"""Lookups of some fields of an aggregation: the others are not computed."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from copy import copy

from umbel.operators.aggregate import LookedUpAggregation


def answering(operator: LookedUpAggregation, fields: AbstractSet[str] | None) -> LookedUpAggregation:
    """Return an aggregation with the same state that answers only some of its fields.

    A value that does not fit its type is an error of the lookups that request it, and of no others.

    Args:
        operator: the aggregation.
        fields: those requested; all when None.
    """
    requested = tuple(each for each in operator.aggregates if fields is None or each.into_field in fields)
    if len(requested) == len(operator.aggregates):
        return operator
    narrowed = copy(operator)
    vars(narrowed)["answered"] = requested
    return narrowed
