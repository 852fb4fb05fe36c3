"""Repeated parts of expressions, each computed once, as a column before the expression.

Polars has expressions as trees: a part that is used three times, and has another one three times, would be there nine times,
with the conditions of its errors at each place. A score that is limited in five steps took gigabytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl

from umbel.expr.compiled import Compiled, EvaluationError, Scope

if TYPE_CHECKING:
    from umbel.expr.tree import Expr

SMALL = 60
"""Operators, those of repeated parts each time, up to which an expression is computed as it is."""
REPEATED = 2
"""The least ratio of operators to different operators of an expression whose parts are computed apart."""


def size(expr: Expr) -> int:
    """Return the number of operators, columns and constants of an expression.

    Those of a part count each time that the part is used.
    """
    return _size(expr, {})


def _size(expr: Expr, known: dict[int, int]) -> int:
    found = known.get(id(expr))
    if found is None:
        found = known[id(expr)] = 1 + sum(_size(child, known) for child in expr.children())
    return found


@dataclass(slots=True)
class Structures:
    """Numbers of expressions: equal ones have the same number.

    Args:
        numbers: the number of each structure.
        known: the number of each object.
        uses: how often each structure is an operand, of all different structures.
        leaves: the structures without operands.
    """

    numbers: dict[Hashable, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)
    leaves: set[int] = field(default_factory=set)

    def add(self, expr: Expr) -> int:
        """Return the number of an expression."""
        found = self.known.get(id(expr))
        if found is not None:
            return found
        parts = tuple(self.add(child) for child in expr.children())
        structure = (json.dumps(expr.own_record(), sort_keys=True), parts)
        before = len(self.numbers)
        found = self.known[id(expr)] = self.numbers.setdefault(structure, before)
        if found == before:
            self.uses.update(parts)
            if not parts:
                self.leaves.add(found)
        return found


@dataclass(slots=True)
class Steps:
    """The repeated parts of expressions over one frame, and their columns.

    Args:
        shared: the number of each object that is a repeated part, or equals one.
        columns: the columns made so far, in their order: each may read those before it.
        reasons: the errors of parts; a column has the position of that of each row.
    """

    shared: Mapping[int, int]
    columns: list[tuple[pl.Expr, ...]] = field(default_factory=list)
    reasons: list[EvaluationError] = field(default_factory=list)
    _made: dict[int, Compiled] = field(default_factory=dict)

    def compile(self, expr: Expr, scope: Scope) -> Compiled:
        """Compile an expression, a repeated part to its column.

        It is made at its first use. Where one use needs all values, an error in any row is one of the whole: so the same
        column serves uses that need some of them.
        """
        number = self.shared.get(id(expr))
        if number is None:
            return expr.compile(scope)
        if number not in self._made:
            self._made[number] = self._column(expr.compile(scope))
        return self._made[number]

    def _column(self, part: Compiled) -> Compiled:
        name = f"\0step{len(self.columns)}"
        value, code = pl.col(name), pl.col(f"{name} error")
        if not part.errors:
            self.columns.append((part.value.alias(name),))
            return Compiled(value, part.dtype)
        codes = reduce(self._before, reversed(part.errors), pl.lit(None, dtype=pl.UInt32))
        self.columns.append((part.value.alias(name), codes.alias(code.meta.output_name())))
        first = part.errors[0]
        error = EvaluationError(code.is_not_null(), first.reason, first.part, code, self.reasons)
        return Compiled(value, part.dtype, (error,))

    def _before(self, codes: pl.Expr, failure: EvaluationError) -> pl.Expr:
        """Return the positions of errors, that of one failure before those of later ones."""
        own = failure.code
        if own is None:
            own = pl.lit(len(self.reasons), dtype=pl.UInt32)
            self.reasons.append(failure)
        return pl.when(failure.condition).then(own).otherwise(codes)

    def added_to(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return a frame with the columns of the parts."""
        return reduce(lambda known, columns: known.with_columns(columns), self.columns, frame)


def steps_of(exprs: Iterable[Expr]) -> Steps | None:
    """Return the steps of expressions whose repeated parts are worth it, else None."""
    exprs = list(exprs)
    total = sum(size(each) for each in exprs)
    if total <= SMALL:
        return None
    structures = Structures()
    structures.uses.update(structures.add(each) for each in exprs)
    if total < REPEATED * len(structures.numbers):
        return None
    repeated = {number for number, uses in structures.uses.items() if uses > 1} - structures.leaves
    return Steps({each: number for each, number in structures.known.items() if number in repeated})
