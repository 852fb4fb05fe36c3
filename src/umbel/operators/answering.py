"""Lookups of some fields of an aggregation: the others are not computed."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from copy import copy

from umbel.operators.aggregate import LookedUpAggregation
from umbel.windowing.points import RequestedColumns


def answering(operator: LookedUpAggregation, fields: AbstractSet[str] | None) -> LookedUpAggregation:
    """Return an aggregation with the same state that answers only some of its fields.

    A value that does not fit its type is an error of the lookups that request it, and of no others.

    Args:
        operator: the aggregation.
        fields: those requested; all when None.
    """
    if fields is None:
        return operator
    requested = tuple(each for each in operator.aggregates if each.into_field in fields)
    narrowed = copy(operator)
    vars(narrowed)["answered"] = RequestedColumns(requested, operator.schema.timestamp in fields)
    return narrowed
