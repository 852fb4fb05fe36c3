"""Evaluation of expressions for pipelines, sources, features and `Expr.eval`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidValue, UmbelError, shortened
from umbel.expr.compiled import Compiled, EvaluationError, Scope, in_error
from umbel.expr.errors import compile_error, evaluation_error
from umbel.expr.lattice import matches
from umbel.expr.steps import Steps
from umbel.expr.tree import Expr, at, scope_of
from umbel.types.dtypes import Checked, DType

Declared = tuple[Expr, DType | None]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    expr: Expr
    compiled: Compiled
    declared: DType | None

    def check(self, values: pl.Series) -> pl.Series:
        """Return the values in the storage form of the declared type.

        Raises:
            InvalidValue: a value is outside a restriction, or null in a type that is not Optional.
        """
        if self.declared is None:
            return values
        if self.declared.base == self.compiled.dtype.base:
            if values.null_count() and not self.declared.is_optional:
                raise evaluation_error(f"null where {self.declared} is declared, in `{shortened(self.expr)}`")
            return values
        checked = self.declared.ingest(values)
        if checked.errors:
            row, reason = min(checked.errors.items())
            raise evaluation_error(f"{reason}, in `{shortened(self.expr)}` (row {row})")
        return checked.values


def evaluate(
    frame: pl.DataFrame,
    exprs: Mapping[str, Declared],
    schema: Mapping[str, DType],
    now: pl.Expr | dt.datetime | None = None,
) -> pl.DataFrame:
    """Evaluate expressions over one frame; return one column for each, with the frame's height.

    Args:
        frame: columns in storage types.
        exprs: name of the result to expression and declared type; the inferred type when None.
        schema: the types of the frame's columns that expressions may use.
        now: the value of `now()`: an instant, or an expression over the frame; the current time when None.
    Errors: InvalidValue "failed to compile expression: ..." or "failed to evaluate expression: ...".
    """
    scope = _scope(schema, now, [expr for expr, _ in exprs.values()])
    columns = [_column(name, expr, declared, scope) for name, (expr, declared) in exprs.items()]
    found = _select(_Rows(frame, scope.steps), columns)
    return pl.DataFrame([column.check(found[_at(n)]).alias(column.name) for n, column in enumerate(columns)])


def judge(
    frame: pl.DataFrame,
    expr: Expr,
    declared: DType,
    schema: Mapping[str, DType],
    now: pl.Expr | dt.datetime | None = None,
) -> Checked:
    """Evaluate one expression; report rows in error with their reasons instead of raising.

    Errors: InvalidValue "failed to compile expression: ..." only.
    """
    scope = _scope(schema, now, [expr]).uncertain()
    column = _column("value", expr, declared, scope)
    failures = list(enumerate(column.compiled.errors))
    columns = {name: each for n, failure in failures for name, each in failure.columns(n).items()}
    found = _Rows(frame, scope.steps).collect({_at(0): column.compiled.value, **columns})
    errors: dict[int, str] = {}
    for n, failure in failures:
        errors = failure.texts(found, n) | errors
    checked = declared.ingest(found[_at(0)])
    return Checked(checked.values, errors).blame(checked.errors)


def _scope(schema: Mapping[str, DType], now: pl.Expr | dt.datetime | None, exprs: Sequence[Expr]) -> Scope:
    return scope_of(schema, at(now) if isinstance(now, dt.datetime) else now, exprs)


def _column(name: str, expr: Expr, declared: DType | None, scope: Scope) -> _Column:
    compiled = scope.compile(expr)
    if declared is not None and not matches(compiled.dtype, declared, expr):
        raise compile_error(f"expected {declared}, found {compiled.dtype}, in `{expr}`")
    return _Column(name, expr, compiled, declared)


def _at(position: int) -> str:
    return f"_value{position}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that expressions are evaluated on.

    Args:
        frame: the rows.
        steps: the parts that are computed before the expressions.
    """

    frame: pl.DataFrame
    steps: Steps | None

    def collect(self, exprs: Mapping[str, pl.Expr]) -> pl.DataFrame:
        """Return one column for each expression."""
        rows = self.frame.lazy() if self.steps is None else self.steps.added_to(self.frame.lazy())
        # with_columns, unlike select, repeats constants for every row; of a frame without columns it makes one row.
        try:
            found = rows.with_columns(**exprs).select(list(exprs)).collect()
        except pl.exceptions.PanicException as error:  # a BaseException, which users do not expect of a value
            raise pl.exceptions.ComputeError(str(error)) from error
        return found.head(self.frame.height) if self.frame.height < found.height else found

    def failing(self, failure: EvaluationError) -> dict[int, str]:
        """Return the rows in error with their texts."""
        try:
            return failure.texts(self.collect(failure.columns(0)), 0)
        except (pl.exceptions.PolarsError, UmbelError):
            return {}


def _select(rows: _Rows, columns: list[_Column]) -> pl.DataFrame:
    """Compute all values and one error flag in a single pass.

    Raises the explained error when a row fails; the failing part is only searched for then.
    """
    failing = in_error(column.compiled for column in columns)
    values = {_at(n): column.compiled.value for n, column in enumerate(columns)}
    try:
        found = rows.collect(values if failing is None else {**values, "_fault": failing.any()})
    except (pl.exceptions.PolarsError, UmbelError) as error:
        raise _explained(rows, columns, error) from error
    if failing is not None and found["_fault"].any():
        raise _explained(rows, columns, None)
    return found


def _explained(rows: _Rows, columns: list[_Column], error: Exception | None) -> InvalidValue:
    """Return an error naming the failing part of the first failing expression."""
    for column in columns:
        for failure in column.compiled.errors:
            failing = rows.failing(failure)
            if failing:
                first, text = min(failing.items())
                number = sum(each == text for each in failing.values())
                return evaluation_error(f"{text} ({number} of {rows.frame.height} rows, first row {first})")
    for column in columns:
        try:
            rows.collect({column.name: column.compiled.value})
        except (pl.exceptions.PolarsError, UmbelError) as found:
            return evaluation_error(f"{_reason(found)}, in `{shortened(column.expr)}`")
    return evaluation_error(_reason(error))


def _reason(error: Exception | None) -> str:
    """Return the message of an error.

    It has no hint, no place, and none of Polars' dump of the expression.
    """
    text = error.message if isinstance(error, UmbelError) else str(error)
    return text.partition("\n\nThis error occurred")[0].strip()
