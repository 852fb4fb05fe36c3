"""Conditional expressions: `when(c).then(x).when(d).then(y).otherwise(z)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, NoReturn

import polars as pl

from umbel.errors import InvalidAttribute
from umbel.expr.compiled import Compiled, EvaluationError, Scope
from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.lattice import Null, join
from umbel.expr.tree import Expr, to_expr
from umbel.types.dtypes import Bool, DType

Branch = tuple[Expr, Expr]
NESTED = 16
"""Up to so many branches, each is nested in the one before it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class When(Expr):
    """The value of the first branch with a true condition, else the default, else null."""

    tag: ClassVar[str] = "when"

    branches: tuple[Branch, ...]
    default: Expr | None = None

    def when(self, condition: Any) -> Condition:
        """Add a condition, for rows with no true condition so far."""
        if self.default is not None:
            raise InvalidExprException(f"when after otherwise, in `{self}`", hint="put .otherwise(...) last")
        return Condition(self.branches, to_expr(condition))

    def otherwise(self, value: Any) -> When:
        """Set the value of rows with no true condition."""
        if self.default is not None:
            raise InvalidExprException(f"a second otherwise, in `{self}`", hint="put one .otherwise(...) last")
        return When(self.branches, to_expr(value))

    def __str__(self) -> str:
        shown = ".".join(f"when({test.as_argument()}).then({value.as_argument()})" for test, value in self.branches)
        return shown if self.default is None else f"{shown}.otherwise({self.default.as_argument()})"

    def children(self) -> tuple[Expr, ...]:
        parts = tuple(part for branch in self.branches for part in branch)
        return parts if self.default is None else (*parts, self.default)

    def compile(self, scope: Scope) -> Compiled:
        scope = scope.uncertain()
        tests = [self._test(condition, scope) for condition, _ in self.branches]
        values = [scope.compile(value) for _, value in self.branches]
        values.append(Compiled(pl.lit(None), Null()) if self.default is None else scope.compile(self.default))
        dtype = reduce(self._join, (value.dtype for value in values))
        return Compiled(_chosen(tests, values, dtype), dtype, _errors(tests, values))

    def _test(self, condition: Expr, scope: Scope) -> Compiled:
        test = scope.compile(condition)
        if not isinstance(test.dtype.plain, Bool | Null):
            raise compile_error(f"when takes a bool condition, not {test.dtype}, in `{condition}`")
        return Compiled(test.value.cast(pl.Boolean).fill_null(False), Bool(), test.errors)

    def _join(self, left: DType, right: DType) -> DType:
        found = join(left, right)
        if found is None:
            raise compile_error(f"when: the branches have types {left} and {right}, in `{self}`")
        return found

    def to_record(self) -> dict[str, Any]:
        branches = [[condition.to_record(), value.to_record()] for condition, value in self.branches]
        default = None if self.default is None else self.default.to_record()
        return {"node": self.tag, "branches": branches, "default": default}

    def own_record(self) -> dict[str, Any]:
        return {"node": self.tag, "branches": len(self.branches), "default": self.default is not None}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> When:
        branches = tuple((Expr.from_record(test), Expr.from_record(value)) for test, value in record["branches"])
        return cls(branches, Expr.from_record(record["default"]) if record["default"] else None)


def _chosen(tests: list[Compiled], values: list[Compiled], dtype: DType) -> pl.Expr:
    """Return the value of the first true test, else the last value.

    Many branches are chosen from by halves: Polars takes time in proportion to the square of how deeply expressions are nested.
    """
    stored = dtype.polars()
    if len(tests) > NESTED:
        half = len(tests) // 2
        # of the first half some test is true, so that its last value needs none
        first, rest = _chosen(tests[: half - 1], values[:half], dtype), _chosen(tests[half:], values[half:], dtype)
        return pl.when(pl.any_horizontal(test.value for test in tests[:half])).then(first).otherwise(rest)
    chosen = values[-1].value.cast(stored)
    for test, value in zip(reversed(tests), reversed(values[:-1]), strict=True):
        chosen = pl.when(test.value).then(value.value.cast(stored)).otherwise(chosen)
    return chosen


def _errors(tests: list[Compiled], values: list[Compiled]) -> tuple[EvaluationError, ...]:
    """Return the errors of all branches, each restricted to the branch's rows.

    A row uses the first branch with a true condition.
    """
    errors: list[EvaluationError] = []
    for number, (test, value) in enumerate(zip(tests, values, strict=False)):
        if test.errors or value.errors:
            remaining = _none(tests[:number])
            errors += test.only(remaining)
            errors += value.only(remaining & test.value)
    return (*errors, *(values[-1].only(_none(tests)) if values[-1].errors else ()))


def _none(tests: list[Compiled]) -> pl.Expr:
    return ~pl.any_horizontal(each.value for each in tests) if tests else pl.lit(True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Condition:
    """A condition without its `then`; not an expression yet."""

    branches: tuple[Branch, ...]
    condition: Expr

    def then(self, value: Any) -> When:
        """Set the value of rows with a true condition."""
        return When((*self.branches, (self.condition, to_expr(value))))

    def __str__(self) -> str:
        return f"when({self.condition.as_argument()})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if hasattr(Expr, name) or name == "expr":  # `to_expr` looks for it: not an expression, not a constant either
            self._refuse()
        hint = "write when(condition).then(value) first"
        raise InvalidAttribute(f"when without then has no '{name}', in `{self}`", hint=hint)

    def _refuse(self, *_: Any) -> NoReturn:
        raise InvalidExprException(f"when without then, in `{self}`", hint="write when(condition).then(value)")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = _refuse
    __gt__ = __ge__ = __lt__ = __le__ = __neg__ = __invert__ = __bool__ = __getitem__ = _refuse
    __xor__ = __rxor__ = __iter__ = __contains__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


def when(condition: Any) -> Condition:
    """Start a conditional: `when(c).then(x).otherwise(y)`. A null condition counts as false.

    >>> values(when(col("amount") > 9).then(lit("big")).when(col("amount") > 5).then(lit("mid")), amount=[10, 7, 5])
    ['big', 'mid', None]
    >>> values(when(col("coupon") > 1).then(1).otherwise(0), coupon=[2, 1, None])
    [1, 0, 0]
    """
    return Condition((), to_expr(condition))
