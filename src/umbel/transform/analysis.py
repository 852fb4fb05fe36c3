"""Analysis of `custom_code`: a subset of Python becomes a Polars expression.

Each result carries the conditions under which it is the value that Python returns; where one does not hold, among others
where Python raises an exception, the record runs as Python.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from umbel.transform.analysed_calls import FUNCTIONS, METHODS, now_of
from umbel.transform.analysed_operators import compared, computed, negated, text_slice, whole_number
from umbel.transform.analysed_values import AnyValue, Reference, as_column, constant, unified
from umbel.transform.leaves import Leaves
from umbel.transform.native import ColumnKind, Native, NotNative, holds, truth
from umbel.transform.paths import FieldPath
from umbel.transform.python_code import RECORD, VALUE, FunctionBody

MOST_BRANCHES = 10
"""Statements `if` of a body; one that may return doubles what follows it."""

Names = Mapping[str, AnyValue]
Guards = tuple[pl.Expr, ...]


def analysed(body: FunctionBody, source: FieldPath, leaves: Leaves) -> Native:
    """Return the results of a function body as a column.

    Args:
        body: the code.
        source: the path of its value `source_field`.
        leaves: receives the values that it reads.

    Raises:
        NotNative: the code is outside of the subset.
    """
    names: Names = {VALUE: Reference(source), RECORD: Reference(FieldPath(()))}
    if sum(isinstance(node, ast.If) for each in body.tree for node in ast.walk(each)) > MOST_BRANCHES:
        raise NotNative(f"more than {MOST_BRANCHES} statements if")
    return _Analysis(leaves, body.locals).run(body.tree, names)


@dataclass(frozen=True)
class _Analysis:
    """The analysis of one function body.

    Args:
        leaves: receives the values that it reads.
        locals: the names that it assigns somewhere: before that, they are nothing else.
    """

    leaves: Leaves
    locals: frozenset[str]

    def run(self, statements: Sequence[ast.stmt], names: Names) -> Native:
        """Return the result of statements; it is null where they end without `return`."""
        fits: Guards = ()
        for number, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                return self._column(statement.value, names).guarded(*fits)
            try:
                names, guards = self._after(statement, names)
            except NotNative:
                if not isinstance(statement, ast.If):
                    raise
                rest = statements[number + 1 :]
                condition = self._condition(statement.test, names)
                branches = [self.run([*each, *rest], names) for each in (statement.body, statement.orelse)]
                return chosen(condition, *branches).guarded(*fits)
            fits += guards
        return Native(pl.lit(None), ColumnKind.NULL, fits)

    def _after(self, statement: ast.stmt, names: Names) -> tuple[Names, Guards]:
        """Return the names after a statement without `return`, and the conditions that prove them.

        Raises:
            NotNative: it may return, or a name has values of two types, which only what follows can tell apart.
        """
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found = self._value(value, names)
                column = self._shared(found) if isinstance(found, Native) else found
                return {**names, name: replace(column, fits=())}, found.fits
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self._condition(test, names)
                first, second = (self._after_all(each, names) for each in (body, orelse))
                return self._joined(condition, first, second)
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return names, ()
        raise _outside(statement)

    def _after_all(self, statements: Sequence[ast.stmt], names: Names) -> tuple[Names, Guards]:
        fits: Guards = ()
        for each in statements:
            names, guards = self._after(each, names)
            fits += guards
        return names, fits

    def _joined(
        self, condition: Native, first: tuple[Names, Guards], second: tuple[Names, Guards]
    ) -> tuple[Names, Guards]:
        """Return the names that both branches have, each with its value in the branch taken."""
        (names, fits), (others, other_fits) = first, second
        joined = dict[str, AnyValue]()
        for name in (each for each in names if each in others):
            one, other = names[name], others[name]
            if one is other:
                joined[name] = one
                continue
            one, other = (as_column(each, self.leaves) for each in (one, other))
            fits, other_fits = fits + one.fits, other_fits + other.fits
            joined[name] = replace(self._shared(chosen(condition, one, other)), fits=())
        fit = pl.when(condition.expr).then(holds(*fits)).otherwise(holds(*other_fits))
        return joined, (*condition.fits, fit)

    def _column(self, node: ast.expr | None, names: Names) -> Native:
        return constant(None) if node is None else self._shared(as_column(self._value(node, names), self.leaves))

    def _shared(self, value: Native) -> Native:
        """Return a value as a column of the plan, which later operations read.

        An operation has its operands several times, also in its conditions: otherwise plans would grow exponentially.
        """
        return replace(value, expr=self.leaves.share(value.expr)) if value.expr.meta.root_names() else value

    def _condition(self, node: ast.expr, names: Names) -> Native:
        """Return the truth of an expression."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = self._condition(operand, names)
                return found.then(~found.expr)
            case ast.BoolOp(op=op, values=values):
                found = self._condition(values[0], names)
                for each in values[1:]:
                    found = _connected(
                        self._shared(found), self._condition(each, names), is_and=isinstance(op, ast.And)
                    )
                return found
        return truth(self._column(node, names))

    def _value(self, node: ast.expr, names: Names) -> AnyValue:
        match node:
            case ast.Constant(value=value):
                return constant(value)
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                branches = [self._column(each, names) for each in (body, orelse)]
                return chosen(self._condition(test, names), *branches)
            case ast.UnaryOp(op=ast.Not()):
                return self._condition(node, names)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._negated(operand, names)
            case ast.BoolOp(op=op, values=values):
                return self._either(values, names, is_and=isinstance(op, ast.And))
            case ast.BinOp(left=left, op=op, right=right):
                return computed(op, self._column(left, names), self._column(right, names))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(op, left, right, names)
            case ast.JoinedStr(values=parts):
                return self._formatted(parts, names)
            case ast.Subscript(value=value, slice=part):
                return self._part(value, part, names)
            case ast.Call(keywords=[]):
                return self._called(node, names)
        raise _outside(node)

    def _negated(self, operand: ast.expr, names: Names) -> Native:
        if isinstance(operand, ast.Constant) and isinstance(operand.value, int | float):
            return constant(-operand.value)
        return negated(self._column(operand, names))

    def _either(self, values: Sequence[ast.expr], names: Names, *, is_and: bool) -> Native:
        """Return the operand that `and` or `or` returns."""
        found = self._column(values[0], names)
        for each in values[1:]:
            found, other = self._shared(found), self._column(each, names)
            known = replace(found, fits=())  # what proves it proves the condition
            first, second = (other, known) if is_and else (known, other)
            found = chosen(truth(found), first, second)
        return found

    def _compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr, names: Names) -> Native:
        value = self._column(left, names)
        if isinstance(op, ast.Is | ast.IsNot):
            if not isinstance(right, ast.Constant) or right.value is not None:
                raise NotNative("`is` with other than None")
            return value.then(
                value.expr.is_null() if isinstance(op, ast.Is) else value.expr.is_not_null(), ColumnKind.BOOL
            )
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            found = self._one_of(value, right.elts)
            return found if isinstance(op, ast.In) else found.then(~found.expr)
        return compared(op, value, self._column(right, names))

    @staticmethod
    def _one_of(value: Native, elements: Sequence[ast.expr]) -> Native:
        constants = [each.value for each in elements if isinstance(each, ast.Constant)]
        kinds = {constant(each).kind for each in constants}
        if len(constants) < len(elements) or kinds != {value.kind} or value.kind is ColumnKind.FLOAT:
            raise NotNative("`in` with other than constants of the type of the value")
        found = value.expr.is_in(pl.Series(constants, dtype=value.kind.polars).implode()).fill_null(value=False)
        return value.then(found, ColumnKind.BOOL)

    def _formatted(self, parts: Sequence[ast.expr], names: Names) -> Native:
        texts = [constant("")]
        for part in parts:
            match part:
                case ast.Constant(value=value):
                    texts.append(constant(value))
                case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                    texts.append(FUNCTIONS["str"](self._column(value, names)))
                case _:
                    raise NotNative("an f-string with a conversion or a format")
        fits = tuple(fit for each in texts for fit in each.fits)
        return Native(pl.concat_str(each.expr for each in texts), ColumnKind.TEXT, fits)

    def _part(self, value: ast.expr, part: ast.expr, names: Names) -> AnyValue:
        match value:
            case ast.Call(
                func=ast.Attribute(value=text, attr="split"), args=[ast.Constant(value=separator)], keywords=[]
            ):
                return _element(self._column(text, names), separator, part)
        found = self._value(value, names)
        if isinstance(found, Reference) and isinstance(part, ast.Constant) and isinstance(part.value, str):
            inner = found.member(part.value, self.leaves)
            column = inner.column(self.leaves)
            return inner.guarded(column.expr.is_not_null())  # of an absent member Python raises KeyError
        return text_slice(self._shared(as_column(found, self.leaves)), part)

    def _called(self, node: ast.Call, names: Names) -> AnyValue:
        moment = None if {"datetime", "date"} & self.locals else now_of(node, self.leaves)
        if moment is not None:
            return moment
        match node:
            case ast.Call(func=ast.Name(id=name), args=[argument]) if name in FUNCTIONS and name not in self.locals:
                return FUNCTIONS[name](self._column(argument, names))
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                return self._method(self._value(value, names), name, args)
        raise _outside(node)

    def _method(self, value: AnyValue, name: str, args: Sequence[ast.expr]) -> AnyValue:
        constants = [each.value for each in args if isinstance(each, ast.Constant)]
        if name == "get" and isinstance(value, Reference):
            return self._member(value, args)
        if len(constants) < len(args) or name not in METHODS or METHODS[name][0] != len(args):
            raise NotNative(f"the method {name}" + (" with such arguments" if name in METHODS else ""))
        text = self._shared(as_column(value, self.leaves)).of_kind(ColumnKind.TEXT)
        return METHODS[name][1](text.guarded(text.expr.is_not_null()), *constants)

    def _member(self, value: Reference, args: Sequence[ast.expr]) -> AnyValue:
        match args:
            case [ast.Constant(value=str(name))] | [ast.Constant(value=str(name)), ast.Constant(value=None)]:
                return value.member(name, self.leaves)
            case [ast.Constant(value=str(name)), ast.Dict(keys=[])]:
                return replace(value.member(name, self.leaves), is_else_object=True)
            case [ast.Constant(value=str(name)), ast.Constant(value=other)]:
                found = value.member(name, self.leaves)
                column = found.column(self.leaves)
                unified(column, constant(other))
                return found.guarded(column.expr.is_not_null())
        raise NotNative("get with other than a constant name")


def chosen(condition: Native, first: Native, second: Native) -> Native:
    """Return `first` where a condition holds, else `second`."""
    kind = unified(first, second)
    expr = pl.when(condition.expr).then(first.expr).otherwise(second.expr)
    fit = pl.when(condition.expr).then(first.fit).otherwise(second.fit)
    return Native(expr, kind, (*condition.fits, fit))


def _connected(first: Native, second: Native, *, is_and: bool) -> Native:
    """Return `and` or `or` of two conditions."""
    decides = ~first.expr if is_and else first.expr
    expr = first.expr & second.expr if is_and else first.expr | second.expr
    return Native(expr, ColumnKind.BOOL, (*first.fits, decides | holds(*second.fits)))


def _element(text: Native, separator: Any, part: ast.expr) -> Native:
    if type(separator) is not str or not separator:
        raise NotNative("split with other than a constant separator")
    text = text.of_kind(ColumnKind.TEXT)
    found = text.expr.str.split(separator).list.get(whole_number(part), null_on_oob=True)
    return text.then(found, ColumnKind.TEXT, text.expr.is_not_null(), found.is_not_null())


def _outside(node: ast.AST) -> NotNative:
    return NotNative(f"`{ast.unparse(node).partition(chr(10))[0]:.60}` is outside of the subset")
