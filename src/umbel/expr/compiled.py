"""Compiled expressions: a Polars expression, its type and its failing rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from umbel.errors import shortened
from umbel.expr.sums import IntSum
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    from umbel.expr.steps import Steps
    from umbel.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Scope:
    """The names an expression is compiled against: columns, variables, the current instant.

    Args:
        columns: the columns an expression may refer to, with their types.
        now: the value of `now()`.
        variables: the elements bound by `list.map` and `list.filter`.
        read: makes the Polars expression of a column; `pl.col` outside of lists.
        is_certain: whether every value is needed; False inside the branches of `when`.
        steps: the parts that are computed once, if there are any.
    """

    columns: Mapping[str, DType]
    now: pl.Expr
    variables: Mapping[str, Compiled] = field(default_factory=dict)
    read: Mapping[str, pl.Expr] = field(default_factory=dict)
    is_certain: bool = True
    steps: Steps | None = None

    def compile(self, expr: Expr) -> Compiled:
        """Compile an expression in this scope."""
        return expr.compile(self) if self.steps is None else self.steps.compile(expr, self)

    def uncertain(self) -> Scope:
        """Return the scope of a subexpression needed on some rows only."""
        return replace(self, is_certain=False)


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """An error condition over rows, with its reason and the failing subexpression.

    A null result is not an error.

    Args:
        condition: true on rows in error.
        reason: of the error.
        part: the failing subexpression.
        code: of a part that is computed once, the position of each row's error in `reasons`.
        reasons: the errors of such parts.
    """

    condition: pl.Expr
    reason: str
    part: object
    code: pl.Expr | None = None
    reasons: Sequence[EvaluationError] = ()

    def __str__(self) -> str:
        return f"{self.reason}, in `{shortened(self.part)}`"

    def columns(self, number: int) -> dict[str, pl.Expr]:
        """Return the columns that tell its rows, of a number among errors."""
        return {f"_error{number}": self.condition} | ({} if self.code is None else {f"_code{number}": self.code})

    def texts(self, found: pl.DataFrame, number: int) -> dict[int, str]:
        """Return the rows in error with their texts, from its columns."""
        rows = found[f"_error{number}"].arg_true()
        if self.code is None:
            return dict.fromkeys(rows, str(self)) if len(rows) else {}
        codes = found[f"_code{number}"].gather(rows)
        known = {code: str(self.reasons[code]) for code in codes.unique()}
        return {row: known[code] for row, code in zip(rows, codes, strict=True)}

    def only(self, needed: pl.Expr) -> EvaluationError:
        """Return the error, restricted to the needed rows."""
        return replace(self, condition=self.condition & needed)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Polars expression over storage types, its type and its errors.

    Args:
        value: the expression.
        dtype: its type.
        errors: the conditions of its errors, in the order in which they are told.
        total: its terms, if it is a sum of ints.
    """

    value: pl.Expr
    dtype: DType
    errors: tuple[EvaluationError, ...] = ()
    total: IntSum | None = None

    def only(self, needed: pl.Expr) -> tuple[EvaluationError, ...]:
        """Return the errors, restricted to the needed rows."""
        return tuple(failure.only(needed) for failure in self.errors)

    def guarded(self) -> pl.Expr:
        """Return a Polars expression raising if any row is in error.

        Polars has no expression that raises; a strict cast of the reason to a number does, and shows the reason.
        """
        if not self.errors:
            return self.value
        reason = pl.lit(None, dtype=pl.String)
        for failure in reversed(self.errors):
            reason = pl.when(failure.condition).then(pl.lit(str(failure))).otherwise(reason)
        return pl.when(reason.cast(pl.Int8, strict=True).is_null()).then(self.value)


def in_error(compiled: Iterable[Compiled]) -> pl.Expr | None:
    """Return True on rows in error, None if no row can be."""
    conditions = [failure.condition for each in compiled for failure in each.errors]
    return pl.any_horizontal(conditions) if conditions else None
