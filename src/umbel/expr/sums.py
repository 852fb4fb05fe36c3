"""Long sums of ints: one condition for the overflows of all their partial sums.

A condition for each partial sum repeats the sums before it, so that planning took a time that grew with the third power of the
number of terms: a tenth of a second for 60.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from umbel.expr.compiled import EvaluationError

LONG = 16
"""Terms up to which each partial sum has a condition of its own, which names it."""
WRONG = float(2**62)
"""The least distance of a result that wrapped around, by 2**64, from that of floats, which are exact to 2**11 there."""


@dataclass(frozen=True, slots=True)
class IntSum:
    """Ints that are added or subtracted, from left to right.

    Args:
        terms: the ints, and the sign of each, 1 or -1.
        errors: of the terms.
    """

    terms: tuple[tuple[pl.Expr, int], ...]
    errors: tuple[EvaluationError, ...]

    def then(self, term: pl.Expr, sign: int, errors: tuple[EvaluationError, ...]) -> Self:
        """Return the sum with one more term."""
        return type(self)((*self.terms, (term, sign)), (*self.errors, *errors))

    @property
    def is_long(self) -> bool:
        """True if one condition is to be for all partial sums."""
        return len(self.terms) > LONG

    @property
    def overflow(self) -> pl.Expr:
        """True on rows where a partial sum, up to a null, exceeds 64 bits."""
        columns = [term.alias(str(number)) for number, (term, _) in enumerate(self.terms)]
        return pl.struct(columns).map_batches(self._overflows, return_dtype=pl.Boolean(), is_elementwise=True)

    def _overflows(self, rows: pl.Series) -> pl.Series:
        total = np.zeros(len(rows), np.int64)
        is_known, found = np.ones(len(rows), bool), np.zeros(len(rows), bool)
        for number, (_, sign) in enumerate(self.terms):
            values = rows.struct.field(str(number))
            is_known &= values.is_not_null().to_numpy()
            term = values.fill_null(0).to_numpy()
            near = total.astype(float) + sign * term.astype(float)
            total = total + sign * term
            found |= is_known & (np.abs(total.astype(float) - near) > WRONG)
        return pl.Series(found)
