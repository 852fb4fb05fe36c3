"""The leaves of expressions: columns, bound variables and the present instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.errors import did_you_mean
from umbel.expr.compiled import Compiled, Scope
from umbel.expr.errors import InvalidExprException, compile_error
from umbel.expr.tree import NODES, Expr, Reference
from umbel.types.dtypes import Datetime


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidExprException(f"{what} takes a name, not {value!r} ({type(value).__name__})", hint='col("name")')
    return value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Col(Expr):
    """A column of the frame."""

    tag: ClassVar[str] = "col"

    name: str

    def __str__(self) -> str:
        return f'col("{self.name}")'

    def compile(self, scope: Scope) -> Compiled:
        if self.name not in scope.columns:
            raise compile_error(f"column '{self.name}' is not in the schema{did_you_mean(self.name, scope.columns)}")
        return Compiled(scope.read.get(self.name, pl.col(self.name)), scope.columns[self.name])

    def references(self) -> frozenset[Reference]:
        return frozenset({("col", self.name)})

    def to_record(self) -> dict[str, Any]:
        return {"node": self.tag, "name": self.name}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Col:
        return cls(record["name"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """The element variable bound by `list.map` or `list.filter`."""

    tag: ClassVar[str] = "var"

    name: str

    def __str__(self) -> str:
        return f'var("{self.name}")'

    def compile(self, scope: Scope) -> Compiled:
        if self.name not in scope.variables:
            hint = "it is bound by list.map and list.filter only"
            raise compile_error(f"variable '{self.name}' is not bound here ({hint})")
        return scope.variables[self.name]

    def references(self) -> frozenset[Reference]:
        return frozenset({("var", self.name)})

    def to_record(self) -> dict[str, Any]:
        return {"node": self.tag, "name": self.name}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Var:
        return cls(record["name"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Now(Expr):
    """The present instant: of the request or row in an extractor, of the evaluation elsewhere."""

    tag: ClassVar[str] = "now"

    def __str__(self) -> str:
        return "now()"

    def compile(self, scope: Scope) -> Compiled:
        return Compiled(scope.now, Datetime())

    def references(self) -> frozenset[Reference]:
        return frozenset({("now", "")})

    def to_record(self) -> dict[str, Any]:
        return {"node": self.tag}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Now:
        return cls()


def leaf(reference: Reference) -> Expr:
    """Return the leaf expression of a reference."""
    kind, name = reference
    return NODES[kind].read({"name": name})


def col(name: str) -> Expr:
    """Refer to a column by name.

    >>> values(col("amount") * 2, amount=[10, 7])
    [20, 14]
    """
    return Col(_name(name, "col"))


def var(name: str) -> Expr:
    """Refer to the element bound by `list.map` or `list.filter`.

    >>> values(col("prices").list.map("price", var("price") + 1), prices=[[1, 2], []])
    [[2, 3], []]
    """
    return Var(_name(name, "var"))


def now() -> Expr:
    """Refer to the present instant.

    >>> values(now().dt.since(col("at")) > 0, at=[datetime(2024, 1, 1), datetime(2199, 1, 1)])
    [True, False]
    """
    return Now()
