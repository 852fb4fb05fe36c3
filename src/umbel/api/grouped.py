"""Grouped rows: the result of `groupby`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from umbel.aggregates.aggregate import Aggregate
from umbel.api.node import Node
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, UmbelError
from umbel.operators.aggregate import aggregate
from umbel.operators.aggregate_rules import check_algebra
from umbel.operators.first import First
from umbel.operators.latest import Latest
from umbel.operators.operator import Operator
from umbel.plugins import is_own

RESERVED = ("using", "config")
Rows = TypeVar("Rows", bound=Node)


class Grouped(Generic[Rows]):
    """Rows grouped by keys and, optionally, by time windows.

    Args:
        node: the rows.
        keys: the grouping columns.
        window: Tumbling, Hopping or Session; None for one group per key.
    """

    def __init__(self, node: Rows, keys: tuple[str, ...], window: Any) -> None:
        self.node, self.keys, self.window = node, keys, window
        if not keys:
            raise InvalidValue(
                f"groupby in pipeline '{node.building.pipeline}': at least one key is needed", hint='groupby("uid")'
            )
        for name, dtype in node.operator.schema.dtypes.items():
            if name in keys and dtype.is_optional:
                raise InvalidType(
                    f"groupby in pipeline '{node.building.pipeline}': key '{name}' cannot be optional, found {dtype}",
                    hint=f'drop rows without it first: dropnull("{name}"), or fill nulls with assign and fillnull',
                )

    def aggregate(self, *aggregates: Any, along: Any = None, emit: Any = "eager", **named: Any) -> Rows:
        """Compute values from the rows of each group.

        Args:
            aggregates: aggregates with `into_field=`.
            along: a datetime column to use as the time instead of the timestamp.
            emit: "eager": at each change of a value; "final": once no more changes are expected.
            named: aggregates by the column of their result.

        Raises:
            InvalidValue: the arguments contradict each other.
        """
        owner = f"aggregate in pipeline '{self.node.building.pipeline}'"
        _check_names(owner, named)
        found = (*_unwrapped(aggregates), *(each.named(name) for name, each in named.items()))
        for each in found:
            if not isinstance(each, Aggregate):
                raise InvalidType(
                    f"{owner}: expected an aggregate, found {each!r}",
                    hint='aggregate(n=Count(window=Continuous("1d")))',
                )
        fitted = tuple(_fitted(each, self.node.operator, owner) for each in found)
        return self.node.then(aggregate, keys=self.keys, aggregates=fitted, window=self.window, along=along, emit=emit)

    if not TYPE_CHECKING:  # type checkers report other names themselves

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise InvalidAttribute(
                f"groupby in pipeline '{self.node.building.pipeline}' has no '{name}'",
                hint="what follows groupby is aggregate, first or latest",
            )

    def __repr__(self) -> str:
        return f"groupby({', '.join(map(repr, self.keys))})"

    def first(self) -> Rows:
        """Return the earliest row of each group."""
        self._check_no_window("first")
        return self.node.then(First, keys=self.keys)

    def latest(self) -> Rows:
        """Return the latest row of each group; each row is current from its timestamp on."""
        self._check_no_window("latest")
        return self.node.then(Latest, keys=self.keys)

    def _check_no_window(self, kind: str) -> None:
        if self.window is not None:
            owner = f"{kind} in pipeline '{self.node.building.pipeline}'"
            raise InvalidValue(
                f"{owner}: groupby with window {self.window!r} only goes with aggregate",
                hint="leave the window out, or use aggregate",
            )


def _fitted(aggregate: Aggregate, rows: Operator, owner: str) -> Aggregate:
    try:
        fitted = aggregate.fitted(rows.schema)
        if not is_own(type(fitted)):
            fitted.check(rows.schema)
            check_algebra(fitted, rows.schema, is_retractable=not rows.inserts_only)
        return fitted
    except UmbelError as error:
        raise error.restated(f"{owner}: {error.message}", hint=error.hint) from None


def _check_names(owner: str, named: Mapping[str, Any]) -> None:
    for name, value in named.items():
        if name in RESERVED:
            raise InvalidValue(
                f"{owner}: '{name}' is reserved and cannot be the name of an aggregate",
                hint="choose another name, or use into_field=",
            )
        if not isinstance(value, Aggregate):
            raise InvalidValue(
                f"{owner}: '{name}' must be an aggregate, found {value!r}", hint='n=Count(window=Continuous("1d"))'
            )
        if value.into_field not in ("", name):
            raise InvalidValue(
                f"{owner}: '{name}' has another name, into_field={value.into_field!r}",
                hint="name it once: leave one out",
            )


def _unwrapped(aggregates: Sequence[Any]) -> Sequence[Any]:
    if len(aggregates) == 1 and isinstance(aggregates[0], list | tuple):
        return tuple(aggregates[0])
    return tuple(aggregates)
