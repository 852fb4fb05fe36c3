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
from umbel.types.windows import Hopping, Session, Tumbling

RESERVED = ("emit", "along", "using", "config")
EMITS = ("eager", "final")


class Grouped:
    """Rows grouped by keys, and by windows of time.

    Args:
        node: the rows.
        keys: the columns with equal values in a group.
        window: Tumbling, Hopping or Session; None for one group per key.
    """

    def __init__(self, node: Node, keys: tuple[str, ...], window: Any) -> None:
        self.node, self.keys, self.window = node, keys, window
        owner = f"groupby in pipeline '{node.building.pipeline}'"
        if not keys:
            raise InvalidValue(f"{owner}: at least one key is needed")
        if window is not None:
            _check_window(owner, window)
            if node.operator.schema.is_keyed:
                raise InvalidValue(f"{owner}: window {window!r} cannot be used on keyed input", hint="use along=")

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
        _check_options(owner, along, emit, named)
        found = (*_unwrapped(aggregates), *_named(owner, named))
        for each in found:
            if not isinstance(each, AggregateType):
                raise InvalidType(f"{owner}: expected an aggregate, found {each!r}")
            if not each.into_field:
                raise InvalidValue(
                    f"{owner}: {each.title} has no name", hint="aggregate(name=...) or into_field='name'"
                )
        if not found and self.window is None:
            raise InvalidType(f"{owner}: at least one aggregate is needed")
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
            raise InvalidValue(f"{owner}: groupby with window {self.window!r} only goes with aggregate")


def _check_window(owner: str, window: Any) -> None:
    if isinstance(window, type) or not isinstance(window, Tumbling | Hopping | Session):
        shown = getattr(window, "__name__", repr(window))
        raise InvalidType(f"{owner}: window must be a Tumbling, Hopping or Session, found {shown}")
    if isinstance(window, Hopping) and window.is_forever:
        raise InvalidType(f"{owner}: window cannot be a Hopping 'forever', found {window!r}")


def _check_options(owner: str, along: Any, emit: Any, named: Mapping[str, Any]) -> None:
    for name, value in {"along": along, "emit": emit, **named}.items():
        if name in RESERVED and isinstance(value, AggregateType):
            raise InvalidValue(f"{owner}: '{name}' cannot be the name of an aggregate: it is reserved")
    for name in named:
        if name in RESERVED:
            raise InvalidValue(f"{owner}: unknown argument '{name}'; it is reserved, and no name for an aggregate")
    if emit not in EMITS:
        raise InvalidValue(f"{owner}: emit must be one of 'eager', 'final', found {emit!r}")
    if along is not None and not isinstance(along, str):
        raise InvalidValue(f"{owner}: along must be the name of a column, found {along!r}")


def _unwrapped(aggregates: Sequence[Any]) -> Sequence[Any]:
    if len(aggregates) == 1 and isinstance(aggregates[0], list | tuple):
        return tuple(aggregates[0])
    return tuple(aggregates)


def _named(owner: str, named: Mapping[str, Any]) -> list[AggregateType]:
    for name, value in named.items():
        if not isinstance(value, AggregateType):
            raise InvalidValue(f"{owner}: '{name}' must be an aggregate, found {value!r}")
    return [value.named(name) for name, value in named.items()]
