"""The fluent node passed to a pipeline's body: each method adds an operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

from umbel.api.column_arguments import names_of, text_of, type_of, without_pandas
from umbel.api.join_arguments import join_arguments
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, UnknownName, did_you_mean
from umbel.expr import Expr
from umbel.functions.computed import ByExpression, ByFunction, Computed, check_size
from umbel.functions.user_function import UserFunction
from umbel.operators.assign import Assign, Assigned
from umbel.operators.changelog import Changelog
from umbel.operators.dedup import Dedup
from umbel.operators.dropnull import DropNull
from umbel.operators.explode import Explode
from umbel.operators.filter import Filter
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.leaf import Leaf
from umbel.operators.operator import OPERATORS, Operator
from umbel.operators.rename import Rename
from umbel.operators.select import Drop, Select
from umbel.operators.transform import Transform
from umbel.operators.union import Union

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset
    from umbel.api.grouped import Grouped


ASSIGN_ARGUMENTS = 3
OF_GROUPS = ("aggregate", "first", "latest")
"""Methods of what `groupby` returns."""


@dataclass(frozen=True, slots=True)
class Building:
    """The pipeline under construction.

    Args:
        pipeline: `Dataset.pipeline`.
        includes: the objects pickled with its functions.
        inputs: the datasets it reads.
    """

    pipeline: str
    includes: tuple[Any, ...] = ()
    inputs: tuple[Dataset, ...] = ()

    def function(self, func: Callable[..., Any]) -> UserFunction:
        """Return a user function with the objects pickled with it."""
        return UserFunction(func, self.includes)


class Node:
    """The rows at one point of a pipeline under construction.

    Type checkers see these methods on `Dataset` as well, the annotation of a pipeline's parameters: hence `Self`.

    Args:
        operator: the operator that produces the rows.
        building: the pipeline.
    """

    def __init__(self, operator: Operator, building: Building) -> None:
        self.operator, self.building = operator, building

    def then(self, kind: Callable[..., Operator], *others: Node, **parameters: Any) -> Self:
        """Return the output of a further operator.

        Args:
            kind: the class of operator, or what makes one.
            others: further inputs.
            parameters: the operator's fields.

        Raises:
            InvalidValue: this node is terminal.
        """
        inputs: tuple[Node, ...] = (self, *others)
        for each in inputs:
            if each.operator.is_terminal:
                raise InvalidValue(
                    f"pipeline '{self.building.pipeline}': cannot add node {kind.__name__.lower()} after a terminal "
                    f"node: {each.operator.kind} over continuous windows must be last",
                    hint='use emit="final", or discrete windows',
                )
        parents = tuple(each.operator for each in inputs)
        made = kind(parents=parents, pipeline=self.building.pipeline, **parameters)
        made.check_use()
        return type(self)(made, self.building)

    if not TYPE_CHECKING:  # with it, type checkers would take any name for an operator

        def __getattr__(self, name: str) -> Callable[..., Node]:
            return self._registered(name)

        def __getitem__(self, column: object) -> Any:
            raise InvalidType(
                f"pipeline '{self.building.pipeline}': its rows are no pandas frame, so there is no [{column!r:.80}]",
                hint='filter(col("n") > 1) for rows, select("n") for columns, col("n") in expressions',
            )

    def _registered(self, name: str) -> Callable[..., Self]:
        """Return the method that adds a registered operator.

        Its arguments are further inputs, then the operator's fields by name.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        if name in OF_GROUPS:
            raise InvalidAttribute(
                f"pipeline '{self.building.pipeline}': '{name}' needs groups of rows",
                hint=f'groupby("uid").{name}(...)',
            )
        try:
            kind = OPERATORS.find(name)
        except UnknownName:
            known = did_you_mean(name, [each for each in dir(type(self)) if not each.startswith("_")])
            message = f"pipeline '{self.building.pipeline}': there is no operator '{name}'{known}"
            raise InvalidAttribute(
                message, hint="operators of other packages are found once they are installed"
            ) from None
        if kind.is_internal:
            raise InvalidAttribute(
                f"pipeline '{self.building.pipeline}': '{name}' is added by umbel itself", hint="leave it out"
            )
        return partial(self._added, kind)

    def _added(self, kind: type[Operator], *others: Node, **parameters: Any) -> Self:
        names = [each.name for each in fields(kind) if each.init and each.name not in ("parents", "pipeline")]
        subject = f"{kind.__name__.lower()} in pipeline '{self.building.pipeline}'"
        for each in others:
            if not isinstance(each, Node):
                raise InvalidType(
                    f"{subject}: {each!r:.80} is no input of the pipeline",
                    hint="inputs come first, by position; its fields go by name",
                )
        try:
            signature(kind).bind(**parameters)
        except TypeError as error:
            raise InvalidType(f"{subject}: {error}", hint=f"its fields: {', '.join(names) or 'none'}") from None
        return self.then(kind, *others, **parameters)

    def filter(self, func: Expr | Callable[..., Any]) -> Self:
        """Filter rows by a condition.

        Args:
            func: a bool expression, or a function from a pandas frame to a Series of bools.
        """
        return self.then(Filter, condition=self._computed(func, "filter"))

    def assign(self, *args: Any, **columns: Any) -> Self:
        """Add or replace value columns.

        Args:
            args: a name, a type and a function from a pandas frame to a Series.
            columns: expressions with their types: `name=expr.astype(type)`.
        """
        subject = f"assign in pipeline '{self.building.pipeline}'"
        if bool(args) == bool(columns):
            raise InvalidType(
                f"{subject}: give either (name, type, function) or name=expression.astype(type)",
                hint='assign("total", int, lambda df: ...) or assign(total=expression.astype(int))',
            )
        if columns:
            return self.then(Assign, columns=tuple(self._assigned(subject, *each) for each in columns.items()))
        if len(args) != ASSIGN_ARGUMENTS:
            raise InvalidType(
                f"{subject}: expected (name, type, function), found {len(args)} arguments",
                hint='assign("total", int, lambda df: ...)',
            )
        name, annotation, func = text_of(args[0], subject, "the first argument"), args[1], args[2]
        assigned = Assigned(name, type_of(annotation, subject, name), self._computed(func, "assign"))
        return self.then(Assign, columns=(assigned,))

    def transform(self, func: Callable[..., Any], schema: Mapping[str, Any] | None = None) -> Self:
        """Replace the rows by the result of a function.

        Args:
            func: from a pandas frame to one with as many rows.
            schema: the type of every column it returns; None if columns and types are unchanged.
        """
        subject, hint = f"transform in pipeline '{self.building.pipeline}'", "transform(lambda df: df, schema={...})"
        if not callable(func):
            raise InvalidValue(f"{subject}: expected a function, found {func!r}", hint=hint)
        if not isinstance(schema, Mapping | None):
            raise InvalidType(f"{subject}: schema must be a dict of columns and types, found {schema!r:.80}", hint=hint)
        columns = {text_of(name, subject, "a key of schema"): kind for name, kind in (schema or {}).items()}
        types = tuple((name, type_of(without_pandas(kind), subject, name)) for name, kind in columns.items())
        return self.then(Transform, function=self.building.function(func), columns=types)

    def rename(self, columns: Mapping[str, str]) -> Self:
        """Rename columns: keys, values or the timestamp.

        Args:
            columns: old names to new ones.
        """
        subject = f"rename in pipeline '{self.building.pipeline}'"
        provided: Any = columns
        if not isinstance(provided, Mapping):
            message = f"{subject}: expected a dict of old and new names, found {provided!r:.80}"
            raise InvalidType(message, hint='rename({"old": "new"})')
        names = ((text_of(old, subject, "a key"), text_of(new, subject, "a value")) for old, new in columns.items())
        return self.then(Rename, names=tuple(names))

    def drop(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Self:
        """Remove value columns."""
        return self.then(Drop, columns=self._names("drop", args, columns))

    def select(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Self:
        """Select columns.

        All keys must be among them; the timestamp is always included.
        """
        names = self._names("select", args, columns)
        selected = self.then(Select, columns=names)
        if selected.operator.schema.names == self.operator.schema.names:
            warnings.warn(f"{selected.operator.title}: all columns are selected", stacklevel=2)
            return self
        return selected

    def dropnull(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Self:
        """Drop rows with null in any of some optional columns, by default in any column."""
        if columns is not None and not columns:
            raise InvalidValue(
                f"dropnull in pipeline '{self.building.pipeline}': no columns given",
                hint="dropnull() takes all optional columns",
            )
        return self.then(DropNull, columns=self._names("dropnull", args, columns))

    def explode(self, *args: str | Sequence[str], columns: Sequence[str] | None = None) -> Self:
        """Explode list columns into one row per element.

        Several list columns are exploded side by side.
        """
        if columns is not None and not isinstance(columns, list | tuple):
            raise InvalidType(
                f"explode in pipeline '{self.building.pipeline}': columns must be a list, found {columns!r}",
                hint='explode(columns=["a", "b"]) or explode("a", "b")',
            )
        return self.then(Explode, columns=self._names("explode", args, columns, is_distinct=True))

    def dedup(self, *args: str | Sequence[str], by: str | Sequence[str] | None = None, window: Any = None) -> Self:
        """Deduplicate rows, retaining the last of equal rows.

        Args:
            args: the columns compared for equality.
            by: the same; by default all value columns.
            window: None: rows of one instant; Tumbling: rows of one bucket; Session: rows less than a gap apart.
        """
        if by is not None and not by:
            raise InvalidValue(
                f"dedup in pipeline '{self.building.pipeline}': no columns given",
                hint="dedup() compares all value columns",
            )
        return self.then(Dedup, by=self._names("dedup", args, by, "by"), window=window)

    def join(
        self,
        other: Any,
        how: str,
        on: Sequence[str] | None = None,
        left_on: Sequence[str] | None = None,
        right_on: Sequence[str] | None = None,
        within: tuple[str, str] = ("forever", "0s"),
        fields: Sequence[str] | None = None,
    ) -> Self:
        """Join the current row of a keyed dataset with the same key (as-of join).

        The row joined is the one current at each left row's time.

        Args:
            other: a keyed input of the pipeline.
            how: "inner" or "left".
            on: its key columns, when they have the same names on both sides.
            left_on: the columns of this node with its keys.
            right_on: its key columns, in the same order.
            within: how much older, and how much newer, than this row the other may be.
            fields: its columns in the result; all value columns by default.
        """
        right = self._joined(other)
        subject = f"join with {right.operator.subject} in pipeline '{self.building.pipeline}'"
        parameters = join_arguments(subject, how, on, left_on, right_on, within, fields)
        kind = TableJoin if self.operator.schema.is_keyed else AsOfJoin
        return self.then(kind, right, **parameters)

    def groupby(self, *keys: str | Sequence[str], window: Any = None) -> Grouped[Self]:
        """Group rows by keys and, optionally, by a time window."""
        from umbel.api.grouped import Grouped

        return Grouped(self, self._names("groupby", keys, None, is_distinct=True), window)

    def changelog(self, delete: str | None = None, insert: str | None = None) -> Self:
        """Convert every insert and every delete of a keyed dataset to a row.

        Args:
            delete: the name of a column that is true for deletes.
            insert: the name of a column that is true for inserts; pass one of the two.
        """
        if (delete is None) == (insert is None):
            raise InvalidValue(
                f"changelog in pipeline '{self.building.pipeline}': give either delete= or insert=, the marker's name",
                hint='changelog(delete="deleted")',
            )
        subject = f"changelog in pipeline '{self.building.pipeline}'"
        marker = text_of(insert, subject, "insert") if delete is None else text_of(delete, subject, "delete")
        return self.then(Changelog, marker=marker, marks_deletes=delete is not None)

    def union(self, *others: Node) -> Self:
        """Return the union of this and other inputs, including duplicates."""
        for other in others:
            if not isinstance(other, Node):
                raise InvalidType(
                    f"union in pipeline '{self.building.pipeline}': {other!r} is not a dataset",
                    hint="both sides are datasets or what operators made of them",
                )
        return self.then(Union, *others)

    def __add__(self, other: Node) -> Self:
        return self.union(other)

    def schema(self) -> dict[str, Any]:
        """Return the annotation of each column, by name."""
        return {name: dtype.annotation() for name, dtype in self.operator.schema.dtypes.items()}

    def __repr__(self) -> str:
        return f"Node({self.operator.title}: {', '.join(self.operator.schema.names)})"

    def _repr_html_(self) -> str:
        from umbel.api.notebook import plan

        return plan(self.operator)

    def _names(
        self, kind: str, args: Sequence[Any], keyword: Any, word: str = "columns", *, is_distinct: bool = False
    ) -> tuple[str, ...]:
        subject = f"{kind} in pipeline '{self.building.pipeline}'"
        return names_of(args, keyword, subject, word, is_distinct=is_distinct)

    def _computed(self, func: Any, kind: str) -> Computed:
        subject = f"{kind} in pipeline '{self.building.pipeline}'"
        if isinstance(func, Expr):
            check_size(func, subject)
            return self._by_expression(subject, func)
        if callable(func):
            return ByFunction(self.building.function(func))
        raise InvalidValue(
            f"{subject}: expected an expression or a function, found {func!r}",
            hint="a function from a frame to a Series, or an expression",
        )

    def _by_expression(self, subject: str, expression: Expr) -> ByExpression:
        if ("now", "") in expression.references() and not self.operator.inserts_only:
            warnings.warn(
                f"{subject}: now() in `{expression}` over rows that may be updated or deleted: a row that is taken back is "
                "computed again, at another instant, and aggregates keep what should have gone; compute it in a feature F(...), "
                "where now() is the instant of the query",
                stacklevel=4,
            )
        return ByExpression(expression)

    def _assigned(self, subject: str, name: str, typed: Any) -> Assigned:
        expression = typed if isinstance(typed, Expr) else getattr(typed, "expr", None)
        if isinstance(expression, Expr):
            check_size(expression, f"{subject}: column '{name}'")
        if isinstance(typed, Expr):
            hint = f"{name}=(...).astype(type)"
            raise InvalidType(f"{subject}: column '{name}' has no type: `{typed}`; declare it with astype", hint=hint)
        if not isinstance(expression, Expr):
            raise InvalidValue(
                f"{subject}: column '{name}' must be an expression with .astype(type), found {typed!r}",
                hint='assign(total=(col("a") + col("b")).astype(int))',
            )
        return Assigned(text_of(name, subject, "a column"), typed.dtype, self._by_expression(subject, expression))

    def _joined(self, other: Any) -> Node:
        from umbel.api.dataset import record_of

        subject = f"join in pipeline '{self.building.pipeline}'"
        if any(other is dataset for dataset in self.building.inputs):
            return Node(record_of(other).leaf(), self.building)
        if not isinstance(other, Node):
            kind = InvalidValue if hasattr(type(other), "num_pipelines") else InvalidType
            message = f"{subject}: can only join with an input dataset of the pipeline, found {other!r}"
            raise kind(message, hint="name it in @inputs(...), and join with the parameter it comes as")
        if not isinstance(other.operator, Leaf):
            raise InvalidValue(
                f"{subject}: can only join with an input dataset, found an intermediate node: {other.operator.subject}",
                hint="make it a dataset of its own",
            )
        return other
