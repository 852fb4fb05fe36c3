"""The expression tree: the base class of expressions, with operators and namespaces."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from umbel.errors import InvalidAttribute, InvalidType
from umbel.expr.compiled import Compiled, Scope
from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.registry import FUNCTIONS, find_method, has_family
from umbel.expr.steps import size, steps_of
from umbel.types.dtypes import Datetime, DType

if TYPE_CHECKING:
    import pandas as pd

    from umbel.expr.typed import TypedExpr

NODES: dict[str, type[Expr]] = {}

DEEPEST = 120
"""Operators in each other that a definition may have: for each of them some calls are in each other, on Python's stack."""

LARGEST = 50_000
"""Operators, columns and constants that a definition may have, those of a part each time that it is used."""

Reference = tuple[str, str]
IN_STEPS = "compute it in steps: parts of it as features or columns of their own"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr(ABC):
    """An immutable expression over the columns of a frame.

    Build one with `col`, `lit`, `when`, ... and operators.
    """

    tag: ClassVar[str] = ""
    zone: ClassVar[str] = "UTC"

    def __init_subclass__(cls) -> None:
        NODES[cls.tag] = cls

    # The interface of a node.

    @abstractmethod
    def compile(self, scope: Scope) -> Compiled:
        """Compile to a Polars expression with its type and errors, in a scope.

        Raises:
            InvalidValue: the expression does not type-check.
        """

    def children(self) -> tuple[Expr, ...]:
        """Return the direct subexpressions."""
        return ()

    def references(self) -> frozenset[Reference]:
        """Return the free references of the expression: ("col", name), ("var", name), ("now", "")."""
        return frozenset().union(*(child.references() for child in self.children()))

    @abstractmethod
    def to_record(self) -> dict[str, Any]:
        """Return the expression as JSON-serialisable plain data."""

    def own_record(self) -> dict[str, Any]:
        """Return the record without the subexpressions: equal for expressions that differ in these only."""
        return self.to_record()

    @classmethod
    @abstractmethod
    def read(cls, record: Mapping[str, Any]) -> Expr:
        """Return a node of this class from a record written by `to_record`."""

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Expr:
        """Return an expression from a record written by `to_record`."""
        return NODES[record["node"]].read(record)

    # Queries on any expression.

    def check_size(self) -> None:
        """Refuse an expression with too many operators, in each other or in all.

        Raises:
            InvalidValue: it has more than `DEEPEST` in each other, or is larger than `LARGEST`.
        """
        level, depth = {id(self): self}, 0
        while level := {id(child): child for each in level.values() for child in each.children()}:
            depth += 1
        if depth > DEEPEST:
            raise compile_error(
                f"it has {depth} operators in each other, {DEEPEST} are possible",
                IN_STEPS,
            )
        if (found := size(self)) > LARGEST:
            raise compile_error(
                f"it has {found:,} operators, columns and constants, {LARGEST:,} are possible; "
                "those of a part count each time that the part is used",
                IN_STEPS,
            )

    def dtype(self, schema: Mapping[str, DType]) -> DType:
        """Return the type of the expression over columns of these types.

        Raises:
            InvalidValue: it does not type-check, or is too large.
        """
        self.check_size()
        return scope_of(schema, exprs=(self,)).compile(self).dtype

    def typeof(self, schema: Mapping[str, Any] | None = None) -> Any:
        """Return the Python type of the expression, inferred from the types of the columns.

        Without `schema`, only expressions of constants have a type.

        Errors: InvalidValue "failed to compile expression: ..." naming the function and the types.

        >>> (col("amount") / 2).typeof({"amount": int})
        <class 'float'>
        """
        from umbel.expr.boundary import python_type, types_of

        return python_type(self.dtype(types_of(schema or {})))

    def matches_type(self, type: Any, schema: Mapping[str, Any] | None = None) -> bool:
        """Return True if the expression may be declared as a Python type.

        `assign` and features declare types this way. Allowed are the expression's own type, an Optional of that, float
        for int, Decimal for numbers, and a restriction of it, which is then checked row by row.

        Errors: InvalidValue "failed to compile expression: ..." naming the function and the types.

        >>> (col("amount") + 1).matches_type(float, {"amount": int}), (col("amount") + 1).matches_type(str, {"amount": int})
        (True, False)
        """
        from umbel.expr.boundary import type_of, types_of
        from umbel.expr.lattice import matches

        return matches(self.dtype(types_of(schema or {})), type_of(type), self)

    def polars(self, schema: Mapping[str, DType], *, now: pl.Expr | None = None) -> pl.Expr:
        """Return this expression as one Polars expression; it raises on rows in error."""
        return self.compile(scope_of(schema, now)).guarded()

    def eval(
        self,
        df: pd.DataFrame,
        schema: Mapping[str, Any],
        output_dtype: Any = None,
        parse: bool = True,
        context: Mapping[str, Any] | None = None,
    ) -> pd.Series:
        """Evaluate over a pandas frame and return a Series with a fresh index.

        Args:
            df: contains the columns of the schema.
            schema: the Python types of the columns; the frame is cast to them first.
            output_dtype: the type of the result; the inferred one when None.
            parse: whether structs are returned as objects of their class.
            context: `{"now": datetime}` sets the value of `now()`.
        Errors: InvalidExprException for a missing column, InvalidValue when a value does not fit its type or the
            evaluation fails.

        >>> (col("amount") + 1).eval(pd.DataFrame({"amount": [10, 7]}), {"amount": int}).tolist()
        [11, 8]
        """
        from umbel.expr.boundary import evaluate_pandas

        return evaluate_pandas(self, df, schema, output_dtype, parse, context)

    def columns(self) -> set[str]:
        """Return the names of the columns the expression reads."""
        return {name for kind, name in self.references() if kind == "col"}

    @property
    def is_bare(self) -> bool:
        """True for a constant that needs no `lit` as an argument."""
        return False

    def as_argument(self) -> str:
        """Return the text of the expression as an argument of a call."""
        return str(self)

    def as_receiver(self) -> str:
        """Return the text of the expression as the receiver of a method call."""
        return str(self)

    def __repr__(self) -> str:
        return str(self)

    # Operators.

    def __add__(self, other: Any) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return apply("truediv", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return apply("floordiv", other, self)

    def __mod__(self, other: Any) -> Expr:
        return apply("mod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return apply("mod", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("ne", self, other)

    def __lt__(self, other: Any) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return apply("ge", self, other)

    def __and__(self, other: Any) -> Expr:
        return apply("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return apply("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return apply("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return apply("or", other, self)

    def __invert__(self) -> Expr:
        return apply("invert", self)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __getitem__(self, key: Any) -> Expr:
        return apply("getitem", self, key)

    def __xor__(self, other: Any) -> Expr:
        raise InvalidExprException(f"'^' is not supported, in `{self} ^ {other}`", hint="use (a | b) & ~(a & b)")

    __rxor__ = __xor__

    def __bool__(self) -> bool:
        raise InvalidExprException(
            f"`{self}` has no truth value: it is computed later, row by row",
            hint="use &, |, ~ instead of and, or, not; when(...).then(...) instead of if; isnull() instead of is None",
        )

    def __iter__(self) -> Any:
        raise InvalidExprException(f"`{self}` cannot be iterated over", hint="use .list.map or .list.at")

    def __contains__(self, item: Any) -> bool:
        raise InvalidExprException(f"'in' is not supported on `{self}`", hint="use .list.contains or .str.contains")

    __hash__ = object.__hash__

    # Methods.

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if has_family(name):
            return Namespace(self, name)
        owners = sorted(f".{key}" for key in FUNCTIONS if key.rpartition(".")[2] == name and "." in key)
        hint = f"did you mean {' or '.join(owners)}?" if owners else "see dir(expr) and its namespaces"
        raise InvalidAttribute(f"an expression has no '{name}', in `{self}`", hint=hint)

    @property
    def num(self) -> Namespace:
        """Functions of numbers."""
        return Namespace(self, "num")

    @property
    def str(self) -> Namespace:
        """Functions of text."""
        return Namespace(self, "str")

    @property
    def dt(self) -> Namespace:
        """Functions of datetimes."""
        return Namespace(self, "dt")

    @property
    def list(self) -> Namespace:
        """Functions of lists."""
        return Namespace(self, "list")

    @property
    def struct(self) -> Namespace:
        """Functions of structs."""
        return Namespace(self, "struct")

    @property
    def dict(self) -> Namespace:
        """Functions of dicts."""
        return Namespace(self, "dict")

    def isnull(self) -> Expr:
        """Test for null."""
        return apply("isnull", self)

    def fillnull(self, value: Any) -> Expr:
        """Replace null by a value."""
        return apply("fillnull", self, value)

    def abs(self) -> Expr:
        """Return the absolute value of a number."""
        return apply("num.abs", self)

    def round(self, precision: int = 0) -> Expr:
        """Round half away from zero: to an int, or to a float of `precision` decimals."""
        return apply("num.round", self, precision)

    def ceil(self) -> Expr:
        """Round up to the nearest int."""
        return apply("num.ceil", self)

    def floor(self) -> Expr:
        """Round down to the nearest int."""
        return apply("num.floor", self)

    def astype(self, dtype: Any) -> TypedExpr:
        """Declare the type of the whole expression; the result accepts no further operations.

        >>> show(lambda orders: orders.assign(cents=(col("amount") * 100).astype(int)).select("user", "cents"), Order)
        user  cents  at
        ann   1000   09:00
        bob   700    09:30
        ann   500    10:15
        ann   500    10:15
        """
        from umbel.expr.typed import TypedExpr

        return TypedExpr(self, dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Namespace:
    """The functions of one family, on one expression."""

    receiver: Expr
    family: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return attribute(self.family, name, self.receiver)

    def __dir__(self) -> list[str]:
        return sorted(function.name for function in FUNCTIONS.values() if function.family == self.family)


def attribute(family: str, name: str, receiver: Expr) -> Expr | Callable[..., Expr]:
    """Return a family's method bound to its receiver, or a property's value."""
    function = find_method(family, name)
    if function.style == "attribute":
        return apply(function.key, receiver)
    return lambda *args, **kwargs: apply(function.key, receiver, *args, **kwargs)


def apply(key: str, *args: Any, **kwargs: Any) -> Expr:
    """Return the call of a registered function."""
    from umbel.expr.call import call

    return call(key, args, kwargs)


def to_expr(value: Any) -> Expr:
    """Return an expression unchanged and a constant as a literal."""
    from umbel.expr.literal import lit

    if isinstance(value, Expr):
        return value
    if isinstance(getattr(value, "expr", None), Expr):
        raise InvalidType(
            f"astype must be outermost, not inside of an expression: `{value}`",
            hint="put .astype(type) around the whole expression",
        )
    if callable(value):
        raise InvalidType(f"a function cannot be part of an expression: {value!r}", hint="use expressions throughout")
    return lit(value)


def scope_of(schema: Mapping[str, DType], now: pl.Expr | None = None, exprs: Sequence[Expr] = ()) -> Scope:
    """Return the scope of expressions over a frame; `now()` defaults to the current time.

    The repeated parts of `exprs` are steps.
    """
    return Scope(schema, at(dt.datetime.now(dt.UTC)) if now is None else now, steps=steps_of(exprs))


def at(instant: dt.datetime) -> pl.Expr:
    """Return a constant instant; naive means UTC."""
    aware = instant if instant.tzinfo else instant.replace(tzinfo=dt.UTC)
    return pl.lit((aware - _EPOCH) // dt.timedelta(microseconds=1)).cast(Datetime().polars())
