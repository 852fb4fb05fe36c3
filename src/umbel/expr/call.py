"""The call of a registered function: one node for operators, methods and constructors alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import polars as pl

from umbel.errors import UmbelError
from umbel.expr import text
from umbel.expr.compiled import Compiled, EvaluationError, Scope
from umbel.expr.errors import compile_error
from umbel.expr.kinds import Body, Constant, Guarded, Site
from umbel.expr.lambdas import bind, check_body
from umbel.expr.lattice import lifted
from umbel.expr.registry import FUNCTIONS, Function, find, has_family
from umbel.expr.sums import IntSum
from umbel.expr.tree import Expr, Reference, attribute, to_expr
from umbel.expr.type_records import type_from_record, type_to_record
from umbel.types.dtypes import Datetime, DType, Float, Int, Str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """A function applied to operands and constants."""

    tag: ClassVar[str] = "call"

    function: Function
    operands: tuple[Expr, ...]
    constants: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return text.STYLES[self.function.style](self)

    def as_receiver(self) -> str:
        return f"({self})" if self.function.symbol else str(self)

    def constant(self, name: str) -> Any:
        """Return a constant argument."""
        return dict(self.constants)[name]

    @property
    def zone(self) -> str:  # type: ignore[override]
        """The time zone of the instants this function reads."""
        return self.constant(self.function.views) if self.function.views else "UTC"

    @property
    def variable(self) -> str | None:
        """The variable bound in the last operand if it is a lambda, else None."""
        return self.constant("var") if self.function.has_lambda else None

    def children(self) -> tuple[Expr, ...]:
        return self.operands

    def references(self) -> frozenset[Reference]:
        found = [operand.references() for operand in self.operands]
        if self.variable is not None:
            found[-1] = found[-1] - {("var", self.variable)}
        return frozenset().union(*found)

    def __getattr__(self, name: str) -> Any:
        family = self.function.family
        if family and not name.startswith("_") and (f"{family}.{name}" in FUNCTIONS or not has_family(name)):
            return attribute(family, name, self)
        return Expr.__getattr__(self, name)

    def compile(self, scope: Scope) -> Compiled:
        self._check_constants()
        if self.variable is not None:
            return self._compile_lambda(self.variable, scope)
        last = scope.uncertain() if self.function.needs else scope
        operands = tuple(scope.compile(operand) for operand in self.operands[:-1])
        operands += tuple(last.compile(operand) for operand in self.operands[-1:])
        return self._build(operands, tuple(operand.value for operand in operands), self._errors(operands), scope)

    def _check_constants(self) -> None:
        for name, value in self.constants:
            role = self.function.roles[name]
            if isinstance(role, Constant):
                self._explained(role.check, value)

    def _explained(self, ask: Any, *args: Any) -> Any:
        try:
            return ask(*args)
        except UmbelError as error:
            if str(error).startswith("failed to compile"):
                raise
            kind = type(error)
            raise kind(f"failed to compile expression: {error.message}, in `{self}`", hint=error.hint) from None

    def _errors(self, operands: tuple[Compiled, ...]) -> tuple[EvaluationError, ...]:
        errors = tuple(failure for operand in operands[:-1] for failure in operand.errors)
        if not operands or self.function.needs is None:
            return errors + (operands[-1].errors if operands else ())
        return errors + operands[-1].only(self.function.needs(*(operand.value for operand in operands)))

    def _compile_lambda(self, variable: str, scope: Scope) -> Compiled:
        items = scope.compile(self.operands[0])
        self._check_kinds((items.dtype,))
        check_body(self.operands[1])
        bound = bind(variable, items, self.operands[1], scope)
        errors = tuple(
            replace(failure, condition=bound.source.list.eval(failure.condition).list.any())
            for failure in bound.body.errors
        )
        values = (bound.source, Body(bound.element, bound.body.value))
        return self._build((items, bound.body), values, items.errors + errors, scope)

    def _build(
        self, operands: tuple[Compiled, ...], values: tuple[Any, ...], errors: tuple[EvaluationError, ...], scope: Scope
    ) -> Compiled:
        types = self._check_kinds(tuple(operand.dtype for operand in operands))
        site = Site(types, dict(self.constants), self.operands[0].zone if self.operands else "UTC", scope.is_certain)
        site = replace(site, result=self._result(site))
        compacted = [
            value if operand.dtype == dtype else value.cast(dtype.polars())
            for operand, value, dtype in zip(operands, values, types, strict=True)
        ]
        built, total = self.function.run(compacted, site), None
        if isinstance(built, Guarded):
            failure, total = built.failure, self._total(operands, compacted, scope)
            if total is not None and total.is_long:
                failure, errors = total.overflow, total.errors
            errors += (EvaluationError(failure, built.reason, self),)
            built = built.value
        if isinstance(site.result.base, Int | Float):
            built = built.cast(site.result.polars())
        return Compiled(built, site.result, errors, total)

    def _total(self, operands: tuple[Compiled, ...], values: Sequence[pl.Expr], scope: Scope) -> IntSum | None:
        """Return the terms of a sum of ints, None for elements of a list."""
        if self.function.style != "infix" or self.function.symbol not in ("+", "-") or scope.variables:
            return None
        left, right = operands
        before = left.total or IntSum(((values[0], 1),), left.errors)
        return before.then(values[1], -1 if self.function.symbol == "-" else 1, right.errors)

    def _check_kinds(self, types: tuple[DType, ...]) -> tuple[DType, ...]:
        kinds = self.function.kinds(len(types))
        for kind, dtype in zip(kinds, types, strict=False):
            if not kind.accepts(dtype):
                found = " and ".join(str(each) for each in types)
                requested = f"{self.function.shown} takes {kind.name}, not {dtype}"
                raise compile_error(f"{requested} (found {found}), in `{self}`", _REMEDIES.get(type(dtype.plain), ""))
        return tuple(kind.settle(dtype) for kind, dtype in zip(kinds, types, strict=False))

    def _result(self, site: Site) -> DType:
        result: DType = self._explained(self.function.result, site)
        return lifted(result, self.function.lifts and any(dtype.is_optional for dtype in site.types))

    def to_record(self) -> dict[str, Any]:
        return self._record([operand.to_record() for operand in self.operands])

    def own_record(self) -> dict[str, Any]:
        return self._record([])

    def _record(self, operands: list[dict[str, Any]]) -> dict[str, Any]:
        constants = {name: _constant_to_record(value) for name, value in self.constants}
        record = {"node": self.tag, "function": self.function.key, "operands": operands, "constants": constants}
        return record | ({"package": self.function.package} if self.function.package else {})

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Call:
        operands = tuple(Expr.from_record(operand) for operand in record["operands"])
        constants = tuple((name, _constant_from_record(value)) for name, value in record["constants"].items())
        return cls(find(record["function"], record.get("package", "")), operands, constants)


def _constant_to_record(value: Any) -> Any:
    return {"type": type_to_record(value)} if isinstance(value, DType) else value


def _constant_from_record(value: Any) -> Any:
    return type_from_record(value["type"]) if isinstance(value, Mapping) else value


def call(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the call of a registered function from the user's arguments."""
    function = find(key)
    operands: list[Expr] = []
    constants: list[tuple[str, Any]] = []
    for name, value in function.bind(args, kwargs).items():
        role = function.roles[name]
        if isinstance(role, Constant):
            constants.append((name, role.parse(value)))
        else:
            operands.extend(to_expr(each) for each in (value if function.is_variadic(name) else (value,)))
    return Call(function, tuple(operands), tuple(constants))


_REMEDIES: dict[type[DType], str] = {
    Str: "texts have methods: .str.concat(...) joins them, .str.parse(type) reads what is written in them",
    Datetime: "instants have methods: .dt.since(other) and .dt.since_epoch() give numbers to compare and to reckon with",
}
