"""The fluent object a pipeline's body gets for each input: every method adds one operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umbel.api.columnargs import names_of
from umbel.api.joinargs import join_arguments
from umbel.errors import InvalidType, InvalidValue
from umbel.expr import Expr
from umbel.operators.assign import Assign, Assigned
from umbel.operators.changelog import Changelog
from umbel.operators.computed import ByExpression, ByFunction, Computed
from umbel.operators.dedup import Dedup
from umbel.operators.dropnull import DropNull
from umbel.operators.explode import Explode
from umbel.operators.filter import Filter
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Operator
from umbel.operators.rename import Rename
from umbel.operators.select import Drop, Select
from umbel.operators.transform import Transform
from umbel.operators.union import Union
from umbel.operators.userfunction import UserFunction
from umbel.types.annotations import from_annotation

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset
    from umbel.api.grouped import Grouped

ASSIGN_ARGUMENTS = 3


@dataclass(frozen=True, slots=True)
class Building:
    """The pipeline being built.

    Args:
        pipeline: `Dataset.pipeline`.
        includes: what travels with its functions.
        inputs: the datasets it reads.
    """

    pipeline: str
    includes: tuple[Any, ...] = ()
    inputs: tuple[Dataset, ...] = ()

    def function(self, func: Callable[..., Any]) -> UserFunction:
        """Return a function of the user's with what travels with it."""
        return UserFunction(func, self.includes)


class Node:
    """Rows on their way through a pipeline.

    Args:
        operator: what makes them.
        building: the pipeline.
    """

    def __init__(self, operator: Operator, building: Building) -> None:
        self.operator, self.building = operator, building

    def then(self, kind: type[Operator], *others: Node, **parameters: Any) -> Node:
        """Return the rows that a further operator makes.

        Args:
            kind: the class of operator.
            others: further inputs.
            parameters: the operator's fields.

        Raises:
            InvalidValue: this node is terminal.
        """
        for each in (self, *others):
            if each.operator.is_terminal:
                raise InvalidValue(
                    f"pipeline '{self.building.pipeline}': cannot add node {kind.__name__.lower()} after a terminal "
                    f"node: {each.operator.kind} over continuous windows must be last",
                    hint='use emit="final", or discrete windows',
                )
        parents = (self.operator, *(other.operator for other in others))
        return Node(kind(parents=parents, pipeline=self.building.pipeline, **parameters), self.building)

    def filter(self, func: Expr | Callable[..., Any]) -> Node:
        """Keep the rows for which a condition holds.

        Args:
            func: a bool expression, or a function from a pandas frame to a Series of bools.
        """
        return self.then(Filter, condition=self._computed(func, "filter"))

    def assign(self, *args: Any, **columns: Any) -> Node:
        """Add or replace value columns.

        Args:
            args: a name, a type and a function from a pandas frame to a Series.
            columns: expressions with their types: `name=expr.astype(type)`.
        """
        owner = f"assign in pipeline '{self.building.pipeline}'"
        if bool(args) == bool(columns):
            raise InvalidType(
                f"{owner}: give either (name, type, function) or name=expression.astype(type)",
                hint='assign("total", int, lambda df: ...) or assign(total=expression.astype(int))',
            )
        if columns:
            return self.then(Assign, columns=tuple(_assigned(owner, name, each) for name, each in columns.items()))
        if len(args) != ASSIGN_ARGUMENTS:
            raise InvalidType(
                f"{owner}: expected (name, type, function), found {len(args)} arguments",
                hint='assign("total", int, lambda df: ...)',
            )
        name, annotation, func = args
        computed = self._computed(func, "assign")
        return self.then(Assign, columns=(Assigned(str(name), from_annotation(annotation), computed),))

    def transform(self, func: Callable[..., Any], schema: Mapping[str, Any] | None = None) -> Node:
        """Replace the rows by what a function makes of them.

        Args:
            func: from a pandas frame to one with as many rows.
            schema: the type of every column it returns; None when columns and types stay.
        """
        if not callable(func):
            raise InvalidValue(
                f"transform in pipeline '{self.building.pipeline}': expected a function, found {func!r}",
                hint="transform(lambda df: df, schema={...})",
            )
        columns = tuple((name, from_annotation(annotation)) for name, annotation in (schema or {}).items())
        return self.then(Transform, function=self.building.function(func), columns=columns)

    def rename(self, columns: Mapping[str, str]) -> Node:
        """Rename columns: keys, values or the timestamp.

        Args:
            columns: old names to new ones.
        """
        return self.then(Rename, names=tuple((str(old), new) for old, new in columns.items()))

    def drop(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Node:
        """Remove value columns."""
        return self.then(Drop, columns=self._names("drop", args, columns))

    def select(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Node:
        """Keep columns; all keys must be among them, and the timestamp stays in any case."""
        names = self._names("select", args, columns)
        selected = self.then(Select, columns=names)
        if selected.operator.schema.names == self.operator.schema.names:
            warnings.warn(f"{selected.operator.title}: all columns are selected", stacklevel=2)
            return self
        return selected

    def dropnull(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Node:
        """Drop rows with null in any of some optional columns, by default in any column."""
        if columns is not None and not columns:
            raise InvalidValue(
                f"dropnull in pipeline '{self.building.pipeline}': no columns given",
                hint="dropnull() takes all optional columns",
            )
        return self.then(DropNull, columns=self._names("dropnull", args, columns))

    def explode(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Node:
        """Make a row for every element of list columns, several of them side by side."""
        return self.then(Explode, columns=self._names("explode", args, columns))

    def dedup(self, *args: str | Sequence[str], by: str | Sequence[str] | None = None, window: Any = None) -> Node:
        """Keep the last of equal rows.

        Args:
            args: the columns that make rows equal.
            by: the same; by default all value columns.
            window: None: rows of one instant; Tumbling: of one bucket; Session: less than a gap apart.
        """
        if by is not None and not by:
            raise InvalidValue(
                f"dedup in pipeline '{self.building.pipeline}': no columns given",
                hint="dedup() compares all value columns",
            )
        return self.then(Dedup, by=self._names("dedup", args, by, "by"), window=window)

    def join(
        self,
        other: Node,
        how: str,
        on: Sequence[str] | None = None,
        left_on: Sequence[str] | None = None,
        right_on: Sequence[str] | None = None,
        within: tuple[str, str] = ("forever", "0s"),
        fields: Sequence[str] | None = None,
    ) -> Node:
        """Add the columns of the row with the same key of a keyed dataset, current at each row's time.

        Args:
            other: a keyed input of the pipeline.
            how: "inner" or "left".
            on: its key columns, when they have the same names on both sides.
            left_on: the columns here that hold its keys.
            right_on: its key columns, in the same order.
            within: how much older, and how much newer, than this row the other may be.
            fields: its columns in the result; all value columns by default.
        """
        right = self._joined(other)
        owner = f"join with {right.operator.subject} in pipeline '{self.building.pipeline}'"
        parameters = join_arguments(owner, how, on, left_on, right_on, within, fields)
        kind = TableJoin if self.operator.schema.is_keyed else AsOfJoin
        return self.then(kind, right, **parameters)

    def groupby(self, *keys: str | Sequence[str], window: Any = None) -> Grouped:
        """Group rows by keys, and by a window of time if one is given."""
        from umbel.api.grouped import Grouped

        return Grouped(self, self._names("groupby", keys, None), window)

    def changelog(self, delete: str | None = None, insert: str | None = None) -> Node:
        """Make a row of every insert and of every delete of a keyed dataset.

        Args:
            delete: the name of a column that is true for deletes.
            insert: the name of a column that is true for inserts; give one of the two.
        """
        if (delete is None) == (insert is None):
            raise InvalidValue(
                f"changelog in pipeline '{self.building.pipeline}': give either delete= or insert=, the marker's name",
                hint='changelog(delete="deleted")',
            )
        return self.then(Changelog, marker=delete or insert, marks_deletes=delete is not None)

    def union(self, *others: Node) -> Node:
        """Return the rows of this and other inputs, duplicates kept."""
        for other in others:
            if not isinstance(other, Node):
                raise InvalidType(
                    f"union in pipeline '{self.building.pipeline}': {other!r} is not a dataset",
                    hint="both sides are datasets or what operators made of them",
                )
        return self.then(Union, *others)

    def __add__(self, other: Node) -> Node:
        return self.union(other)

    def schema(self) -> dict[str, Any]:
        """Return the annotation of each column, by name."""
        return {name: dtype.annotation() for name, dtype in self.operator.schema.dtypes.items()}

    def __repr__(self) -> str:
        return f"Node({self.operator.title}: {', '.join(self.operator.schema.names)})"

    def _names(self, kind: str, args: Sequence[Any], keyword: Any, word: str = "columns") -> tuple[str, ...]:
        return names_of(args, keyword, f"{kind} in pipeline '{self.building.pipeline}'", word)

    def _computed(self, func: Any, kind: str) -> Computed:
        if isinstance(func, Expr):
            return ByExpression(func)
        if callable(func):
            return ByFunction(self.building.function(func))
        owner = f"{kind} in pipeline '{self.building.pipeline}'"
        raise InvalidValue(
            f"{owner}: expected an expression or a function, found {func!r}",
            hint="a function from a frame to a Series, or an expression",
        )

    def _joined(self, other: Any) -> Node:
        from umbel.api.dataset import record_of

        owner = f"join in pipeline '{self.building.pipeline}'"
        if any(other is dataset for dataset in self.building.inputs):
            return Node(record_of(other).leaf(), self.building)
        if not isinstance(other, Node):
            kind = InvalidValue if hasattr(type(other), "num_pipelines") else InvalidType
            message = f"{owner}: can only join with an input dataset of the pipeline, found {other!r}"
            raise kind(message, hint="name it in @inputs(...), and join with the parameter it comes as")
        if not isinstance(other.operator, Leaf):
            raise InvalidValue(
                f"{owner}: can only join with an input dataset, found an intermediate node: {other.operator.subject}",
                hint="make it a dataset of its own",
            )
        return other


def _assigned(owner: str, name: str, typed: Any) -> Assigned:
    if isinstance(typed, Expr):
        hint = f"{name}=(...).astype(type)"
        raise InvalidType(f"{owner}: column '{name}' has no type: `{typed}`; declare it with astype", hint=hint)
    expression = getattr(typed, "expr", None)
    if not isinstance(expression, Expr):
        raise InvalidValue(
            f"{owner}: column '{name}' must be an expression with .astype(type), found {typed!r}",
            hint='assign(total=(col("a") + col("b")).astype(int))',
        )
    return Assigned(name, typed.dtype, ByExpression(expression))
