"""Evaluation of expressions for pipelines, sources, features and `Expr.eval`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from umbel.errors import InvalidValue, UmbelError
from umbel.expr.compiled import Compiled, Scope
from umbel.expr.errors import compile_error, evaluation_error
from umbel.expr.lattice import matches
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
                raise evaluation_error(f"null where {self.declared} is declared, in `{self.expr}`")
            return values
        checked = self.declared.ingest(values)
        if checked.errors:
            row, reason = min(checked.errors.items())
            raise evaluation_error(f"{reason}, in `{self.expr}` (row {row})")
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
    scope = _scope(schema, now)
    columns = [_column(name, expr, declared, scope) for name, (expr, declared) in exprs.items()]
    found = _select(frame, columns)
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
    column = _column("value", expr, declared, _scope(schema, now).uncertain())
    conditions = {f"_fault{n}": failure.condition for n, failure in enumerate(column.compiled.errors)}
    found = _collect(frame, {_at(0): column.compiled.value, **conditions})
    errors: dict[int, str] = {}
    for name, failure in zip(conditions, column.compiled.errors, strict=True):
        for row in found[name].arg_true().to_list():
            errors.setdefault(row, str(failure))
    checked = declared.ingest(found[_at(0)])
    return Checked(checked.values, errors).blame(checked.errors)


def _scope(schema: Mapping[str, DType], now: pl.Expr | dt.datetime | None) -> Scope:
    return scope_of(schema, at(now) if isinstance(now, dt.datetime) else now)


def _column(name: str, expr: Expr, declared: DType | None, scope: Scope) -> _Column:
    compiled = expr.compile(scope)
    if declared is not None and not matches(compiled.dtype, declared, expr):
        raise compile_error(f"expected {declared}, found {compiled.dtype}, in `{expr}`")
    return _Column(name, expr, compiled, declared)


def _at(position: int) -> str:
    return f"_value{position}"


def _select(frame: pl.DataFrame, columns: list[_Column]) -> pl.DataFrame:
    """Compute all values and one error flag in a single pass.

    Raises the explained error when a row fails; the failing part is only searched for then.
    """
    errors = [failure.condition for column in columns for failure in column.compiled.errors]
    values = {_at(n): column.compiled.value for n, column in enumerate(columns)}
    try:
        found = _collect(frame, {**values, "_fault": pl.any_horizontal(errors).any()} if errors else values)
    except (pl.exceptions.PolarsError, UmbelError) as error:
        raise _explained(frame, columns, error) from error
    if errors and found["_fault"].any():
        raise _explained(frame, columns, None)
    return found


def _collect(frame: pl.DataFrame, exprs: Mapping[str, pl.Expr]) -> pl.DataFrame:
    # with_columns, unlike select, repeats constants for every row; of a frame without columns it makes one row.
    try:
        found = frame.lazy().with_columns(**exprs).select(list(exprs)).collect()
    except pl.exceptions.PanicException as error:  # a BaseException, which users do not expect of a value
        raise pl.exceptions.ComputeError(str(error)) from error
    return found.head(frame.height) if frame.height < found.height else found


def _explained(frame: pl.DataFrame, columns: list[_Column], error: Exception | None) -> InvalidValue:
    """Return an error naming the failing part of the first failing expression."""
    for column in columns:
        for failure in column.compiled.errors:
            rows = _rows(frame, failure.condition)
            if rows:
                return evaluation_error(f"{failure} ({len(rows)} of {frame.height} rows, first row {rows[0]})")
    for column in columns:
        try:
            _collect(frame, {column.name: column.compiled.value})
        except (pl.exceptions.PolarsError, UmbelError) as found:
            return evaluation_error(f"{_reason(found)}, in `{column.expr}`")
    return evaluation_error(_reason(error))


def _reason(error: Exception | None) -> str:
    """Return the message of an error.

    It has no hint, no place, and none of Polars' dump of the expression.
    """
    text = error.message if isinstance(error, UmbelError) else str(error)
    return text.partition("\n\nThis error occurred")[0].strip()


def _rows(frame: pl.DataFrame, condition: pl.Expr) -> list[int]:
    try:
        return _collect(frame, {"_fault": condition})["_fault"].arg_true().to_list()
    except (pl.exceptions.PolarsError, UmbelError):
        return []
