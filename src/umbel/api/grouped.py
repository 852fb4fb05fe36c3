"""Rows grouped by keys: what `groupby` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from umbel.aggregates.aggregate import Aggregate as AggregateType
from umbel.api.node import Node
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.aggregate import Aggregate
from umbel.operators.first import First
from umbel.operators.latest import Latest

RESERVED = ("using", "config")


class Grouped:
    """Rows grouped by keys, and by windows of time.

    Args:
        node: the rows.
        keys: the columns with equal values in a group.
        window: Tumbling, Hopping or Session; None for one group per key.
    """

    def __init__(self, node: Node, keys: tuple[str, ...], window: Any) -> None:
        self.node, self.keys, self.window = node, keys, window
        if not keys:
            raise InvalidValue(
                f"groupby in pipeline '{node.building.pipeline}': at least one key is needed", hint='groupby("uid")'
            )

    def aggregate(self, *aggregates: Any, along: Any = None, emit: Any = "eager", **named: Any) -> Node:
        """Compute values from the rows of each group.

        Args:
            aggregates: aggregates with `into_field=`.
            along: a datetime column to use as the time instead of the timestamp.
            emit: "eager": whenever a value changes; "final": once no more changes are expected.
            named: aggregates by the column of their result.

        Raises:
            InvalidValue: arguments that do not go together.
        """
        owner = f"aggregate in pipeline '{self.node.building.pipeline}'"
        _check_names(owner, named)
        found = (*_unwrapped(aggregates), *(each.named(name) for name, each in named.items()))
        for each in found:
            if not isinstance(each, AggregateType):
                raise InvalidType(
                    f"{owner}: expected an aggregate, found {each!r}",
                    hint='aggregate(n=Count(window=Continuous("1d")))',
                )
        return self.node.then(Aggregate, keys=self.keys, aggregates=found, window=self.window, along=along, emit=emit)

    def first(self) -> Node:
        """Keep the earliest row of each group."""
        self._check_no_window("first")
        return self.node.then(First, keys=self.keys)

    def latest(self) -> Node:
        """Let every row be the row of its group from its timestamp on."""
        self._check_no_window("latest")
        return self.node.then(Latest, keys=self.keys)

    def _check_no_window(self, kind: str) -> None:
        if self.window is not None:
            owner = f"{kind} in pipeline '{self.node.building.pipeline}'"
            raise InvalidValue(
                f"{owner}: groupby with window {self.window!r} only goes with aggregate",
                hint="leave the window out, or use aggregate",
            )


def _check_names(owner: str, named: Mapping[str, Any]) -> None:
    for name, value in named.items():
        if name in RESERVED:
            raise InvalidValue(
                f"{owner}: '{name}' is reserved and cannot be the name of an aggregate",
                hint="choose another name, or use into_field=",
            )
        if not isinstance(value, AggregateType):
            raise InvalidValue(
                f"{owner}: '{name}' must be an aggregate, found {value!r}", hint='n=Count(window=Continuous("1d"))'
            )


def _unwrapped(aggregates: Sequence[Any]) -> Sequence[Any]:
    if len(aggregates) == 1 and isinstance(aggregates[0], list | tuple):
        return tuple(aggregates[0])
    return tuple(aggregates)
